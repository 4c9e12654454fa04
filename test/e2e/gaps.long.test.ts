import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationGapKind, ConversationGapService } from "../../gen/conversations/v1/conversation_gap_service_pb.js";
import { clientOf, type Endpoints, postWebhook, readClient } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { startTestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-sender-of-team-red", "key-of-a-reader-of-team-blue"];
const ACCESS_KEYS = `red:${RED}:ingest+read@red,blue:${BLUE}:ingest+read@blue`;
const NO_RECORD =
	"There is no record of this conversation, but there are events: every record that was posted was refused or lost";
const since = expect.stringMatching(/^20\d\d-.*Z$/);

const message = (id: string, text: string, n: number, parent_id: string | null): JsonObject => ({
	...{ id, parent_id, timestamp: `2026-01-01T00:00:0${n}`, source: "user", kind: "MessageEvent" },
	llm_message: { role: "user", content: [{ type: "text", text }] },
});

async function read(of: Endpoints, key: string, path: string): Promise<{ status: number; json: JsonObject }> {
	const response = await fetch(`${of.http}/api/v1/${path}`, { headers: { "X-Access-Token": key } });
	return { status: response.status, json: object(JSON.parse(await response.text())) };
}

/** Returns the summaries of a list, in its order. */
async function listed(of: Endpoints, key: string, query: string): Promise<JsonObject[]> {
	const { conversations = [] } = (await read(of, key, `conversations?${query}`)).json;
	return Array.isArray(conversations) ? conversations.map((one) => object(object(one).summary ?? {})) : [];
}

test.each(ENGINES)("with $engine, gaps are shown to their owner, until they close", async ({ open }) => {
	await using databases = await open();
	await using service = await startTestService({ ...(await databases.create()), ACCESS_KEYS });
	const [id, unknown] = [randomUUID(), randomUUID()];
	await postWebhook(service, RED, JSON.stringify(record({ id, parent_conversation_id: unknown })));
	const post = async (...events: JsonObject[]) =>
		expect((await postEvents(service, RED, id, JSON.stringify(events))).status).toBe(200);
	await post(message("a", "", 1, null), message("c", "", 3, "b"));
	await post(message("e", "", 5, "d"));
	const path = `conversations/${id}/gaps`;
	const gap = (after_event_id: string, missing_event_id: string) => ({
		...{ kind: "missing_parent", after_event_id, missing_event_id, since, refused_post_id: null },
	});
	const unknown_relations = [{ relation: "parent", conversation_id: unknown }];
	const { json: page } = await read(service, RED, `${path}?page_size=1`);
	expect(page).toEqual({ gaps: [gap("a", "b")], unknown_relations, next_page_token: expect.stringMatching(/./) });
	const next = await read(service, RED, `${path}?page_token=${page.next_page_token}`);
	expect(next.json).toEqual({ gaps: [gap("c", "d")], unknown_relations, next_page_token: "" });
	expect([(await read(service, BLUE, path)).status, (await read(service, RED, `${path}?page_token=x`)).status]).toEqual(
		[404, 400],
	);
	const { gaps } = await clientOf(ConversationGapService, service, "gRPC", RED).listConversationGaps({
		conversationId: id,
	});
	expect(gaps).toMatchObject([
		{ kind: ConversationGapKind.MISSING_PARENT, afterEventId: "a", missingEventId: "b" },
		{ kind: ConversationGapKind.MISSING_PARENT, afterEventId: "c", missingEventId: "d" },
	]);
	expect(await listed(service, RED, "has_gaps=true")).toMatchObject([{ id, gaps: { count: 2, since } }]);
	expect(await listed(service, RED, "has_gaps=false")).toEqual([]);

	await post(message("d", "", 4, "c"), message("b", "", 2, "a"));
	expect((await read(service, RED, path)).json).toEqual({ gaps: [], unknown_relations, next_page_token: "" });
	expect(await listed(service, RED, "has_gaps=true")).toEqual([]);
});

test.each(ENGINES)("with $engine, a conversation without a record is listed with its gap", async ({ open }) => {
	await using databases = await open();
	await using service = await startTestService({ ...(await databases.create()), ACCESS_KEYS });
	const [id, usual] = [randomUUID(), randomUUID()];
	await postWebhook(service, RED, JSON.stringify(record({ id: usual })));
	const refused = JSON.stringify(record({ id })).replace(/\}$/, `,"max_iterations":1${"0".repeat(20)}}`);
	expect((await postWebhook(service, RED, refused)).status).toBe(422);
	const events = [message("a", "First words", 1, null), message("b", "Last words", 2, "a")];
	expect((await postEvents(service, RED, id, JSON.stringify(events))).status).toBe(200);

	const entry = {
		sequence: 0,
		has_record: false,
		summary: {
			...{ id, agent_kind: "", model: "", accumulated_cost: null, tokens: null, tags: {}, event_count: 2 },
			...{ created_at: since, updated_at: "2026-01-01T00:00:02Z", last_activity_at: "2026-01-01T00:00:02Z" },
			...{ first_message: "First words", last_message: "Last words", sender: "red", owner: "red" },
			gaps: { count: 1, since },
		},
	};
	expect((await read(service, RED, "conversations?has_gaps=true&view=full")).json.conversations).toEqual([entry]);
	for (const order of ["updated", "activity", "created", "cost", "tokens"])
		expect([order, (await listed(service, RED, `order_by=${order}`)).map((one) => one.id).toSorted()]).toEqual([
			...[order, [usual, id].toSorted()],
		]);
	expect(await listed(service, RED, "execution_status=idle")).toMatchObject([{ id: usual }]);
	expect(await read(service, RED, `conversations/${id}`)).toEqual({ status: 404, json: { detail: NO_RECORD } });
	const rpc = readClient(service, "gRPC", RED);
	await expect(rpc.getConversation({ id })).rejects.toMatchObject({ rawMessage: NO_RECORD });
	expect((await rpc.listConversations({ filter: { ids: [id] } })).conversations).toMatchObject([
		{ sequence: 0n, hasRecord: false, summary: { id, lastMessage: "Last words" } },
	]);
	const gaps = async () => (await read(service, RED, `conversations/${id}/gaps`)).json.gaps;
	// The service writes refused posts soon after its answers.
	await expect.poll(gaps).toEqual([
		{
			...{ kind: "no_record", after_event_id: null, missing_event_id: null, since },
			refused_post_id: expect.stringMatching(/^\d+$/),
		},
	]);
	expect(await listed(service, BLUE, "")).toEqual([]);
	expect((await read(service, BLUE, `conversations/${id}`)).json).toEqual({ detail: "There is no such conversation" });

	expect((await postWebhook(service, RED, JSON.stringify(record({ id, title: "At last" })))).status).toBe(200);
	expect(await gaps()).toEqual([]);
	expect(await listed(service, RED, `id=${id}`)).toMatchObject([{ id, title: "At last", last_message: "Last words" }]);
	expect((await read(service, RED, "conversations/counts?group_by=status")).json).toMatchObject({ total: 2 });
});
