import { randomUUID } from "node:crypto";
import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	type AssignOwnerRequestSchema,
	ConversationIdsSchema,
} from "../../gen/conversations/v1/conversation_owner_service_pb.js";
import {
	EVENT_WEBHOOK,
	eventClient,
	eventIngestClient,
	ingestClient,
	ownerClient,
	PROTOCOLS,
	postWebhook,
	readClient,
} from "../support/clients.ts";
import { eventsRequest } from "../support/event-batches.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+keys,red:${RED}:ingest+read@red,blue:${BLUE}:ingest+read+keys@blue`,
};
const REFUSED = "The conversation does not belong to the owner of this key";
const CANARY = "canary-of-red";
/** Later than the events. */
const LATER = "2026-01-01T00:00:09Z";

const title = (id: string, value: string) => ({
	id: `title ${value} of ${id}`,
	timestamp: "2026-01-01T00:00:01",
	source: "environment",
	kind: "ConversationStateUpdateEvent",
	key: "title",
	value,
});

async function refusal(promise: Promise<unknown>): Promise<readonly [string, string]> {
	const error = await promise.then(
		() => new ConnectError("the call succeeded"),
		(reason: unknown) => ConnectError.from(reason),
	);
	return [Code[error.code] ?? "", error.rawMessage];
}

test.each(PROTOCOLS)("over %s, what a key with an owner posts is its owner's, and nobody else's", async (protocol) => {
	await using service = await startTestService(ENV);
	const [posted, batched] = [randomUUID(), randomUUID()];
	const titles = (id: string, value: string) =>
		fromBinary(IngestConversationEventsRequestSchema, eventsRequest(id, [title(id, value)]));
	await ingestClient(service, protocol, RED).ingestConversation(
		ingestRequest(record({ id: posted, title: CANARY, updated_at: "2026-01-01T00:00:00Z" })),
	);
	await eventIngestClient(service, protocol, RED).ingestConversationEvents(titles(batched, CANARY));

	const own = await readClient(service, protocol, RED).listConversations({});
	expect(own.conversations.map(({ summary }) => [summary?.id, summary?.sender, summary?.owner])).toEqual([
		[posted, "red", "red"],
		[batched, "red", "red"],
	]);
	const { events } = await eventClient(service, protocol, RED).listConversationEvents({});
	expect(events.map(({ conversationId, sender }) => [conversationId, sender])).toEqual([[batched, "red"]]);

	for (const id of [posted, batched]) {
		const denied = ["PermissionDenied", REFUSED];
		const blue = ingestClient(service, protocol, BLUE);
		expect(await refusal(blue.ingestConversation(ingestRequest(record({ id }))))).toEqual(denied);
		// Invalid: it has no workspace and no agent.
		expect(await refusal(blue.ingestConversation({ conversation: { id } }))).toEqual(denied);
		const blueEvents = eventIngestClient(service, protocol, BLUE);
		expect(await refusal(blueEvents.ingestConversationEvents(titles(id, "taken")))).toEqual(denied);
		const reads = readClient(service, protocol, BLUE);
		expect(await refusal(reads.getConversation({ id }))).toEqual(
			await refusal(reads.getConversation({ id: randomUUID() })),
		);
	}
	expect((await readClient(service, protocol, BLUE).listConversations({})).conversations).toEqual([]);
	expect((await readClient(service, protocol, BLUE).listConversationUpdates({})).updates).toEqual([]);
	expect((await eventClient(service, protocol, BLUE).listConversationEvents({})).events).toEqual([]);

	// A key without an owner posts anywhere, and the owner stays. A state update reaches the record of its owner.
	await ingestClient(service, protocol, KEY).ingestConversation(
		ingestRequest(record({ id: batched, title: "by all", updated_at: LATER })),
	);
	await eventIngestClient(service, protocol, RED).ingestConversationEvents(titles(posted, "changed"));
	const { updates } = await readClient(service, protocol, RED).listConversationUpdates({});
	const facts = updates.map(({ conversationId, sender, summary }) => [
		...[conversationId, sender],
		...[summary?.title, summary?.sender, summary?.owner],
	]);
	expect(facts).toEqual([
		[posted, "red", CANARY, "red", "red"],
		[batched, "test", "by all", "red", "red"],
		[posted, "red", "changed", "red", "red"],
	]);
});

test("over JSON, a post to another owner's conversation is a 403, and reads answer as for an unknown id", async () => {
	await using service = await startTestService(ENV);
	const id = randomUUID();
	expect((await postWebhook(service, RED, JSON.stringify(record({ id, title: CANARY })))).status).toBe(200);
	const answers = [
		await postWebhook(service, BLUE, JSON.stringify(record({ id }))),
		await postWebhook(service, BLUE, JSON.stringify({ id: id.toUpperCase(), title: 7 })),
		await postWebhook(service, BLUE, JSON.stringify([title(id, "taken")]), {}, `${EVENT_WEBHOOK}/${id}`),
		await postWebhook(service, BLUE, "no JSON at all", {}, `${EVENT_WEBHOOK}/${id}`),
	];
	for (const answer of answers) {
		expect(answer.status).toBe(403);
		expect(await answer.text()).toContain(REFUSED);
	}
	const getText = async (path: string, key: string) => {
		const response = await fetch(`${service.http}${path}`, { headers: { "X-Access-Token": key } });
		return { status: response.status, text: await response.text() };
	};
	const paths = (of: string) => [`/api/v1/conversations/${of}`, `/api/v1/conversations/${of}/events`];
	const unknown = randomUUID();
	for (const [index, path] of paths(id).entries()) {
		const seen = await getText(path, BLUE);
		expect(seen).toEqual(await getText(paths(unknown)[index] ?? "", BLUE));
		expect(JSON.stringify(seen)).not.toContain(CANARY);
	}
	const listed = async (key: string, query = "") => JSON.stringify(await getText(`/api/v1/conversations${query}`, key));
	expect(await listed(RED)).toContain(CANARY);
	expect(await listed(BLUE)).not.toContain(id);
	expect(await listed(BLUE, "?owner=red")).not.toContain(id);
	expect(await listed(KEY, "?owner=red&sender=red")).toContain(id);
	expect(await listed(KEY, "?sender=blue")).not.toContain(id);
});

test.each(PROTOCOLS)("over %s, a caller without an owner assigns conversations, which is logged", async (protocol) => {
	await using service = await startTestService(ENV);
	const ids = [randomUUID(), randomUUID()];
	for (const id of ids) await ingestClient(service, protocol, KEY).ingestConversation(ingestRequest(record({ id })));
	const assign = (key: string, conversations: MessageInitShape<typeof AssignOwnerRequestSchema>["conversations"]) =>
		ownerClient(service, protocol, key).assignOwner({ owner: "red", ...(conversations && { conversations }) });
	expect(await refusal(assign(BLUE, { case: "allWithoutOwner", value: true }))).toEqual([
		"PermissionDenied",
		"A key with an owner cannot assign conversations",
	]);
	expect(await refusal(assign(KEY, undefined))).toEqual([
		"InvalidArgument",
		"conversations must name ids, a sender, those without a sender, or all without an owner",
	]);
	expect(
		(await assign(KEY, { case: "ids", value: create(ConversationIdsSchema, { ids: ids.slice(0, 1) }) })).assigned,
	).toBe(1n);
	expect((await assign(KEY, { case: "sender", value: "test" })).assigned).toBe(1n);
	expect((await readClient(service, protocol, RED).listConversations({})).conversations).toHaveLength(2);
	await ingestClient(service, protocol, RED).ingestConversation(ingestRequest(record({ id: ids[0] ?? "" })));
	const lines = service
		.log()
		.split("\n")
		.filter((line) => line.includes("owner_assigned"));
	expect(lines.map((line) => JSON.parse(line))).toMatchObject([
		{ owner: "red", count: 1, caller: "test" },
		{ owner: "red", count: 1, caller: "test" },
	]);
});
