import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { EVENT_WEBHOOK, postWebhook } from "../../support/clients.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const ID = "0190d6a0-0000-7000-8000-00000000000a";
const OTHER_KEY = "key-of-another-sender";
const READER = "key-that-only-reads";
const OAUTH = "/bridge/api/v1/webhooks/mcp-oauth-state";
const CANARY = "canary-of-a-token";

let service: TestService;
let logged = 0;

beforeAll(async () => {
	service = await startTestService({
		BASE_PATH: "/bridge",
		ACCESS_KEYS: `all:${KEY}:ingest+read,other:${OTHER_KEY}:ingest,reader:${READER}:read`,
		MAX_BODY_BYTES: "20000",
	});
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

beforeEach(() => {
	logged = service.log().length;
});

/** Returns the lines logged since the test began, without the fields that differ from run to run. */
function lines(): unknown[] {
	const parsed = service.log().slice(logged).split("\n").filter(Boolean);
	return parsed.map((line) => {
		const { time: _, pid: __, hostname: ___, msg: ____, requestId, ...rest } = JSON.parse(line);
		expect(requestId).toMatch(/^[0-9a-f-]{36}$/);
		return rest;
	});
}

const event = (id: string) => ({ id, timestamp: "2026-11-21T08:55:31.25", source: "agent", kind: "MessageEvent" });

/** Posts a body. Returns the status and the body of the response. */
async function post(path: string, body: string, key = KEY, headers = {}): Promise<[number, unknown]> {
	const response = await postWebhook(service, key, body, headers, path);
	return [response.status, await response.json()];
}

const postEvents = (id: string, events: unknown) => post(`/bridge${EVENT_WEBHOOK}/${id}`, JSON.stringify(events));

async function eventIds(): Promise<unknown> {
	const headers = { "X-Access-Token": KEY };
	const response = await fetch(`${service.http}/bridge/api/v1/conversations/${ID}/events`, { headers });
	const { events }: { events: { event: { id: string } }[] } = JSON.parse(await response.text());
	return events.map((entry) => entry.event.id);
}

test("batches are stored in order, with any form of the conversation id, and a repeated event only once", async () => {
	const success = [200, { success: true }];
	expect(await postEvents(ID.replaceAll("-", ""), [event("1"), event("2")])).toEqual(success);
	expect(await postEvents(ID.toUpperCase(), [event("2"), event("3")])).toEqual(success);
	expect(await eventIds()).toEqual(["1", "2", "3"]);
});

test("an id in the path that is no UUID is refused as a violation of the path", async () => {
	expect(await postEvents("not-a-uuid", [event("1")])).toEqual([
		422,
		{
			detail: [
				{
					type: "uuid_parsing",
					loc: ["path", "conversation_id"],
					msg: "Input should be a valid UUID",
					ctx: { error: "not a UUID" },
				},
			],
		},
	]);
});

test("OAuth state is refused unread", async () => {
	const tokens = JSON.stringify({ server: "s", access_token: CANARY });
	const refused = [404, { detail: "This service does not keep the OAuth state of MCP servers" }];
	for (const key of [KEY, KEY, OTHER_KEY, KEY, OTHER_KEY]) expect(await post(OAUTH, tokens, key)).toEqual(refused);
	// This body is neither JSON nor small enough, but it is not read.
	expect(await post(OAUTH, "x".repeat(30_000), KEY, { "Content-Type": "text/plain" })).toEqual(refused);
	const line = (caller: string) => ({
		level: "warn",
		event: "request_refused",
		transport: "http",
		operation: `POST ${OAUTH}`,
		caller,
		kind: "not_found",
		detail: "This service does not keep the OAuth state of MCP servers",
	});
	expect(lines()).toEqual(["all", "all", "other", "all", "other", "all"].map(line));
	expect(service.log()).not.toContain(CANARY);
});

test("OAuth state from a caller without the scope ingest is refused as such, and each attempt is logged", async () => {
	const unknown = [401, { detail: "The access key is not known" }];
	for (let count = 0; count < 2; count++) expect(await post(OAUTH, "{}", "unknown")).toEqual(unknown);
	expect((await post(OAUTH, "{}", READER))[0]).toBe(403);
	expect(lines()).toHaveLength(3);
});
