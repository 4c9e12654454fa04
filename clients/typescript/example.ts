// Ingests, reads, lists and watches with the packaged client. HTTP_URL is the URL of the service, ACCESS_KEY an access
// key.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { badRequestOf, type ConversationUpdate, createConversationsClient } from "conversation-update-webhook-client";

const { HTTP_URL = "", ACCESS_KEY = "" } = process.env;
const { ingest, conversations, watch } = createConversationsClient({ baseUrl: HTTP_URL, accessKey: ACCESS_KEY });

const id = randomUUID();

/** Ingests the conversation with a title. Returns the sequence number of the update. */
async function send(title: string): Promise<bigint> {
	const response = await ingest.ingestConversation({
		conversation: {
			id,
			title,
			workspace: { kind: { case: "localWorkspace", value: { workingDir: "/workspace" } } },
			agent: { kind: { case: "acpAgent", value: { acpCommand: ["acp"] } } },
		},
	});
	return response.sequence;
}

/** Returns the conversation's first update after a sequence number. `watch` reconnects when its stream breaks. */
async function nextAfter(sequence: bigint): Promise<ConversationUpdate> {
	const request = { start: { case: "afterSequence", value: sequence }, conversationId: id } as const;
	for await (const { content } of watch(request)) if (content.case === "update") return content.value;
	throw new Error("a watch does not end by itself");
}

const first = await send("first");
console.log(`ingested as update ${first}`);

const { conversation } = await conversations.getConversation({ id });
assert.equal(conversation?.title, "first");
assert.equal(conversation?.maxIterations, 500n);
console.log("read");

const { conversations: listed } = await conversations.listConversations({ pageSize: 10 });
assert.equal(listed.find(({ summary }) => summary?.id === id)?.summary?.title, "first");
console.log("listed");

assert.equal((await nextAfter(first - 1n)).sequence, first);
const second = await send("second");
const update = await nextAfter(first);
assert.deepEqual([update.sequence, update.summary?.title], [second, "second"]);
console.log(`watched, and resumed after update ${first}`);

const refusal = await ingest.ingestConversation({ conversation: { id } }).catch((error: unknown) => error);
const fields = badRequestOf(refusal)?.fieldViolations.map(({ field, reason }) => `${field} is ${reason}`) ?? [];
assert.deepEqual(fields, ["conversation.workspace is missing", "conversation.agent is missing"]);
console.log(`refused: ${fields.join(", ")}`);
