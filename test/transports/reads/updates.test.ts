import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVENT_WEBHOOK, postWebhook } from "../../support/clients.ts";
import { object, record } from "../../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const ID = "0190d6a0-0000-7000-8000-00000000000a";
const OTHER = "0190d6a0-0000-7000-8000-00000000000b";
const first = record({
	id: ID,
	title: "one",
	updated_at: "2026-01-01T00:00:01Z",
});
const second = { ...first, title: "two", updated_at: "2026-01-01T00:00:02Z" };

let service: TestService;

beforeAll(async () => {
	service = await startTestService();
	for (const body of [record({ id: OTHER }), first, second])
		expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
	const finished = `[{"id":"1","timestamp":"2026-01-01T00:00:03","source":"environment",
		"kind":"ConversationStateUpdateEvent","key":"execution_status","value":"finished"}]`;
	expect((await postWebhook(service, KEY, finished, {}, `${EVENT_WEBHOOK}/${ID}`)).status).toBe(200);
});

afterAll(() => service[Symbol.asyncDispose]());

async function get(path: string): Promise<[number, JsonObject]> {
	const response = await fetch(`${service.http}/api/v1/conversations/${path}`, { headers: { "X-Access-Token": KEY } });
	expect(response.headers.get("Content-Type")).toBe("application/json");
	return [response.status, object(JSON.parse(await response.text()))];
}

async function updates(search: string): Promise<JsonObject[]> {
	const [status, { updates: list, next_page_token: token }] = await get(`${ID}/updates?${search}`);
	expect([status, token]).toEqual([200, ""]);
	if (!Array.isArray(list)) throw new TypeError("no list of updates");
	return list.map(object);
}

test("the updates of a conversation have names as in the record, the changed fields and the summaries", async () => {
	const [posted, changed, events, ...others] = await updates("");
	const received_at = expect.stringMatching(/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$/);
	const common = { conversation_id: ID, current: true, received_at, sender: "test" };
	const summary = (members: JsonObject) => expect.objectContaining({ id: ID, agent_kind: "ACPAgent", ...members });
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

test("the list is paged, and selects by origin and by sequence", async () => {
	const sequences = async (search: string) => (await updates(search)).map(({ sequence }) => sequence);
	expect(await sequences("after_sequence=2")).toEqual([3, 4]);
	expect(await sequences("origin=posted")).toEqual([2, 3]);
	expect(await sequences("origin=events")).toEqual([4]);
	const [, { next_page_token: token }] = await get(`${ID}/updates?page_size=2`);
	expect(await sequences(`page_size=2&page_token=${String(token)}`)).toEqual([4]);
});

test("a start beyond the newest update is refused", async () => {
	const detail = "after_sequence 9 is beyond the newest sequence, which is 4: it comes from another store";
	expect(await get(`${ID}/updates?after_sequence=9`)).toEqual([410, { detail }]);
});
