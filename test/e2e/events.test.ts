import { randomUUID } from "node:crypto";
import { ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { badRequest, postWebhook } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import {
	allEvents,
	eventIngestClient,
	eventJson,
	getEvents,
	ingestEventsRequest,
	postEvents,
} from "../support/event-clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { type CapturedPost, capturedBatches, object, record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { withSpecificationNames } from "../support/vendor-names.ts";
import { ENV, expectSuccess, isDeleting, read, send, sequences } from "./captured-posts.ts";

const { plan } = new RecordFormat();
const batches = capturedBatches();
/** Returns the newest value of every member: the `deleting` record, with another status. */
function newestRecord(posts: readonly CapturedPost[], status: unknown): unknown {
	const last = withSpecificationNames(posts.find(isDeleting)?.body ?? "");
	return expectedJson(plan, { ...last, execution_status: String(status) });
}

describe.each(ENGINES)("with $engine", ({ open }) => {
	let databases: EngineDatabases;
	let service: TestService;
	beforeAll(async () => {
		databases = await open();
		service = await startTestService({ ...ENV, ...(await databases.create()) });
	});
	afterAll(async () => {
		await service[Symbol.asyncDispose]();
		await databases[Symbol.asyncDispose]();
	});

	describe("a captured batch is read back whole", () => {
		test.each(batches)("$name, after a post to the webhook", async ({ text, events }) => {
			const id = randomUUID();
			await expectSuccess(await postEvents(service, KEY, id.replaceAll("-", ""), text));
			const page = await getEvents(service, KEY, id, "secrets=plaintext&page_size=1000");
			// Compared as texts, because the order of members counts, too.
			const kept = Array.isArray(page.events) ? page.events.map((entry) => object(entry).event) : [];
			expect(kept.map((event) => JSON.stringify(event))).toEqual(events.map((event) => JSON.stringify(event)));
			expect(page.next_page_token).toBe("");
		});

		test.each(batches)("$name, after a post over gRPC", async ({ events }) => {
			const id = randomUUID();
			const response = await eventIngestClient(service, KEY).ingestConversationEvents(ingestEventsRequest(id, events));
			expect([response.success, response.stored]).toEqual([true, events.length]);
			const entries = await allEvents(service, KEY, { conversationId: id, secrets: SecretsMode.PLAINTEXT });
			expect(entries.map(({ event }) => eventJson(event))).toEqual(events);
			expect(entries.map(({ conversationId, unreadable }) => ({ conversationId, unreadable }))).toEqual(
				events.map(() => ({ conversationId: id, unreadable: false })),
			);
			const sequences = entries.map(({ sequence }) => sequence);
			expect(sequences).toEqual(sequences.toSorted((a, b) => Number(a - b)));
		});
	});

	test.each<[string, readonly string[], string]>([
		["in the next batch", [], "01:20"],
		// The record is cached from its second update on.
		["after further updates", ["02:40", "02:50"], "01:20"],
		["when the event before it in the log is older", ["02:55", "01:10"], "01:20"],
		["unless what is stored is later than both", ["03:10"], "00:20"],
	])("of a local time that occurs twice, the instant keeps the order of what is stored, %s", async (_, more, utc) => {
		await using berlin = await startTestService({ EVENT_TIME_ZONE: "Europe/Berlin", ...(await databases.create()) });
		const sent = record({ created_at: "2026-10-24T00:00:00Z", updated_at: "2026-10-24T00:00:00Z" });
		await expectSuccess(await postWebhook(berlin, KEY, JSON.stringify(sent)));
		const post = async (time: string, value: string) => {
			const event = { id: `${time} ${value}`, timestamp: `2026-10-25T${time}:00`, source: "environment" };
			const update = { ...event, kind: "ConversationStateUpdateEvent", key: "execution_status", value };
			await expectSuccess(await postEvents(berlin, KEY, String(sent.id), JSON.stringify([update])));
		};
		// All in batches of their own that arrive a month later. 02:55 is in summer time, and 02:20 may be after it.
		const before = more.includes("02:55") ? more : [...more, "02:55"];
		for (const time of before) await post(time, "paused");
		await post("02:20", "finished");
		const entries = await allEvents(berlin, KEY, { conversationId: String(sent.id) });
		const time = new Date(Number(entries.at(-1)?.happenedAt?.seconds ?? 0n) * 1000).toISOString();
		const status = utc === "01:20" ? "finished" : "paused";
		expect([time, object(await read(berlin, String(sent.id))).execution_status]).toEqual([
			`2026-10-25T${utc}:00.000Z`,
			status,
		]);
	});

	describe("the posts of a captured sequence", () => {
		test.each(sequences)(
			"$name, leave the record with the newest value of every member",
			async ({ conversationId, posts }) => {
				for (const post of posts) if (!isDeleting(post)) await send(service, conversationId, post);
				const live = await read(service, conversationId);
				expect(live).toEqual(newestRecord(posts, live.execution_status));
				expect(live.execution_status).not.toBe("deleting");
				for (const post of posts.filter(isDeleting)) await send(service, conversationId, post);
				// Events that arrive after the deletion change nothing.
				for (const post of posts) if (post.webhook === "events") await send(service, conversationId, post);
				expect(await read(service, conversationId)).toEqual(newestRecord(posts, "deleting"));
			},
		);
	});

	describe("an invalid batch is refused, and nothing of it is stored", () => {
		const event = { id: "e", timestamp: "2026-11-20T08:00:00.000001", source: "agent", kind: "MessageEvent" };

		test.each<[string, unknown, readonly (string | number)[], string]>([
			["a body that is no array", { events: [] }, ["body"], "list_type"],
			["an event that is no object", [event, "x"], ["body", 1], "model_attributes_type"],
			["an event without an id", [event, { ...event, id: undefined }], ["body", 1, "id"], "missing"],
			["an id that is no text", [{ ...event, id: 1 }], ["body", 0, "id"], "string_type"],
			[
				"a timestamp that is no time",
				[{ ...event, timestamp: "yesterday" }],
				["body", 0, "timestamp"],
				"datetime_from_date_parsing",
			],
		])("%s", async (_, body, loc, type) => {
			const id = randomUUID();
			const response = await postEvents(service, KEY, id, JSON.stringify(body));
			expect(response.status).toBe(422);
			const { detail } = object(await response.json());
			expect(detail).toEqual([expect.objectContaining({ loc, type })]);
			expect(await allEvents(service, KEY, { conversationId: id })).toEqual([]);
		});

		test("over gRPC, with the field of the invalid event", async () => {
			const id = randomUUID();
			const request = ingestEventsRequest(id, [event, { ...event, timestamp: "yesterday" }]);
			const error = await eventIngestClient(service, KEY)
				.ingestConversationEvents(request)
				.then(() => undefined, ConnectError.from);
			expect(error && badRequest(error)?.fieldViolations.map(({ field }) => field)).toEqual(["events[1].timestamp"]);
			expect(await allEvents(service, KEY, { conversationId: id })).toEqual([]);
		});
	});

	test("the summary has the status, count, time and message of the events", async () => {
		const json = record({ execution_status: "idle", updated_at: "2026-11-20T08:00:00Z" });
		await expectSuccess(await postWebhook(service, KEY, JSON.stringify(json)));
		const text = `${"é".repeat(199)}𝄞 and more`;
		const batch = [
			{
				id: "1",
				timestamp: "2026-11-20T08:00:01.5",
				source: "user",
				kind: "MessageEvent",
				llm_message: { role: "user", content: [{ type: "text", text }] },
			},
			{
				id: "2",
				timestamp: "2026-11-20T08:00:02",
				source: "environment",
				kind: "ConversationStateUpdateEvent",
				key: "execution_status",
				value: "running",
			},
		];
		await expectSuccess(await postEvents(service, KEY, String(json.id), JSON.stringify(batch)));
		const headers = { "X-Access-Token": KEY };
		const response = await fetch(`${service.http}/api/v1/conversations?execution_status=running`, { headers });
		const { conversations } = object(await response.json());
		const listed = Array.isArray(conversations) ? conversations.map(object) : [];
		const entry = listed.find(({ summary }) => object(summary).id === json.id);
		expect(entry?.summary).toMatchObject({
			execution_status: "running",
			event_count: 2,
			last_activity_at: "2026-11-20T08:00:02Z",
			last_message: `${"é".repeat(199)}𝄞`,
		});
	});
});

describe("access keys", () => {
	const READER = "key-that-only-reads";
	const SENDER = "key-that-only-sends";

	test("need the scope ingest to post events and read to read them, and get no plain text without the scope secrets", async () => {
		await using guarded = await startTestService({
			ACCESS_KEYS: `test:${KEY}:ingest+read+secrets,reader:${READER}:read,sender:${SENDER}:ingest`,
		});
		const id = randomUUID();
		const batch = JSON.stringify([{ id: "e", timestamp: "2026-11-20T08:00:00", source: "agent", kind: "K" }]);
		const posted = await Promise.all(
			["unknown key of nobody", READER, SENDER].map(async (key) => (await postEvents(guarded, key, id, batch)).status),
		);
		expect(posted).toEqual([401, 403, 200]);
		const read = await Promise.all(
			["unknown key of nobody", SENDER, READER].map(async (key) => {
				const headers = { "X-Access-Token": key };
				return (await fetch(`${guarded.http}/api/v1/conversations/${id}/events`, { headers })).status;
			}),
		);
		expect(read).toEqual([401, 403, 200]);
		const plain = { headers: { "X-Access-Token": READER } };
		const url = `${guarded.http}/api/v1/conversations/${id}/events?secrets=plaintext`;
		expect((await fetch(url, plain)).status).toBe(403);
		const codes = await Promise.all(
			["unknown key of nobody", READER, SENDER].map((key) =>
				eventIngestClient(guarded, key)
					.ingestConversationEvents(ingestEventsRequest(id, []))
					.then(
						() => "ok",
						(error: unknown) => ConnectError.from(error).code,
					),
			),
		);
		expect(codes).toEqual([16, 7, "ok"]);
	});
});
