import type { JsonObject } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ConversationService } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { clientOf, PROTOCOLS, postWebhook, reportClient } from "../../support/clients.ts";
import { object, record } from "../../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const READER = "reads-without-secrets";
const BASE = "/bridge";
const FIRST = "0190d6a0-0000-7000-8000-00000000000a";
const SECOND = "0190d6a0-0000-7000-8000-00000000000b";
const PARENT = "0190d6a0-0000-7000-8000-00000000000f";
const SOURCE = "0190d6a0-0000-7000-8000-00000000ffff";
const SECRET = "sk-test-1";

const format = new RecordFormat();
const first = record({
	id: FIRST,
	agent: { kind: "Agent", llm: { model: "m", api_key: SECRET } },
	title: "What? One",
	execution_status: "running",
	stats: {
		usage_to_metrics: { agent: { accumulated_cost: 0.5, accumulated_token_usage: { prompt_tokens: 7 } } },
	},
	created_at: "2026-01-01T00:00:00Z",
	updated_at: "2026-01-02T00:00:00.25Z",
	parent_conversation_id: PARENT,
	forked_from_conversation_id: SOURCE,
	tags: { team: "a:b", env: "x" },
	vendor_member: { x: [1, null] },
});
const second = record({ id: SECOND, updated_at: "2026-01-04T00:00:00Z", created_at: "2026-01-03T00:00:00Z" });

const firstSummary = {
	id: FIRST,
	title: "What? One",
	execution_status: "running",
	agent_kind: "Agent",
	model: "m",
	accumulated_cost: 0.5,
	tokens: {
		prompt_tokens: 7,
		completion_tokens: 0,
		cache_read_tokens: 0,
		cache_write_tokens: 0,
		reasoning_tokens: 0,
	},
	created_at: "2026-01-01T00:00:00Z",
	updated_at: "2026-01-02T00:00:00.250000Z",
	parent_conversation_id: PARENT,
	tags: { team: "a:b", env: "x" },
	event_count: 0,
	sender: "all",
	owner: "",
	run_started_at: "2026-01-02T00:00:00.250000Z",
	forked_from_conversation_id: SOURCE,
};
const secondSummary = {
	id: SECOND,
	execution_status: "idle",
	agent_kind: "ACPAgent",
	model: "",
	accumulated_cost: null,
	tokens: null,
	created_at: "2026-01-03T00:00:00Z",
	updated_at: "2026-01-04T00:00:00Z",
	tags: {},
	event_count: 0,
	sender: "all",
	owner: "",
};
const FIRST_ENTRY = { sequence: 1, has_record: true, summary: firstSummary };
const SECOND_ENTRY = { sequence: 2, has_record: true, summary: secondSummary };

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		BASE_PATH: BASE,
		ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
		ACCESS_KEYS: `all:${KEY}:ingest+read+secrets,reader:${READER}:read,sender:key-that-only-sends:ingest`,
	});
	for (const body of [first, second]) await post(JSON.stringify(body));
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

async function post(body: string | Uint8Array<ArrayBuffer>): Promise<void> {
	const response = await fetch(`${service.http}${BASE}/api/v1/webhooks/conversations`, {
		method: "POST",
		headers: { "X-Access-Token": KEY, "Content-Type": "application/json" },
		body,
	});
	expect(response.status).toBe(200);
}

/** Returns the JSON form in which a record is read, with `secret` in place of its secret. */
function returned(body: JsonObject, secret = "**********"): JsonObject {
	return object(format.toJson(format.fromJson(JSON.parse(JSON.stringify(body).replaceAll(SECRET, secret)))));
}

function request(path: string, key: string | undefined = READER, method = "GET"): Promise<Response> {
	const headers = key === undefined ? undefined : { "X-Access-Token": key };
	return fetch(`${service.http}${BASE}/api/v1/conversations${path}`, { method, ...(headers && { headers }) });
}

/** Returns the status and the body of a response. */
async function get(path: string, key?: string): Promise<[number, unknown]> {
	const response = await request(path, key);
	expect(response.headers.get("Content-Type")).toBe("application/json");
	return [response.status, await response.json()];
}

test("a record is returned in the JSON form of the webhook", async () => {
	expect(await get(`/${FIRST}`)).toEqual([200, returned(first)]);
	expect(await get(`/${FIRST.toUpperCase().replaceAll("-", "")}`)).toEqual([200, returned(first)]);
	expect(await get(`/%7B${SECOND}%7D?sequence=2`)).toEqual([200, returned(second)]);
});

test("HEAD returns the same as GET, without the body", async () => {
	const response = await request(`/${FIRST}`, READER, "HEAD");
	expect([response.status, await response.text()]).toEqual([200, ""]);
	expect(response.headers.get("Content-Length")).toBe(String(JSON.stringify(returned(first)).length));
});

test("secrets are shown in the requested form", async () => {
	expect(await get(`/${FIRST}?secrets=plaintext`, KEY)).toEqual([200, returned(first, SECRET)]);
	const [status, encrypted] = await get(`/${FIRST}?secrets=encrypted`);
	const ciphertext = expect.stringMatching(/^enc:v1:/);
	expect([status, encrypted]).toMatchObject([200, { agent: { llm: { api_key: ciphertext } } }]);
});

test("the list returns summaries or whole records, with the newest update first", async () => {
	expect(await get("")).toEqual([
		200,
		{ conversations: [SECOND_ENTRY, FIRST_ENTRY], next_page_token: "", total_size: 2 },
	]);
	expect(await get("?view=full")).toEqual([
		200,
		{
			conversations: [
				{ ...SECOND_ENTRY, conversation: returned(second) },
				{ ...FIRST_ENTRY, conversation: returned(first) },
			],
			next_page_token: "",
			total_size: 2,
		},
	]);
});

test.each([
	["", 2],
	["agent_kind=Agent", 1],
	["execution_status=running&execution_status=idle", 2],
	["execution_status_not=deleting&tag_key=team", undefined],
	["updated_from=2026-01-01T00:00:00Z", undefined],
])("the first page of a list by %s tells its whole size if counts that are kept tell it", async (search, total) => {
	const [, page] = await get(`?page_size=1&${search}`);
	const { next_page_token: token, total_size: found } = object(JSON.parse(JSON.stringify(page)));
	// All that is on the first page is known without counts.
	expect(found).toBe(token === "" ? 1 : total);
	if (token === "") return;
	const [, next] = await get(`?page_size=1&${search}&page_token=${token}`);
	expect(next).not.toHaveProperty("total_size");
});

test("the list as CSV has the same entries, and a link to its next page", async () => {
	const csv = async (search: string) => {
		const headers = { "X-Access-Token": READER, Accept: "text/csv" };
		const response = await fetch(`${service.http}${BASE}/api/v1/conversations?${search}`, { headers });
		const next = /^<(\?.*)>; rel="next"$/.exec(response.headers.get("Link") ?? "")?.[1];
		return { status: response.status, type: response.headers.get("Content-Type"), text: await response.text(), next };
	};
	const header =
		"id,title,execution_status,agent_kind,model,sender,owner,created_at,updated_at,last_activity_at,cost,prompt_tokens," +
		"completion_tokens,cache_read_tokens,cache_write_tokens,reasoning_tokens,events,gaps,parent_conversation_id," +
		"forked_from_conversation_id,tags,error_code,error,first_message,last_message,unreadable";
	const firstLine =
		`${FIRST},What? One,running,Agent,m,all,,2026-01-01T00:00:00Z,2026-01-02T00:00:00.250000Z,,0.5,7,0,0,0,0,0,0,` +
		`${PARENT},${SOURCE},"{""team"":""a:b"",""env"":""x""}",,,,,`;
	const secondLine = `${SECOND},,idle,ACPAgent,,all,,2026-01-03T00:00:00Z,2026-01-04T00:00:00Z,,,,,,,,0,0,,,,,,,,`;
	const type = "text/csv; charset=utf-8";
	expect(await csv("order_by=created")).toEqual({
		...{ status: 200, type, next: undefined },
		text: `${[header, secondLine, firstLine].join("\r\n")}\r\n`,
	});
	const page = await csv("order_by=created&page_size=1");
	expect(page).toMatchObject({ status: 200, type, text: `${header}\r\n${secondLine}\r\n` });
	expect(page.next).toMatch(/^\?order_by=created&page_size=1&page_token=/);
	expect(await csv(page.next?.slice(1) ?? "")).toMatchObject({
		next: undefined,
		text: `${header}\r\n${firstLine}\r\n`,
	});
	expect(await csv("view=full")).toMatchObject({
		status: 400,
		text: '{"detail":"view must be summary for CSV"}',
	});
});

test("over each protocol, what was not reported is told apart from a reported 0", async () => {
	await using own = await startTestService();
	const ids = ["none", "empty", "free", "tokens"].map((_, n) => `0190d6a0-0000-7000-8000-00000000010${n}`);
	const usage = { accumulated_token_usage: { prompt_tokens: 5 } };
	const metrics = [undefined, {}, { agent: { accumulated_cost: 0 } }, { agent: usage }];
	for (const [n, usage_to_metrics] of metrics.entries()) {
		const stats = usage_to_metrics === undefined ? {} : { stats: { usage_to_metrics } };
		const body = JSON.stringify(record({ id: ids[n] ?? "", ...stats }));
		expect((await postWebhook(own, KEY, body)).status).toBe(200);
	}
	// An absent accumulated_cost has the default of the record.
	const expected = [
		[undefined, undefined],
		[undefined, undefined],
		[0, undefined],
		[0, 5n],
	];
	for (const protocol of PROTOCOLS) {
		const client = clientOf(ConversationService, own, protocol, KEY);
		const { conversations } = await client.listConversations({ filter: { ids } });
		const shown = new Map(
			conversations.map(({ summary }) => [summary?.id, [summary?.accumulatedCost, summary?.tokens?.promptTokens]]),
		);
		expect([protocol, ids.map((id) => shown.get(id))]).toEqual([protocol, expected]);
	}
	const list = async (search: string, accept = "application/json") => {
		const headers = { "X-Access-Token": KEY, Accept: accept };
		return await (await fetch(`${own.http}/api/v1/conversations?${search}`, { headers })).text();
	};
	const cells = (await list("order_by=cost", "text/csv")).trimEnd().split("\r\n").slice(1);
	const shown = cells.map((line) => line.split(",")).map((line) => [line[0], line[10], line[11]]);
	expect(shown).toEqual([
		[ids[3], "0", "5"],
		[ids[2], "0", ""],
		[ids[1], "", ""],
		[ids[0], "", ""],
	]);
	for (const order of ["cost", "tokens"]) {
		const first = JSON.parse(await list(`order_by=${order}&page_size=2`));
		const rest = JSON.parse(await list(`order_by=${order}&page_size=2&page_token=${first.next_page_token}`));
		const found = [...first.conversations, ...rest.conversations].map(({ summary }) => summary.id);
		expect(found).toEqual([ids[3], ids[2], ids[1], ids[0]]);
	}
});

test.each([
	["", '{"counts":[],"total":2}'],
	["group_by=status", '{"counts":[{"status":"idle","count":1},{"status":"running","count":1}],"total":2}'],
	["group_by=agent_kind&agent_kind=Agent", '{"counts":[{"agent_kind":"Agent","count":1}],"total":1}'],
	["group_by=tag:team", '{"counts":[{"tag:team":"a:b","count":1}],"total":2}'],
	["group_by=tag_key&tag_key=env", '{"counts":[{"tag_key":"env","count":1},{"tag_key":"team","count":1}],"total":1}'],
])("conversations are counted by %s", async (search, expected) => {
	expect(await get(`/counts?${search}`)).toEqual([200, JSON.parse(expected)]);
});

test.each(PROTOCOLS)("conversations are counted over %s", async (protocol) => {
	const reports = reportClient(service, protocol, READER);
	const counted = async (request: Parameters<typeof reports.countConversations>[0]) => {
		const { counts, total } = await reports.countConversations(request);
		return [counts.map(({ value, count }) => [value, count]), total];
	};
	const statuses = [
		["idle", 1n],
		["running", 1n],
	];
	expect(await counted({})).toEqual([[], 2n]);
	expect(await counted({ groupBy: "status" })).toEqual([statuses, 2n]);
	expect(await counted({ groupBy: "tag:team", filter: { agentKind: "Agent" } })).toEqual([[["a:b", 1n]], 1n]);
	expect(await counted({ groupBy: "sender", filter: { sender: "none" } })).toEqual([[], 0n]);
	const refused = async (request: Parameters<typeof reports.countConversations>[0], message: string) =>
		expect(reports.countConversations(request)).rejects.toMatchObject({
			code: Code.InvalidArgument,
			rawMessage: message,
		});
	await refused({ groupBy: "title" }, "group_by must be status, agent_kind, model, sender, owner, tag_key or tag:KEY");
	await refused({ filter: { parentConversationId: "x" } }, "filter.parent_conversation_id is not a UUID");
});

test.each([
	["updated", SECOND_ENTRY],
	["activity", SECOND_ENTRY],
	["created", SECOND_ENTRY],
	["cost", FIRST_ENTRY],
	["tokens", FIRST_ENTRY],
])("the list by %s begins with the largest value, and is paged in this order only", async (order, first) => {
	const [, page] = await get(`?order_by=${order}&page_size=1`);
	const { next_page_token: token, ...rest } = object(JSON.parse(JSON.stringify(page)));
	expect(rest).toEqual({ conversations: [first], total_size: 2 });
	const other = first === FIRST_ENTRY ? SECOND_ENTRY : FIRST_ENTRY;
	const next = [200, { conversations: [other], next_page_token: "" }];
	expect(await get(`?order_by=${order}&page_size=1&page_token=${token}`)).toEqual(next);
	expect(await get(`?order_by=${order === "cost" ? "tokens" : "cost"}&page_token=${token}`)).toEqual([
		400,
		{ detail: "page_token is not valid for this list and filter" },
	]);
});

test.each<[string, "first" | "second" | "both" | "none"]>([
	["model=m", "first"],
	[`forked_from_conversation_id=${SOURCE.toUpperCase()}`, "first"],
	[`forked_from_conversation_id=${PARENT}`, "none"],
	["tag=team:a:b", "first"],
	["tag=team:a:b&tag=env:x", "first"],
	["tag_key=env", "first"],
	["created_from=2026-01-03T00:00:00Z", "second"],
	["updated_from=2026-01-02T00:00:00.25Z&updated_to=2026-01-04T00:00:00.000001Z", "both"],
	["title_contains=T?%20o", "first"],
	["execution_status=running&execution_status=idle", "both"],
	["execution_status_not=running&execution_status_not=deleting", "second"],
	["activity_from=2026-01-03T00:00:00Z", "second"],
	["activity_to=2026-01-03T00:00:00Z", "first"],
	["cost_from=-1&cost_to=5e-1", "none"],
	["has_error=true", "none"],
	["has_error=false", "both"],
	["sender=reader", "none"],
	["owner=red", "none"],
	["has_gaps=true", "none"],
	["has_gaps=false", "both"],
	[`id=${SECOND}&id=${FIRST}&id=${SECOND}`, "both"],
	["title_contains=&model=&tag_key=&page_token=", "both"],
])("the list by %s has the matching conversations", async (search, expected) => {
	const entries = { first: [FIRST_ENTRY], second: [SECOND_ENTRY], both: [SECOND_ENTRY, FIRST_ENTRY], none: [] };
	const page = { conversations: entries[expected], next_page_token: "", total_size: entries[expected].length };
	expect(await get(`?${search}`)).toEqual([200, page]);
});

test.each([
	["?execution_status=asleep", "execution_status is not a known status"],
	["?agent_kind=acp", "agent_kind must be ACPAgent or Agent"],
	["?parent_conversation_id=x", "parent_conversation_id is not a UUID"],
	[`?${Array.from({ length: 33 }, (_, n) => `tag=k${n}:v`).join("&")}`, "tag must have at most 32 entries"],
	["?tag=team", "tag must have the form key:value"],
	[`/${FIRST}?sequence=0`, "sequence must be at least 1"],
	["/not-a-uuid", "id is not a UUID"],
])("GET %s is refused", async (path, detail) => {
	expect(await get(path)).toEqual([400, { detail }]);
});

test("an unknown conversation, sequence or path is not found", async () => {
	expect(await get(`/${PARENT}`)).toEqual([404, { detail: "There is no such conversation" }]);
	const detail = "There was no such conversation at that sequence";
	expect(await get(`/${SECOND}?sequence=1`)).toEqual([404, { detail }]);
	expect(await get("/")).toEqual([404, { detail: "Not Found" }]);
	expect(await get(`/${FIRST}/more`)).toEqual([404, { detail: "Not Found" }]);
});

test("reads need a key with the scope read, and other methods are not allowed", async () => {
	for (const path of ["", `/${FIRST}`]) {
		expect(await get(path, "key-that-only-sends")).toEqual([
			403,
			{ detail: 'The access key or client certificate lacks the scope "read"' },
		]);
		expect(await get(path, "unknown")).toEqual([401, { detail: "The access key is not known" }]);
		const keyless = await fetch(`${service.http}${BASE}/api/v1/conversations${path}`);
		expect([keyless.status, await keyless.json()]).toEqual([401, { detail: "The access key is missing" }]);
		const response = await request(path, KEY, "PATCH");
		const allowed = path === "" ? "GET, HEAD" : "GET, HEAD, DELETE";
		expect([response.status, response.headers.get("Allow")]).toEqual([405, allowed]);
	}
});
