import { afterAll, beforeAll, expect, test } from "vitest";
import { EVENT_WEBHOOK, postWebhook } from "../../support/clients.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const READER = "reads-without-secrets";
const ID = "0190d6a0-0000-7000-8000-00000000000a";
const OTHER = "0190d6a0-0000-7000-8000-00000000000b";
const SECRET = "sk-test-of-an-event";
/** Events as they are sent. Their members are in different orders, and one number is not exact as a double. */
const TEXTS = [
	`{"id":"1","timestamp":"1970-01-01T00:00:01","source":"agent","kind":"MessageEvent","z":12345678901234567890,"a":[null,{}]}`,
	`{"kind":"ActionEvent","id":"2","source":"user","timestamp":"1970-01-01T00:00:02.5","parent_id":null,"api_key":"${SECRET}"}`,
	`{"id":"3","timestamp":"1970-01-01T00:00:03Z","source":"hook","kind":"HookEvent","parent_id":"2"}`,
];

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
		ACCESS_KEYS: `all:${KEY}:ingest+read+secrets,reader:${READER}:read`,
	});
	await keep(OTHER, TEXTS[0] ?? "");
	await keep(ID, ...TEXTS);
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

async function keep(id: string, ...texts: string[]): Promise<void> {
	const response = await postWebhook(service, KEY, `[${texts.join(",")}]`, {}, `${EVENT_WEBHOOK}/${id}`);
	expect(response.status).toBe(200);
}

/** Returns the status and the text of a response. */
async function get(path: string, key = READER): Promise<[number, string]> {
	const response = await fetch(`${service.http}/api/v1/conversations/${path}`, { headers: { "X-Access-Token": key } });
	expect(response.headers.get("Content-Type")).toBe("application/json");
	return [response.status, await response.text()];
}

/** Returns the texts of the events of a response, and its page token. */
async function events(search: string, key?: string, id = ID): Promise<[string[], string]> {
	const [status, text] = await get(`${id}/events?${search}`, key);
	expect([status, text]).toEqual([200, expect.stringMatching(/^\{"events":\[.*\],"next_page_token":"[^"]*"\}$/)]);
	const entries = text.matchAll(
		/\{"sequence":\d+,"received_at":"[^"]+","happened_at":"[^"]+","sender":"all","event":(.*?)\}(?=,\{"sequence"|\],"next)/g,
	);
	return [[...entries].map(([, event]) => event ?? ""), /"next_page_token":"(.*)"/.exec(text)?.[1] ?? ""];
}

const redacted = TEXTS.map((text) => text.replace(SECRET, "**********"));

test("events are returned as they were sent, with the times when they were received and happened", async () => {
	const [status, text] = await get(`${ID}/events`);
	const [receivedAt] = /(?<="received_at":")[^"]+/.exec(text) ?? [];
	const entry = (sequence: number, happenedAt: string, event = "") =>
		`{"sequence":${sequence},"received_at":"${receivedAt}","happened_at":"${happenedAt}","sender":"all","event":${event}}`;
	expect([status, text]).toEqual([
		200,
		`{"events":[${[
			entry(2, "1970-01-01T00:00:01Z", redacted[0]),
			entry(3, "1970-01-01T00:00:02.500000Z", redacted[1]),
			entry(4, "1970-01-01T00:00:03Z", redacted[2]),
		]}],"next_page_token":""}`,
	]);
	expect(Math.abs(Date.parse(receivedAt ?? "") - Date.now())).toBeLessThan(600_000);
});

test("secrets are shown in the requested form, in plain text only to a key with the scope secrets", async () => {
	expect(await events("secrets=plaintext", KEY)).toEqual([TEXTS, ""]);
	expect((await events("secrets=encrypted"))[0][1]).toMatch(/"api_key":"enc:v1:/);
	expect(await get(`${ID}/events?secrets=plaintext`)).toEqual([
		403,
		'{"detail":"The access key or client certificate lacks the scope \\"secrets\\""}',
	]);
});

test("the list is paged from the newest event, and the token is refused in another order", async () => {
	const [first, token] = await events("order=newest_first&page_size=2");
	expect(first).toEqual([redacted[2], redacted[1]]);
	expect(await events(`order=newest_first&page_token=${token}`)).toEqual([[redacted[0]], ""]);
	expect((await get(`${ID}/events?page_token=${token}`))[0]).toBe(400);
});

test.each<[string, number[]]>([
	["after_sequence=3", [2]],
	["source=user&source=hook", [1, 2]],
	["happened_from=1970-01-01T00:00:02Z&happened_to=1970-01-01T00:00:03Z", [1]],
	["before_sequence=3", [0]],
	["kind_not=MessageEvent&kind_not=other", [1, 2]],
	["event_id=2", [1]],
])("the list by %s has the matching events", async (search, expected) => {
	expect(await events(search)).toEqual([expected.map((index) => redacted[index]), ""]);
});

test("the id may be in upper case and without hyphens", async () => {
	expect((await events("", READER, OTHER.toUpperCase().replaceAll("-", "")))[0]).toEqual(redacted.slice(0, 1));
});

test("a start beyond the newest event is refused, and so are more than 32 kinds", async () => {
	const detail = "after_sequence 9 is beyond the newest sequence, which is 4: it comes from another store";
	expect(await get(`${ID}/events?after_sequence=9`)).toEqual([410, JSON.stringify({ detail })]);
	expect(await get(`${ID}/events?${"kind=x&".repeat(33)}`)).toEqual([
		400,
		'{"detail":"kind must have at most 32 values"}',
	]);
});
