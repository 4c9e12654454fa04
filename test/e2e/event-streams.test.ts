import { once } from "node:events";
import { request } from "node:http";
import type { JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { accessKeyClient, EVENT_WEBHOOK, postWebhook } from "../support/clients.ts";
import { EventStream } from "../support/event-stream.ts";
import { object, record } from "../support/fixtures.ts";
import { scrape } from "../support/scrape.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const [READER, SENDER] = ["reads-without-secrets", "key-that-only-sends"];
const ENV = {
	ACCESS_KEYS: [
		`all:${KEY}:ingest+read+secrets+metrics+keys`,
		`reader:${READER}:read`,
		`sender:${SENDER}:ingest`,
	].join(),
	ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
};
const [A, B] = ["0190d6a0-0000-7000-8000-00000000000a", "0190d6a0-0000-7000-8000-00000000000b"];
const SECRET = "sk-test-of-a-stream";
const UPDATES = "/api/v1/updates:watch";
const EVENTS = "/api/v1/events:watch";

let minute = 0;

/** Stores the next version of a conversation's record. */
async function post(service: TestService, id: string, members: JsonObject = {}): Promise<void> {
	minute += 1;
	const updatedAt = new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString();
	const body = record({ id, created_at: "2026-01-01T00:00:00Z", updated_at: updatedAt, ...members });
	expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
}

async function postEvents(service: TestService, id: string, texts: readonly string[]): Promise<void> {
	const response = await postWebhook(service, KEY, `[${texts.join(",")}]`, {}, `${EVENT_WEBHOOK}/${id}`);
	expect(response.status).toBe(200);
}

const eventText = (id: string | number, kind = "MessageEvent") =>
	`{"id":"${id}","timestamp":"2026-01-01T00:00:01","source":"agent","kind":"${kind}"}`;

/** Returns the entries of a list, as JSON texts. */
async function listed(service: TestService, path: string): Promise<JsonObject> {
	const response = await fetch(`${service.http}/api/v1/conversations/${path}`, { headers: { "X-Access-Token": KEY } });
	return object(JSON.parse(await response.text()));
}

const dataOf = (events: readonly { data: string }[]): unknown[] => events.map(({ data }) => JSON.parse(data));
const idsOf = (events: readonly { id: string }[]): string[] => events.map(({ id }) => id);

describe("a stream", () => {
	let service: TestService;

	beforeAll(async () => {
		service = await startTestService(ENV);
		const llm = { model: "m", api_key: SECRET };
		await post(service, A, { title: "first", agent: { kind: "Agent", llm }, vendor_member: { x: [1, null] } });
		await post(service, B, { execution_status: "running" });
		await post(service, A, { title: "line\nbreak", agent: { kind: "Agent", llm }, execution_status: "finished" });
		// Line breaks between tokens.
		await postEvents(service, A, [eventText(1), eventText(2, "ActionEvent").replaceAll(",", ",\r\n\t")]);
		await postEvents(service, B, [eventText(1)]);
	});

	afterAll(() => service[Symbol.asyncDispose]());

	test.each([
		["summaries", ""],
		["whole records", "&view=full"],
		["whole records with secrets", "&view=full&secrets=plaintext"],
	])("of updates has the entries of the list as JSON: %s", async (_, view) => {
		using stream = await EventStream.open(service, KEY, `${UPDATES}?after_sequence=0&conversation_id=${A}${view}`);
		expect([stream.response.status, stream.response.headers.get("Content-Type")]).toEqual([200, "text/event-stream"]);
		expect(stream.response.headers.get("Cache-Control")).toBe("no-store");
		const events = await stream.take(2);
		const { updates } = await listed(service, `${A}/updates?${view.slice(1)}`);
		expect(dataOf(events)).toEqual(updates);
		expect(events.map(({ id, type }) => [id, type])).toEqual([
			["1", "message"],
			["3", "message"],
		]);
		expect(events[0]?.data.includes(SECRET)).toBe(view.includes("plaintext"));
	});

	test("of events has the entries of the lists as JSON, with their conversations", async () => {
		using stream = await EventStream.open(service, READER, `${EVENTS}?after_sequence=0`);
		const events = await stream.take(3);
		const entries = await Promise.all(
			[A, B].map(async (id) => {
				const { events: list } = await listed(service, `${id}/events`);
				return Array.isArray(list) ? list.map((entry) => ({ ...object(entry), conversation_id: id })) : [];
			}),
		);
		expect(dataOf(events)).toEqual(entries.flat());
		expect(idsOf(events)).toEqual(["1", "2", "3"]);
	});

	test("begins with new entries, and its first message says where a client resumes", async () => {
		using stream = await EventStream.open(service, READER, EVENTS);
		expect(await stream.heartbeat()).toBe("3");
		await postEvents(service, B, [eventText("late")]);
		expect(idsOf(await stream.take(1))).toEqual(["4"]);
	});

	test.each<[string, string[]]>([
		[`${UPDATES}?after_sequence=0&execution_status=running&execution_status=finished`, ["2", "3"]],
		[`${UPDATES}?after_sequence=1&conversation_id=${A.toUpperCase()}&agent_kind=Agent`, ["3"]],
		[`${EVENTS}?after_sequence=0&kind_not=MessageEvent&source=agent&happened_from=2026-01-01T00:00:01Z`, ["2"]],
	])("%s has the entries that the filter selects, and then passes the others", async (path, expected) => {
		using stream = await EventStream.open(service, READER, path);
		const events = await stream.take(expected.length);
		const through = await stream.heartbeat();
		expect([idsOf(events), Number(through) >= 3]).toEqual([expected, true]);
	});

	test.each<[string, Record<string, string>, number, string]>([
		[`${UPDATES}?color=red`, {}, 400, 'query parameter "color" is not known'],
		[`${UPDATES}?conversation_id=x`, {}, 400, "conversation_id is not a UUID"],
		[EVENTS, { "Last-Event-ID": "x" }, 400, "Last-Event-ID must be a whole number, 0 or more"],
		[`${EVENTS}?secrets=plaintext`, {}, 403, 'The access key or client certificate lacks the scope "secrets"'],
		[
			`${UPDATES}?after_sequence=9`,
			{},
			410,
			"after_sequence 9 is beyond the newest sequence, which is 3: it comes from another store",
		],
	])("%s is refused before it begins, with %j by a %i", async (path, headers, status, detail) => {
		using stream = await EventStream.open(service, READER, path, headers);
		expect(stream.response.headers.get("Content-Type")).toBe("application/json");
		expect([stream.response.status, JSON.parse(await stream.text())]).toEqual([status, { detail }]);
	});

	test("needs a key with the scope read, and only reads", async () => {
		using sending = await EventStream.open(service, SENDER, UPDATES);
		using unknown = await EventStream.open(service, "no-such-key", UPDATES);
		expect([sending.response.status, unknown.response.status]).toEqual([403, 401]);
		const posted = await fetch(`${service.http}${UPDATES}`, { method: "POST", headers: { "X-Access-Token": READER } });
		expect([posted.status, posted.headers.get("Allow")]).toEqual([405, "GET, HEAD"]);
	});

	test("answers HEAD with its header alone", async () => {
		const asked = request(`${service.http}${UPDATES}`, { method: "HEAD", headers: { "X-Access-Token": READER } });
		asked.end();
		const [response] = await once(asked, "response");
		response.resume();
		await once(response, "end");
		expect([response.statusCode, response.headers["content-type"]]).toEqual([200, "text/event-stream"]);
		await expect.poll(() => watchers(service)).toEqual([0, 0]);
	});
});

/** Returns the numbers of watchers of updates and of events that the service knows. */
async function watchers(service: TestService): Promise<number[]> {
	const { samples } = await scrape(service, KEY);
	return ["updates", "events"].map(
		(log) => samples.find(({ name, labels }) => name === "conversations_watchers" && labels.log === log)?.value ?? -1,
	);
}

test("a client that connects again and again gets each update once, without a gap, while updates arrive", async () => {
	await using service = await startTestService(ENV);
	const total = 60;
	const posting = (async () => {
		for (let n = 0; n < total; n++) await post(service, n % 2 === 0 ? A : B, { title: `${n}` });
	})();
	const seen: string[] = [];
	let lastEventId = "";
	for (let connection = 0; seen.length < total; connection++) {
		// Like a browser, it repeats the address of its first request.
		const headers: Record<string, string> = lastEventId === "" ? {} : { "Last-Event-ID": lastEventId };
		using stream = await EventStream.open(service, READER, `${UPDATES}?after_sequence=0`, headers);
		// Some connections end in the middle of a batch. What such a client has not read counts as not received.
		for (const { id } of await stream.take(Math.min(1 + (connection % 7), total - seen.length))) {
			seen.push(id);
			lastEventId = id;
		}
	}
	await posting;
	expect(seen).toEqual(Array.from({ length: total }, (_, index) => `${index + 1}`));
	await expect.poll(() => watchers(service)).toEqual([0, 0]);
	expect(service.log()).not.toContain("request_failed");
});

test("when its key is revoked, or the service stops, the last event of a stream says so, and the stream ends", async () => {
	await using service = await startTestService(ENV);
	const keys = accessKeyClient(service, "connect", KEY);
	const { key } = await keys.createAccessKey({ name: "dashboard", scopes: ["read"] });
	using revoked = await EventStream.open(service, key, EVENTS);
	using stopped = await EventStream.open(service, READER, UPDATES);
	const end = (status: number, detail: string) => ({ id: "0", type: "end", data: JSON.stringify({ status, detail }) });
	for (const stream of [revoked, stopped]) await stream.heartbeat();
	await keys.revokeAccessKey({ name: "dashboard" });
	expect(await revoked.next()).toEqual(end(401, "The access key was revoked or has expired"));
	using again = await EventStream.open(service, key, EVENTS);
	expect(again.response.status).toBe(401);
	const stopping = service.stop();
	expect(await stopped.next()).toEqual(end(503, "The service is stopping"));
	expect([await revoked.next(), await stopped.next(), stopped.parser.retry]).toEqual([undefined, undefined, 5_000]);
	await stopping;
	expect(service.log()).not.toContain("request_failed");
});
