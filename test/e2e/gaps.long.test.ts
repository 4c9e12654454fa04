import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationGapKind } from "../../gen/conversations/v1/conversation_gap_service_pb.js";
import { type Endpoints, gapClient, PROTOCOLS, postWebhook } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { scrape } from "../support/scrape.ts";
import { startTestService } from "../support/service.ts";

const RED = "key-of-the-sender-of-team-red";
const BLUE = "key-of-a-reader-of-team-blue";
const ALL = "key-of-a-reader-of-everything";
const ACCESS_KEYS = [`red:${RED}:ingest+read@red`, `blue:${BLUE}:ingest+read@blue`, `all:${ALL}:read+metrics`].join();

const event = (id: string, parent_id: string | null, n: number): JsonObject => ({
	id,
	parent_id,
	timestamp: `2026-01-01T00:00:0${n}`,
	source: "agent",
	kind: "MessageEvent",
});

async function read(of: Endpoints, key: string, path: string): Promise<{ status: number; json: JsonObject }> {
	const response = await fetch(`${of.http}/api/v1/conversations${path}`, { headers: { "X-Access-Token": key } });
	return { status: response.status, json: object(JSON.parse(await response.text())) };
}

describe.each(ENGINES)("gaps with $engine", ({ open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

	test("are shown to their owner in summaries, lists, counts and metrics, until they close", async () => {
		await using service = await startTestService({ ...(await databases.create()), ACCESS_KEYS });
		const [id, unknown, foreign] = [randomUUID(), randomUUID(), randomUUID()];
		await postWebhook(service, BLUE, JSON.stringify(record({ id: foreign })));
		const related = { parent_conversation_id: unknown, forked_from_conversation_id: null };
		await postWebhook(service, RED, JSON.stringify(record({ id, ...related })));
		const post = async (...events: JsonObject[]) =>
			expect((await postEvents(service, RED, id, JSON.stringify(events))).status).toBe(200);
		await post(event("a", null, 1), event("c", "b", 3));
		await post(event("e", "d", 5));
		const { json: page } = await read(service, RED, `/${id}/gaps?page_size=1`);
		const gap = (after: string, missing: string) => ({
			kind: "missing_parent",
			after_event_id: after,
			missing_event_id: missing,
			since: expect.stringMatching(/^20\d\d-.*Z$/),
			refused_post_id: null,
		});
		const unknown_relations = [{ relation: "parent", conversation_id: unknown }];
		expect(page).toEqual({ gaps: [gap("a", "b")], unknown_relations, next_page_token: expect.stringMatching(/./) });
		const next = await read(service, ALL, `/${id}/gaps?page_token=${page.next_page_token}`);
		expect(next.json).toEqual({ gaps: [gap("c", "d")], unknown_relations, next_page_token: "" });
		expect((await read(service, BLUE, `/${id}/gaps`)).status).toBe(404);
		expect((await read(service, RED, `/${randomUUID()}/gaps`)).status).toBe(404);
		expect((await read(service, RED, `/${id}/gaps?page_token=x`)).status).toBe(400);
		for (const protocol of PROTOCOLS) {
			const { gaps } = await gapClient(service, protocol, RED).listConversationGaps({ conversationId: id });
			expect(gaps).toMatchObject([
				{ kind: ConversationGapKind.MISSING_PARENT, afterEventId: "a", missingEventId: "b" },
				{ kind: ConversationGapKind.MISSING_PARENT, afterEventId: "c", missingEventId: "d" },
			]);
		}
		const listed = async (hasGaps: boolean) => {
			const { json } = await read(service, RED, `?has_gaps=${hasGaps}`);
			return Array.isArray(json.conversations) ? json.conversations.map((one) => object(object(one).summary)) : [];
		};
		expect(await listed(true)).toMatchObject([{ id, gaps: { count: 2, since: page.gaps && expect.any(String) } }]);
		expect(await listed(false)).toEqual([]);
		expect((await read(service, ALL, "/counts?has_gaps=true")).json).toMatchObject({ total: 1 });
		expect((await read(service, BLUE, "/counts?has_gaps=true")).json).toMatchObject({ total: 0 });
		const counted = async () =>
			(await scrape(service, ALL)).samples
				.filter(({ name }) => name === "conversations_with_gaps")
				.map(({ labels, value }) => [labels.age, value]);
		expect(await counted()).toEqual([
			["lasting", 0],
			["recent", 1],
		]);

		await post(event("d", "c", 4), event("b", "a", 2));
		expect((await read(service, RED, `/${id}/gaps`)).json).toEqual({
			gaps: [],
			unknown_relations,
			next_page_token: "",
		});
		expect([await listed(true), (await listed(false)).map((summary) => summary.gaps)]).toEqual([[], [undefined]]);
	});
});
