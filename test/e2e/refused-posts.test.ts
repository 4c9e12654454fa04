import { randomBytes, randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fromBinary, type JsonObject } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { readConfig } from "../../src/config/config.ts";
import { RefusedPosts } from "../../src/conversations/refused/refused-posts.ts";
import { ServiceError } from "../../src/errors.ts";
import { openStore } from "../../src/store/open.ts";
import {
	type Endpoints,
	EVENT_WEBHOOK,
	eventIngestClient,
	ingestClient,
	PROTOCOLS,
	postWebhook,
	readClient,
	refusedPostClient,
	WEBHOOK,
} from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { eventsRequest } from "../support/event-batches.ts";
import { allEvents, postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { scrape } from "../support/scrape.ts";
import { KEY, startTestService, testEnvironment } from "../support/service.ts";

const [RED, BLUE, READER] = ["key-of-the-red-agents", "key-of-the-blue-agents", "key-of-a-reader-without-secrets"];
const ACCESS_KEYS = [
	`test:${KEY}:ingest+read+secrets+metrics`,
	`red:${RED}:ingest+read+secrets@red`,
	`blue:${BLUE}:ingest+read@blue`,
	`reader:${READER}:read`,
].join();
const ENCRYPTION_KEY = randomBytes(32).toString("base64");
const CANARY = "canary-in-a-refused-post";
const API_KEY = { kind: "Agent", llm: { model: "m", api_key: CANARY } };

async function getJson(of: Endpoints, key: string, path = "", init: RequestInit = {}): Promise<JsonObject> {
	const response = await fetch(`${of.http}/api/v1/refused-posts${path}`, {
		...init,
		headers: { "X-Access-Token": key },
	});
	expect(response.status).toBe(200);
	return object(JSON.parse(await response.text()));
}

/** Lists the refused posts that a key may see. */
async function refusedPosts(of: Endpoints, key: string, search = ""): Promise<JsonObject[]> {
	const { refused_posts: posts } = await getJson(of, key, search);
	return Array.isArray(posts) ? posts.map(object) : [];
}

/** Waits until the service has written a number of refused posts, which it does soon after its answers. */
async function waitForPosts(of: Endpoints, key: string, count: number): Promise<void> {
	await expect.poll(() => refusedPosts(of, key, "?page_size=1000")).toHaveLength(count);
}

/** Retries to the end, which on a busy machine takes more than one request. Returns the last answer, with the sums of all. */
async function retry(at: Endpoints, key: string, request: JsonObject = {}): Promise<JsonObject> {
	const sums = { taken_in: 0, still_refused: 0, without_body: 0 };
	for (let page_token = ""; ; ) {
		const body = JSON.stringify({ ...request, page_token });
		const answer = await getJson(at, key, ":retry", { method: "POST", body });
		for (const name of ["taken_in", "still_refused", "without_body"] as const) sums[name] += Number(answer[name]);
		page_token = String(answer.next_page_token);
		if (page_token === "") return { ...answer, ...sums };
	}
}

/** Returns the number of gaps of a conversation of the red agents; undefined without any. */
async function gapsOf(of: Endpoints, id: string): Promise<bigint | undefined> {
	const { conversations } = await readClient(of, "gRPC", RED).listConversations({});
	return conversations.find(({ summary }) => summary?.id === id)?.summary?.gaps?.count;
}

/** A batch that breaks a rule, and has a secret. */
function brokenBatch(): string {
	const event = { id: "e", timestamp: "2026-01-01T00:00:01", source: "agent", kind: "ActionEvent" };
	return JSON.stringify([
		{ ...event, tool_call: { api_key: CANARY } },
		{ ...event, id: "f", timestamp: "yesterday" },
	]);
}

describe.each(ENGINES)("refused posts with $engine", ({ open, engine }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());
	const environment = async (more = {}) => ({ ...(await databases.create()), ACCESS_KEYS, ENCRYPTION_KEY, ...more });

	test("of every transport are kept with their reasons and bodies, for their owners, across a restart", async () => {
		const env = await environment();
		const [id, eventsId] = [randomUUID(), randomUUID()];
		const body = JSON.stringify({ ...record({ id, agent: API_KEY }), max_iterations: "many" });
		const batch = brokenBatch();
		const routes = PROTOCOLS.flatMap(() => [
			"/conversations.v1.ConversationIngestService/IngestConversation",
			"/conversations.v1.ConversationEventIngestService/IngestConversationEvents",
		]);
		{
			await using service = await startTestService(env);
			expect((await postWebhook(service, RED, body)).status).toBe(422);
			expect((await postEvents(service, RED, eventsId, batch)).status).toBe(422);
			for (const protocol of PROTOCOLS) {
				const message = ingestRequest(record({ id }));
				if (message.conversation !== undefined) message.conversation.maxIterations = -1n;
				await expect(ingestClient(service, protocol, RED).ingestConversation(message)).rejects.toThrow(ConnectError);
				const events = fromBinary(IngestConversationEventsRequestSchema, eventsRequest(eventsId, JSON.parse(batch)));
				const call = eventIngestClient(service, protocol, RED).ingestConversationEvents(events);
				await expect(call).rejects.toThrow(ConnectError);
			}
			expect((await postWebhook(service, "wrong", body)).status).toBe(401);
			await waitForPosts(service, KEY, 2 + routes.length);
		}
		await using service = await startTestService(env);
		const [posted, events, ...called] = (await refusedPosts(service, KEY)).toReversed();
		const time = expect.stringMatching(/^20\d\d-/);
		const common = {
			...{ id: expect.stringMatching(/^\d+$/), received_at: time, last_at: time, requests: 1, sender: "red" },
			...{ owner: "red", peer: "", kind: "invalid_record", has_body: true, accepted: false, retried_at: null },
		};
		expect(posted).toEqual({
			...common,
			...{ route: WEBHOOK, conversation_id: id, size: body.length },
			reasons: [{ place: "body.max_iterations", type: "int_parsing", message: expect.stringContaining("integer") }],
		});
		expect(events).toEqual({
			...common,
			...{ route: `${EVENT_WEBHOOK}/{id}`, conversation_id: eventsId, size: batch.length },
			reasons: [{ place: "body[1].timestamp", type: expect.any(String), message: expect.any(String) }],
		});
		expect(called.map(({ route }) => route)).toEqual(routes);
		expect(called.map(({ reasons }) => reasons)).toEqual(
			PROTOCOLS.flatMap(() => [
				[expect.objectContaining({ place: "conversation.max_iterations" })],
				[expect.objectContaining({ place: "events[1].timestamp" })],
			]),
		);
		const path = `/${String(posted?.id)}`;
		expect(await getJson(service, RED, path)).toEqual({ ...posted, body, body_base64: null });
		expect(await getJson(service, READER, path)).toEqual({ ...posted, body: null, body_base64: null });
		expect(await refusedPosts(service, BLUE)).toEqual([]);
		const found = await fetch(`${service.http}/api/v1/refused-posts${path}`, { headers: { "X-Access-Token": BLUE } });
		expect(found.status).toBe(404);
		const rpc = refusedPostClient(service, "gRPC", KEY);
		const page = await rpc.listRefusedPosts({ pageSize: 4 });
		const next = await rpc.listRefusedPosts({ pageSize: 100, pageToken: page.nextPageToken });
		expect([...page.refusedPosts, ...next.refusedPosts].map((post) => post.id).toReversed()).toEqual(
			[posted, events, ...called].map((post) => post?.id),
		);
		expect(Buffer.from((await rpc.getRefusedPost({ id: String(events?.id) })).body ?? []).toString()).toBe(batch);
	});

	test("have no secret in the database, and no body without an encryption key", async () => {
		const env = await environment();
		const body = JSON.stringify({ ...record({ agent: API_KEY }), title: 5, [`https://u:${CANARY}@host`]: 1 });
		await using service = await startTestService(env);
		for (let n = 0; n < 3; n++) expect((await postWebhook(service, KEY, body)).status).toBe(422);
		expect((await postEvents(service, KEY, randomUUID(), brokenBatch())).status).toBe(422);
		await waitForPosts(service, KEY, 4);
		const listed = await refusedPosts(service, KEY);
		expect(listed.map(({ has_body }) => has_body)).toEqual([true, true, true, true]);
		expect(JSON.stringify(listed)).not.toContain(CANARY);
		if (engine === "SQLite") {
			const folder = env.DATABASE_URL.slice("sqlite:".length).replace(/[^/]*$/, "");
			for (const file of readdirSync(folder, { recursive: true, withFileTypes: true }))
				if (file.isFile()) expect(readFileSync(`${file.parentPath}/${file.name}`).includes(CANARY)).toBe(false);
		}
		await using keyless = await startTestService(await environment({ ENCRYPTION_KEY: "" }));
		expect((await postWebhook(keyless, KEY, body)).status).toBe(422);
		await waitForPosts(keyless, KEY, 1);
		const [post] = await refusedPosts(keyless, KEY);
		expect(post).toMatchObject({ size: body.length, has_body: false, reasons: [{ place: "body.title" }] });
		expect(await retry(keyless, KEY, { ids: [String(post?.id)] })).toMatchObject({ taken_in: 0, without_body: 1 });
	});

	test("are taken in after an upgrade in the order of their times, as their senders, owners and times say", async () => {
		const env = await environment();
		const [first, second] = [randomUUID(), randomUUID()];
		const { database, ENCRYPTION_KEY: encryptionKeys } = readConfig({ ...testEnvironment(""), ...env });
		const said = { timestamp: "2026-01-01T00:00:01", source: "agent", kind: "MessageEvent" };
		const events = JSON.stringify([
			{ ...said, id: "one" },
			{ ...said, id: "two" },
		]);
		const start = Math.floor(Date.now() / 1000 - 3600) * 1000;
		const times = [start, start + 5_000, start + 9_000];
		const updated = (n: number) => new Date(times[n] ?? 0).toISOString();
		{
			// As an earlier release would have refused them, whose schema knew less.
			await using store = await openStore(database, { error: () => undefined }, {});
			await using earlier = new RefusedPosts(store, {
				keys: encryptionKeys,
				maxBytes: 2 ** 20,
				onError: () => undefined,
			});
			const error = new ServiceError("invalid_record", "1 rule is broken", {
				violations: [{ path: ["news"], type: "extra_forbidden", message: "not known" }],
			});
			const refused = { peer: undefined, route: "/webhook", error };
			const poster = { sender: "red", owner: "red" };
			const body = Buffer.from(events);
			const accepted = { ...refused, poster, form: "events_json", size: body.length, body } as const;
			expect(await earlier.accept({ ...accepted, conversationId: first }, times[1])).toBe(true);
			const refuse = (n: number, sender: string, json: string, conversationId: string) =>
				earlier.add(
					{
						...{ ...refused, poster: { sender, owner: sender }, conversationId, form: "record_json" },
						...{ size: json.length, body: Buffer.from(json) },
					},
					times[n],
				);
			refuse(0, "red", JSON.stringify(record({ id: first, title: "older", updated_at: updated(0) })), first);
			refuse(2, "blue", JSON.stringify({ ...record({ id: second }), max_iterations: "many" }), second);
		}
		await using service = await startTestService(env);
		const newer = record({ id: first, title: "newer", updated_at: updated(2) });
		expect((await postWebhook(service, RED, JSON.stringify(newer))).status).toBe(200);
		expect(await gapsOf(service, first)).toBe(1n);
		expect(await retry(service, BLUE)).toEqual({ taken_in: 0, still_refused: 1, without_body: 0, next_page_token: "" });
		expect(await refusedPosts(service, BLUE)).toMatchObject([
			{
				received_at: updated(2).replace(".000Z", "Z"),
				sender: "blue",
				retried_at: expect.any(String),
				reasons: [{ place: "body.max_iterations" }],
			},
		]);
		expect(await retry(service, KEY)).toMatchObject({ taken_in: 2, still_refused: 1 });
		expect(await refusedPosts(service, RED)).toEqual([]);
		const { updates } = await readClient(service, "gRPC", RED).listConversationUpdates({ conversationId: first });
		const seconds = (n: number) => BigInt((times[n] ?? 0) / 1000);
		expect(updates.slice(0, 2)).toMatchObject([
			{ sequence: 1n, current: true, sender: "red", summary: { title: "newer" } },
			{ sequence: 2n, current: false, sender: "red", summary: { title: "older" } },
		]);
		expect(updates[1]?.receivedAt?.seconds).toBe(seconds(0));
		const stored = await allEvents(service, RED, { conversationId: first });
		expect(stored.map(({ event, receivedAt, sender }) => [event?.id, receivedAt?.seconds, sender])).toEqual(
			["one", "two"].map((id) => [id, seconds(1), "red"]),
		);
		expect(await gapsOf(service, first)).toBeUndefined();
		// Again, nothing is left to take in.
		expect(await retry(service, RED)).toMatchObject({ taken_in: 0, still_refused: 0 });
	});

	test("can be read and taken in after the encryption key was rotated, and stay while it is not configured", async () => {
		const env = await environment();
		const body = JSON.stringify({ ...record(), title: 5 });
		{
			await using service = await startTestService(env);
			expect((await postWebhook(service, KEY, body)).status).toBe(422);
		}
		const key = randomBytes(32).toString("base64");
		{
			await using service = await startTestService({ ...env, ENCRYPTION_KEY: key });
			const [post] = await refusedPosts(service, KEY);
			const path = `${service.http}/api/v1/refused-posts/${String(post?.id)}`;
			expect((await fetch(path, { headers: { "X-Access-Token": KEY } })).status).toBe(500);
			expect(await retry(service, KEY)).toMatchObject({ taken_in: 0, still_refused: 1 });
			expect(await refusedPosts(service, KEY)).toEqual([post]);
		}
		await using service = await startTestService({ ...env, ENCRYPTION_KEY: `${key},${ENCRYPTION_KEY}` });
		const [post] = await refusedPosts(service, KEY);
		expect(await getJson(service, KEY, `/${String(post?.id)}`)).toMatchObject({ body });
	});

	test("that are accepted let the rest go on, leave a gap that a retry closes, and are never dropped for room", async () => {
		const env = await environment({ ACCEPT_REFUSED: "on", REFUSED_BYTES: "20000" });
		const id = randomUUID();
		const event = { timestamp: "2026-01-01T00:00:01", source: "agent", kind: "MessageEvent" };
		const [bad, good] = [randomBytes(6_000).toString("base64"), "good"].map((text) => ({
			...event,
			id: text.slice(0, 9),
			text,
		}));
		const post = async (to: Endpoints, key: string, events: readonly JsonObject[]) =>
			(await postEvents(to, key, id, JSON.stringify(events))).status;
		{
			await using service = await startTestService(env);
			expect((await postWebhook(service, RED, JSON.stringify(record({ id })))).status).toBe(200);
			// The service accepts any text, so that a later release could read it as a time.
			const refused = { ...bad, timestamp: "yesterday" };
			expect(await post(service, RED, [refused])).toBe(200);
			expect(await post(service, RED, [{ ...good }])).toBe(200);
			expect((await allEvents(service, RED, { conversationId: id })).length).toBe(1);
			expect(await post(service, BLUE, [refused])).toBe(403);
			const other = fromBinary(IngestConversationEventsRequestSchema, eventsRequest(id, [{ ...refused, id: "other" }]));
			expect(await eventIngestClient(service, "gRPC", RED).ingestConversationEvents(other)).toMatchObject({
				...{ success: true, stored: 0, updateSequence: 0n },
			});
			// Now there is no room for a third one.
			expect(await post(service, RED, [{ ...refused, id: "third" }])).toBe(422);
			for (let n = 0; n < 5; n++) await postWebhook(service, RED, JSON.stringify({ ...record(), title: [bad] }));
			expect(service.log()).toContain("refused_batch_accepted");
		}
		await using service = await startTestService(env);
		const accepted = (await refusedPosts(service, RED)).filter((found) => found.accepted === true).toReversed();
		expect(accepted).toMatchObject([
			{ sender: "red", conversation_id: id, has_body: true, reasons: [{ place: "body[0].timestamp" }] },
			{ sender: "red", conversation_id: id, has_body: true, reasons: [{ place: "events[0].timestamp" }] },
		]);
		expect(await gapsOf(service, id)).toBe(2n);
		expect(await retry(service, RED, { ids: [String(accepted[0]?.id)] })).toMatchObject({ still_refused: 1 });
		expect(await gapsOf(service, id)).toBe(2n);
	});

	test("that are accepted before anything of their conversation is stored show their gap to their owner only", async () => {
		await using service = await startTestService(await environment({ ACCEPT_REFUSED: "on" }));
		const id = randomUUID();
		expect((await postEvents(service, RED, id, brokenBatch())).status).toBe(200);
		const gaps = async (key: string) => {
			const headers = { "X-Access-Token": key };
			const answer = await fetch(`${service.http}/api/v1/conversations/${id}/gaps`, { headers });
			return [answer.status, await answer.json()];
		};
		const [post] = await refusedPosts(service, RED);
		const gap = { kind: "refused_batch", refused_post_id: post?.id, missing_event_id: null };
		expect(await gaps(RED)).toMatchObject([200, { gaps: [gap], unknown_relations: [] }]);
		expect(await gaps(READER)).toMatchObject([200, { gaps: [gap], unknown_relations: [] }]);
		expect(await gaps(BLUE)).toEqual([404, { detail: "Conversation not found" }]);
	});

	test("in a flood take their room only, while other posts are stored", async () => {
		const REFUSED_BYTES = String(2 ** 20);
		await using service = await startTestService(await environment({ REFUSED_BYTES }));
		const total = 400;
		const broken = () => JSON.stringify({ ...record(), title: [randomBytes(20_000).toString("base64")] });
		const statuses = await Promise.all(
			Array.from({ length: total }, async (_, n) => [
				(await postWebhook(service, RED, broken())).status,
				n % 4 === 0 ? (await postWebhook(service, BLUE, JSON.stringify(record()))).status : 200,
			]),
		);
		expect(statuses.filter(([refused, stored]) => refused !== 422 || stored !== 200)).toEqual([]);
		await refusedPosts(service, KEY);
		const name = (of: string) => `conversations_refused_posts_${of}`;
		const counted = async () => {
			const { samples } = await scrape(service, KEY);
			const value = (of: string) => samples.find((sample) => sample.name === name(of))?.value ?? Number.NaN;
			return [value("kept_total") + value("dropped_total"), value("size_bytes"), value("removed_total")] as const;
		};
		await expect.poll(async () => (await counted())[0]).toBe(total);
		const [, bytes, removed] = await counted();
		expect(bytes).toBeGreaterThan(2 ** 19);
		expect(bytes).toBeLessThanOrEqual(2 ** 20);
		expect(removed).toBeGreaterThan(0);
		const { conversations } = await readClient(service, "gRPC", BLUE).listConversations({ pageSize: 1000 });
		expect(conversations.length).toBe(total / 4);
	});
});
