import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVENT_WEBHOOK, postWebhook } from "../../support/clients.ts";
import { object, record } from "../../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const READER = "reads-without-secrets";
const ID = "0190d6a0-0000-7000-8000-00000000000a";
const OTHER = "0190d6a0-0000-7000-8000-00000000000b";
const first = record({
	id: ID,
	title: "one",
	agent: { kind: "Agent", llm: { model: "m", api_key: "sk-test-1" } },
	vendor_member: { x: [1, null] },
	updated_at: "2026-01-01T00:00:01Z",
});
const second = { ...first, title: "two", updated_at: "2026-01-01T00:00:02Z" };

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
		ACCESS_KEYS: `all:${KEY}:ingest+read+secrets,reader:${READER}:read`,
	});
	for (const body of [record({ id: OTHER }), first, second])
		expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
	const finished = `[{"id":"1","timestamp":"2026-01-01T00:00:03","source":"environment",
		"kind":"ConversationStateUpdateEvent","key":"execution_status","value":"finished"}]`;
	expect((await postWebhook(service, KEY, finished, {}, `${EVENT_WEBHOOK}/${ID}`)).status).toBe(200);
});

afterAll(() => service[Symbol.asyncDispose]());

async function get(path: string, key = READER): Promise<[number, JsonObject]> {
	const response = await fetch(`${service.http}/api/v1/conversations/${path}`, { headers: { "X-Access-Token": key } });
	expect(response.headers.get("Content-Type")).toBe("application/json");
	return [response.status, object(JSON.parse(await response.text()))];
}

async function updates(search: string, key?: string, id = ID): Promise<JsonObject[]> {
	const [status, { updates: list, next_page_token: token }] = await get(`${id}/updates?${search}`, key);
	expect([status, token]).toEqual([200, ""]);
	if (!Array.isArray(list)) throw new TypeError("no list of updates");
	return list.map(object);
}

test("the updates of a conversation have names as in the record, the changed fields and the summaries", async () => {
	const [posted, changed, events, ...others] = await updates("");
	const received_at = expect.stringMatching(/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/);
	const common = { conversation_id: ID, current: true, received_at, sender: "all" };
	const summary = (members: JsonObject) => expect.objectContaining({ id: ID, agent_kind: "Agent", ...members });
	expect(others).toEqual([]);
	expect(posted).toEqual({
		...common,
		sequence: 2,
		change: "started",
		origin: "posted",
		summary: summary({ title: "one", execution_status: "idle" }),
	});
	expect(changed).toEqual({
		...common,
		sequence: 3,
		change: "updated",
		origin: "posted",
		changed_fields: ["title", "updated_at"],
		summary: summary({ title: "two", execution_status: "idle" }),
	});
	expect(events).toEqual({
		...common,
		sequence: 4,
		change: "finished",
		origin: "events",
		changed_fields: ["execution_status"],
		summary: summary({ title: "two", execution_status: "finished" }),
	});
});

test("the full view has the records in the webhook's form, with secrets only for keys with the scope secrets", async () => {
	const records = async (search: string, key?: string) =>
		(await updates(`view=full&${search}`, key)).map(({ conversation }) => object(conversation));
	const [, current] = await get(ID, READER);
	expect((await records(""))[2]).toEqual(current);
	expect(await records("secrets=plaintext", KEY)).toMatchObject([
		{ title: "one", agent: { llm: { api_key: "sk-test-1" } }, vendor_member: { x: [1, null] } },
		{ title: "two", agent: { llm: { api_key: "sk-test-1" } } },
		{ title: "two", execution_status: "finished" },
	]);
	expect(await get(`${ID}/updates?view=full&secrets=plaintext`)).toEqual([
		403,
		{ detail: 'The access key or client certificate lacks the scope "secrets"' },
	]);
});

test("the list is paged, and selects by origin and by sequence", async () => {
	const sequences = async (search: string) => (await updates(search)).map(({ sequence }) => sequence);
	expect(await sequences("after_sequence=2")).toEqual([3, 4]);
	expect(await sequences("origin=posted")).toEqual([2, 3]);
	expect(await sequences("origin=events")).toEqual([4]);
	const [, page] = await get(`${ID}/updates?page_size=2`);
	const token = String(page.next_page_token);
	expect(await sequences(`page_size=2&page_token=${token}`)).toEqual([4]);
	expect(await get(`${ID}/updates?origin=posted&page_token=${token}`)).toEqual([
		400,
		{ detail: "page_token is not valid for this list and filter" },
	]);
	expect(await updates("", READER, "0190d6a0-0000-7000-8000-00000000000c")).toEqual([]);
});

test.each([
	["?color=red", 400, 'query parameter "color" is not known'],
	["?after_sequence=-1", 400, "after_sequence must be a whole number, 0 or more"],
	["?after_sequence=9", 410, "after_sequence 9 is beyond the newest sequence, which is 4: it comes from another store"],
	["?page_size=x", 400, "page_size must be a whole number, 0 or more"],
	["?page_token=x", 400, "page_token is not valid for this list and filter"],
	["?view=x", 400, "view must be one of summary, full"],
	["?origin=x", 400, "origin must be one of posted, events, reconciled"],
	["?secrets=x", 400, "secrets must be one of redacted, encrypted, plaintext"],
])("the query %s is refused", async (search, status, detail) => {
	expect(await get(`${ID}/updates${search}`)).toEqual([status, { detail }]);
});

test("an id that is no UUID is refused", async () => {
	expect(await get("x/updates")).toEqual([400, { detail: "id is not a UUID" }]);
});
