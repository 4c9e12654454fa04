import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationGapKind } from "../../gen/conversations/v1/conversation_gap_service_pb.js";
import { ConversationOrder } from "../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, gapClient, PROTOCOLS, postWebhook, readClient } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { startTestService } from "../support/service.ts";

const [RED, BLUE, ALL] = ["key-of-the-sender-of-team-red", "key-of-a-reader-of-team-blue", "key-of-a-reader-of-all"];
const ACCESS_KEYS = [`red:${RED}:ingest+read@red`, `blue:${BLUE}:ingest+read@blue`, `all:${ALL}:read+erase`].join();
const NO_RECORD =
	"There is no record of this conversation, but there are events: every record that was posted was refused or lost";

const message = (id: string, text: string, n: number): JsonObject => ({
	id,
	timestamp: `2026-01-01T00:00:0${n}`,
	source: "user",
	kind: "MessageEvent",
	llm_message: { role: "user", content: [{ type: "text", text }] },
});

async function read(of: Endpoints, key: string, path: string): Promise<{ status: number; json: JsonObject }> {
	const response = await fetch(`${of.http}/api/v1/conversations${path}`, { headers: { "X-Access-Token": key } });
	return { status: response.status, json: object(JSON.parse(await response.text())) };
}

async function refused(of: Endpoints): Promise<JsonObject[]> {
	const headers = { "X-Access-Token": RED };
	const response = await fetch(`${of.http}/api/v1/refused-posts?page_size=1000`, { headers });
	const { refused_posts: posts } = object(JSON.parse(await response.text()));
	return Array.isArray(posts) ? posts.map(object) : [];
}

/** Waits until the service has written a number of refused posts, which it does soon after its answers. */
async function waitForRefused(of: Endpoints, count: number): Promise<void> {
	await expect.poll(() => refused(of)).toHaveLength(count);
}

/** Returns the ids of a list, in its order. */
async function listed(of: Endpoints, key: string, query: string): Promise<unknown[]> {
	const { json } = await read(of, key, query);
	const page = Array.isArray(json.conversations) ? json.conversations : [];
	return page.map((one) => object(object(one).summary).id);
}

describe.each(ENGINES)("a conversation without a record, with $engine", ({ open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

	/** Posts a record that is refused, and events. Returns the id of the conversation. */
	async function postRefused(service: Endpoints): Promise<string> {
		const id = randomUUID();
		const refused = JSON.stringify(record({ id })).replace(/\}$/, `,"max_iterations":1${"0".repeat(20)}}`);
		expect((await postWebhook(service, RED, refused)).status).toBe(422);
		const events = [message("a", "First words", 1), message("b", "Last words", 2)];
		expect((await postEvents(service, RED, id, JSON.stringify(events))).status).toBe(200);
		return id;
	}

	test("is in lists, counts and gaps of its owner, and becomes a usual one with its first record", async () => {
		await using service = await startTestService({ ...(await databases.create()), ACCESS_KEYS });
		const usual = randomUUID();
		await postWebhook(service, RED, JSON.stringify(record({ id: usual })));
		const id = await postRefused(service);
		const other = await postRefused(service);

		const { json } = await read(service, RED, "?has_gaps=true&view=full");
		const since = expect.stringMatching(/^20\d\d-.*Z$/);
		const entry = (of: string) => ({
			sequence: 0,
			has_record: false,
			summary: {
				id: of,
				agent_kind: "",
				model: "",
				accumulated_cost: null,
				tokens: null,
				created_at: since,
				updated_at: "2026-01-01T00:00:02Z",
				tags: {},
				event_count: 2,
				last_activity_at: "2026-01-01T00:00:02Z",
				last_message: "Last words",
				sender: "red",
				owner: "red",
				first_message: "First words",
				gaps: { count: 1, since },
			},
		});
		expect(json.conversations).toEqual([entry(other), entry(id)]);
		for (const order of ["updated", "activity", "created", "cost", "tokens"]) {
			const first = await read(service, RED, `?order_by=${order}&page_size=2`);
			const rest = await listed(service, RED, `?order_by=${order}&page_token=${first.json.next_page_token}`);
			const ids = [...(await listed(service, RED, `?order_by=${order}&page_size=2`)), ...rest];
			expect([order, ids.toSorted()]).toEqual([order, [usual, id, other].toSorted()]);
		}
		expect(await listed(service, RED, "")).toEqual([usual, other, id]);
		expect(await listed(service, RED, `?id=${id}&sender=red`)).toEqual([id]);
		expect(await listed(service, RED, "?execution_status=idle")).toEqual([usual]);
		expect((await read(service, RED, "/counts")).json).toEqual({ counts: [], total: 3 });
		expect((await read(service, ALL, "/counts?has_gaps=true&group_by=owner")).json).toMatchObject({ total: 2 });
		const events = await read(service, RED, `/${id}/events`);
		expect(events.json.events).toMatchObject([{ event: { id: "a" } }, { event: { id: "b" } }]);
		expect(await read(service, RED, `/${id}`)).toEqual({ status: 404, json: { detail: NO_RECORD } });
		expect((await read(service, RED, `/${id}/updates`)).json).toEqual({ updates: [], next_page_token: "" });
		const searched = async () => {
			const headers = { "X-Access-Token": RED };
			return await (await fetch(`${service.http}/api/v1/search?query=words&sender=red`, { headers })).text();
		};
		await expect.poll(searched).toContain(id);

		await waitForRefused(service, 2);
		const { json: gaps } = await read(service, RED, `/${id}/gaps`);
		const [post] = (await refused(service)).filter((one) => one.conversation_id === id);
		const refused_post_id = post?.id;
		expect(refused_post_id).toEqual(expect.stringMatching(/^\d+$/));
		const gap = { kind: "no_record", after_event_id: null, missing_event_id: null, since, refused_post_id };
		expect(gaps).toEqual({ gaps: [gap], unknown_relations: [], next_page_token: "" });
		for (const protocol of PROTOCOLS) {
			const client = readClient(service, protocol, RED);
			const page = await client.listConversations({
				orderBy: ConversationOrder.ACTIVITY,
				filter: { ids: [id, usual] },
			});
			const [rest, withRecord] = [page.conversations.filter((one) => !one.hasRecord), page.conversations];
			expect(rest.map(({ sequence, summary }) => [sequence, summary?.id, summary?.lastMessage])).toEqual([
				[0n, id, "Last words"],
			]);
			expect(withRecord).toHaveLength(2);
			const error = await client.getConversation({ id }).catch((reason: unknown) => ConnectError.from(reason));
			expect(error).toMatchObject({ code: Code.NotFound, rawMessage: NO_RECORD });
			const listedGaps = await gapClient(service, protocol, RED).listConversationGaps({ conversationId: id });
			expect(listedGaps.gaps).toMatchObject([
				{ kind: ConversationGapKind.NO_RECORD, missingEventId: "", refusedPostId: String(refused_post_id) },
			]);
		}

		expect(await listed(service, BLUE, "")).toEqual([]);
		expect((await read(service, BLUE, "/counts")).json).toMatchObject({ total: 0 });
		expect((await read(service, BLUE, `/${id}/gaps`)).status).toBe(404);
		expect((await read(service, BLUE, `/${id}`)).json).toEqual({ detail: "There is no such conversation" });

		const now = record({
			id,
			created_at: "2026-01-01T00:00:00Z",
			updated_at: "2026-01-01T00:00:01Z",
			title: "At last",
		});
		expect((await postWebhook(service, RED, JSON.stringify(now))).status).toBe(200);
		const { json: after } = await read(service, RED, "");
		expect(after.conversations).toMatchObject([
			{ sequence: 2, has_record: true, summary: { id, title: "At last", event_count: 2, last_message: "Last words" } },
			{ has_record: true, summary: { id: usual } },
			{ has_record: false, summary: { id: other } },
		]);
		expect((await read(service, RED, `/${id}/gaps`)).json).toMatchObject({ gaps: [] });
		expect((await read(service, RED, `/${id}`)).json).toMatchObject({ id, leaf_event_id: "b" });
		expect((await read(service, RED, "/counts")).json).toMatchObject({ total: 3 });
		expect((await read(service, RED, "/counts?group_by=status")).json).toMatchObject({ total: 3 });

		const erased = await fetch(`${service.http}/api/v1/conversations/${other}`, {
			method: "DELETE",
			headers: { "X-Access-Token": ALL },
		});
		expect(erased.status).toBe(200);
		expect((await listed(service, RED, "")).toSorted()).toEqual([usual, id].toSorted());
		expect((await read(service, RED, "/counts")).json).toMatchObject({ total: 2 });
	});

	test("is there after an export and an import", async () => {
		const [source, target] = [await databases.create(), await databases.create()];
		await using service = await startTestService({ ...source, ACCESS_KEYS });
		await postWebhook(service, RED, JSON.stringify(record({ id: randomUUID() })));
		const ids = [await postRefused(service), await postRefused(service)];
		await waitForRefused(service, 2);
		const lists = async (of: Endpoints) => [
			(await read(of, RED, "")).json,
			(await read(of, RED, "?has_gaps=true&order_by=created")).json,
			(await read(of, RED, "/counts?group_by=sender")).json,
			(await read(of, RED, `/${ids[0]}/gaps`)).json,
		];
		const before = await lists(service);
		expect(before).toMatchObject([
			{ total_size: 3 },
			{ total_size: 2 },
			{ total: 3 },
			{ gaps: [{ kind: "no_record" }] },
		]);
		await service.stop();
		const file = service.folder.file("export.jsonl.zst");
		expect(await ServiceProcess.run(source, "export", file)).toMatchObject({ code: 0 });
		expect(await ServiceProcess.run(target, "import", file)).toMatchObject({
			code: 0,
			stderr: expect.stringMatching(/^100 % of \d+ rows are imported$/m),
		});
		await using imported = await startTestService({ ...target, ACCESS_KEYS });
		expect(await lists(imported)).toEqual(before);
	});
});
