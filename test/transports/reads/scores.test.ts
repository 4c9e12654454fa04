import type { JsonObject } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationOrder } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ScoreService, ScoreSource } from "../../../gen/conversations/v1/score_service_pb.js";
import { clientOf, EVENT_WEBHOOK, PROTOCOLS, postWebhook, readClient } from "../../support/clients.ts";
import { record } from "../../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const RED = "key-of-the-owner-red";
const READER = "key-that-only-reads";
const [ONE, TWO, OTHER] = ["a", "b", "c"].map((digit) => `0190d6a0-0000-7000-8000-00000000000${digit}`);
const UNKNOWN = "0190d6a0-0000-7000-8000-0000000000ff";
const EVENT = "5f0c1f0e-52a5-4b3c-9f5e-0d6a3c1b7e21";

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		ACCESS_KEYS: `job:${KEY}:ingest+read+score+keys+forward,red:${RED}:ingest+read+score@red,reader:${READER}:read`,
	});
	const costs = new Map([
		[ONE, 0.5],
		[TWO, undefined],
	]);
	for (const [id, cost] of costs) {
		const stats = cost === undefined ? {} : { usage_to_metrics: { agent: { accumulated_cost: cost } } };
		const body = record({ id: id ?? "", stats, agent: { kind: "Agent", llm: { model: `m-${cost ?? "none"}` } } });
		expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
	}
	expect((await postWebhook(service, RED, JSON.stringify(record({ id: OTHER ?? "" })))).status).toBe(200);
	const said = {
		...{ id: EVENT, timestamp: "2026-11-21T08:55:31", source: "agent", kind: "MessageEvent" },
		llm_message: { role: "assistant", content: [{ type: "text", text: "done" }] },
	};
	const posted = await postWebhook(service, KEY, JSON.stringify([said]), {}, `${EVENT_WEBHOOK}/${ONE}`);
	expect(posted.status).toBe(200);
});

afterAll(() => service[Symbol.asyncDispose]());

async function call(method: string, path: string, body?: JsonObject, key = KEY, accept = "application/json") {
	const response = await fetch(`${service.http}/api/v1/${path}`, {
		method,
		headers: { "X-Access-Token": key, "Content-Type": "application/json", Accept: accept },
		body: body === undefined ? null : JSON.stringify(body),
	});
	const text = await response.text();
	return [response.status, accept === "text/csv" ? text : JSON.parse(text)];
}

const set = (...scores: JsonObject[]) => call("POST", "scores", { scores });
const GIVEN: readonly JsonObject[] = [
	{ conversation_id: ONE ?? "", name: "tests_passed", value: 0.75, source: "program" },
	{ conversation_id: ONE ?? "", name: "thumbs", value: true, comment: "see http://me:secret@host/", source: "person" },
	{ conversation_id: ONE ?? "", event_id: EVENT, name: "cause", value: "tool" },
	{ conversation_id: TWO ?? "", name: "tests_passed", value: 1 },
	{ conversation_id: TWO ?? "", name: "grade", value: "1" },
];

test("scores are given, listed, shown in lists, reported and deleted as JSON", async () => {
	expect(await set(...GIVEN)).toEqual([200, { changed: 5 }]);
	expect(await set(...GIVEN)).toEqual([200, { changed: 0 }]);
	const [status, { scores }] = await call("GET", `scores?conversation_id=${ONE}`);
	expect([status, scores]).toEqual([
		200,
		[
			{ event_id: null, name: "tests_passed", value: 0.75, comment: null, source: "program" },
			{ event_id: null, name: "thumbs", value: true, comment: "see http://**********@host/", source: "person" },
			{ event_id: EVENT, name: "cause", value: "tool", comment: null, source: "program" },
		].map((one) => ({ ...one, conversation_id: ONE, giver: "job", given_at: expect.any(String) })),
	]);
	const [, list] = await call(
		"GET",
		"conversations?order_by=score&order_score=tests_passed&score_name=thumbs&score_name=cause",
	);
	expect(list.conversations.map((one: JsonObject) => one.scores)).toEqual([{}, { thumbs: true, cause: "tool" }, {}]);
	expect(list.total_size).toBe(3);
	const csv = await call(
		"GET",
		"conversations?order_by=score&order_score=tests_passed&score_name=tests_passed",
		undefined,
		KEY,
		"text/csv",
	);
	expect(
		String(csv[1])
			.split("\r\n")
			.map((line) => line.split(",").at(-1)),
	).toEqual(["score:tests_passed", "1", "0.75", "", ""]);
	const path = "scores/report?name=tests_passed&group_by=model";
	const of = (count: number, mean: number, cost: number, without: number) => ({
		...{ count, mean, categories: {}, conversations: 1, cost, conversations_without_cost: without },
	});
	expect(await call("GET", path)).toEqual([
		200,
		{
			rows: [
				{ group: ["m-0.5"], scores: of(1, 0.75, 0.5, 0) },
				{ group: ["m-none"], scores: of(1, 1, 0, 1) },
			],
			total: { ...of(2, 0.875, 0.5, 1), conversations: 2 },
		},
	]);
	expect((await call("GET", path, undefined, KEY, "text/csv"))[1]).toBe(
		"model,count,mean,share_true,categories,conversations,cost,conversations_without_cost\r\n" +
			"m-0.5,1,0.75,,,1,0.5,0\r\nm-none,1,1,,,1,0,1\r\n",
	);
	expect(await call("DELETE", `conversations/${ONE}/scores/cause?event_id=${EVENT}`)).toEqual([200, {}]);
	expect(await call("DELETE", `conversations/${ONE}/scores/cause?event_id=${EVENT}`)).toEqual([
		404,
		{ detail: "There is no such score" },
	]);
	await set({ ...GIVEN[2] });
	expect(JSON.stringify((await call("GET", "audit"))[1])).toContain(
		`cause of event ${EVENT} by job: deleted, before tool`,
	);
});

describe("the filter", () => {
	test.each([
		["thumbs:true", [ONE]],
		["thumbs:false", []],
		["tests_passed>=0.8", [TWO]],
		["tests_passed>0.75", [TWO]],
		["tests_passed<=0.75", [ONE]],
		["tests_passed:1", [TWO]],
		["tests_passed:1.0", [TWO]],
		["grade:1", [TWO]],
		["cause:tool", [ONE]],
		["none:cause", [TWO, OTHER]],
	])("%s finds conversations", async (score, ids) => {
		await set(...GIVEN);
		const [status, list] = await call("GET", `conversations?score=${encodeURIComponent(score)}`);
		const found = list.conversations.map(({ summary }: { readonly summary: { readonly id: string } }) => summary.id);
		expect([status, found.sort()]).toEqual([200, ids]);
		expect((await call("GET", `conversations/counts?score=${encodeURIComponent(score)}`))[1].total).toBe(ids.length);
	});

	test.each(["thumbs", "Thumbs:true", "tests_passed>=x", "none:a:b", "tests_passed>=", "none:a>1"])(
		"%s is refused",
		async (score) => {
			const [status, { detail }] = await call("GET", `conversations?score=${encodeURIComponent(score)}`);
			expect([status, detail]).toEqual([400, expect.stringMatching(/^score must be NAME:VALUE, /)]);
		},
	);

	test("is refused for what follows updates", async () => {
		const refusal = [400, { detail: expect.stringContaining("must be empty, because no update tells of scores") }];
		const unknown = { detail: 'query parameter "score" is not known' };
		expect(await call("GET", "updates:watch?score=thumbs:true")).toEqual([400, unknown]);
		const watch = readClient(service, "gRPC", KEY).watchConversationUpdates({ filter: { scores: ["thumbs:true"] } });
		await expect(watch[Symbol.asyncIterator]().next()).rejects.toMatchObject({ code: Code.InvalidArgument });
		const filter = { scores: ["thumbs:true"] };
		const endpoint = { name: "hook", url: "https://receiver.example/", changes: ["FINISHED"], filter };
		expect(await call("POST", "endpoints", endpoint)).toEqual(refusal);
		expect(await call("POST", "budgets", { name: "monthly", amount: 1, filter })).toEqual(refusal);
	});
});

test("an event whose id the store cuts has scores", async () => {
	const eventId = "\u{1f600}".repeat(200);
	const said = {
		id: eventId,
		timestamp: "2026-11-21T08:55:31",
		source: "agent",
		kind: "MessageEvent",
		llm_message: null,
	};
	const posted = await postWebhook(service, KEY, JSON.stringify([said]), {}, `${EVENT_WEBHOOK}/${TWO}`);
	expect(posted.status).toBe(200);
	expect(await set({ conversation_id: TWO ?? "", event_id: eventId, name: "long", value: 1 })).toEqual([
		200,
		{ changed: 1 },
	]);
	const query = new URLSearchParams({ event_id: eventId });
	expect(await call("DELETE", `conversations/${TWO}/scores/long?${query}`)).toEqual([200, {}]);
});

describe("a batch is refused as a whole", () => {
	const good = { conversation_id: ONE ?? "", name: "tests_passed", value: 0.1 };
	test.each<[status: number, detail: string, wrong: JsonObject, key?: string]>([
		[404, "scores[1].conversation_id names no conversation that is stored", { conversation_id: UNKNOWN }],
		[404, "scores[1].conversation_id names no conversation that is stored", { conversation_id: OTHER ?? "" }, RED],
		[404, "scores[1].event_id names no event that is stored", { event_id: "x" }],
		[400, "scores[1].value must be a number, as the earlier ones of its name are", { value: "good" }],
		[400, "scores[1].value must be a boolean, as the earlier ones of its name are", { name: "thumbs", value: 1 }],
		[
			400,
			"scores[1].value must be true, false, a category, or a number from -1000000000000000 to 1000000000000000",
			{ value: 1e16 },
		],
		[400, "scores[1].value must be a number, as the earlier ones of its name are", { value: "0.5" }],
		[400, "scores[1].value must be a category of 1 to 64 characters", { value: "x".repeat(65) }],
		[400, "scores[1].name must not be none or critic", { name: "critic" }],
		[400, "scores[1].conversation_id is not a UUID", { conversation_id: "x" }],
		[400, "scores[1].comment must have at most 4096 characters", { comment: "x".repeat(4_097) }],
		[400, "scores[1].source must be person or program", { source: "critic" }],
		[400, "scores[1].source must be one of SCORE_SOURCE_UNSPECIFIED, person, program, critic", { source: "dog" }],
	])("%i %s", async (status, detail, wrong, key = KEY) => {
		await set(...GIVEN);
		const first = key === RED ? { ...good, conversation_id: OTHER ?? "" } : good;
		const second = key === RED ? { ...good, conversation_id: ONE ?? "" } : { ...good, ...wrong };
		const [found, answer] = await call("POST", "scores", { scores: [first, second] }, key);
		if (wrong.source === "dog")
			expect([found, answer.detail]).toEqual([status, expect.stringContaining("scores[1].source must be one of")]);
		else expect([found, answer]).toEqual([status, { detail }]);
		const [, { scores }] = await call("GET", `scores?conversation_id=${ONE}&name=tests_passed`);
		expect(scores.map(({ value }: JsonObject) => value)).toEqual([0.75]);
	});
});

test("over gRPC scores are given by keys with the scope only, and to conversations of their owner", async () => {
	const client = (key: string) => clientOf(ScoreService, service, "gRPC", key);
	const value = { kind: { case: "boolValue" as const, value: true } };
	const scores = [{ conversationId: OTHER ?? "", name: "thumbs", value, source: ScoreSource.PERSON }];
	await expect(client(READER).setScores({ scores })).rejects.toMatchObject({ code: Code.PermissionDenied });
	expect(await client(RED).setScores({ scores })).toMatchObject({ changed: 1n });
	const { scores: listed } = await client(READER).listScores({ conversationId: OTHER ?? "" });
	expect(listed).toMatchObject([{ name: "thumbs", value, giver: "red", source: ScoreSource.PERSON }]);
	for (const act of [
		client(RED).listScores({ conversationId: ONE ?? "" }),
		client(RED).deleteScore({ conversationId: ONE ?? "", name: "thumbs", giver: "job" }),
	])
		await expect(act).rejects.toMatchObject({ code: Code.NotFound });
	expect((await client(RED).reportScores({ name: "thumbs" })).total).toMatchObject({ count: 1n, shareTrue: 1 });
	const list = await readClient(service, "gRPC", RED).listConversations({
		...{ orderBy: ConversationOrder.SCORE, orderScore: "thumbs", scoreNames: ["thumbs"] },
	});
	expect(list.conversations.map(({ summary, scores: of }) => [summary?.id, of.thumbs])).toMatchObject([[OTHER, value]]);
});

test.each(["JSON", ...PROTOCOLS] as const)(
	"1,000 scores with comments fit into one request over %s, and 1,001 do not",
	async (protocol) => {
		const value = { kind: { case: "numberValue" as const, value: 1 } };
		const giveOver = async (count: number) => {
			const scores = Array.from({ length: count }, (_, n) => ({
				name: `of.${protocol.toLowerCase().replaceAll(/[^a-z]/g, "")}.${n}`,
				comment: "x".repeat(100),
			}));
			if (protocol !== "JSON")
				return await clientOf(ScoreService, service, protocol, KEY).setScores({
					scores: scores.map((one) => ({ ...one, conversationId: TWO ?? "", value })),
				});
			const [status, answer] = await set(...scores.map((one) => ({ ...one, conversation_id: TWO ?? "", value: 1 })));
			if (status !== 200) throw new Error(answer.detail);
			return { changed: BigInt(answer.changed) };
		};
		expect(await giveOver(1_000)).toMatchObject({ changed: 1_000n });
		await expect(giveOver(1_001)).rejects.toThrow("scores must have 1 to 1000 entries");
	},
);
