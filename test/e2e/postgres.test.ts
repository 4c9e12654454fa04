import { randomBytes } from "node:crypto";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Databases } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { allEvents, eventJson, postEvents } from "../support/event-clients.ts";
import { capturedSequences, record } from "../support/fixtures.ts";
import { countsOf, scrape } from "../support/scrape.ts";
import { KEY, startTestService, type TestService, testEnvironment } from "../support/service.ts";
import { BEGINNING, updatesUntilCaughtUp, watch } from "../support/watching.ts";

const ENV = { ENCRYPTION_KEY: randomBytes(32).toString("base64") };

let databases: Databases;
let url: string;
let replicas: [ServiceProcess, ServiceProcess];
beforeAll(async () => {
	databases = await Databases.start();
	url = await databases.create();
	const start = () => ServiceProcess.start("", { ...ENV, DATABASE_URL: url });
	replicas = await Promise.all([start(), start()]);
});
afterAll(async () => {
	for (const replica of replicas) await replica[Symbol.asyncDispose]();
	await databases[Symbol.asyncDispose]();
});

/** Returns the captured posts in the order of sending: the first post of each sequence, then the second, and so on. */
function posts() {
	const sequences = capturedSequences();
	const longest = Math.max(...sequences.map(({ posts }) => posts.length));
	return Array.from({ length: longest }, (_, n) =>
		sequences.flatMap(({ conversationId, posts }) => {
			const post = posts[n];
			return post === undefined ? [] : [{ conversationId, post }];
		}),
	).flat();
}

test("two replicas with PostgreSQL store the same updates, records and events as a service with SQLite", async () => {
	await using reference: TestService = await startTestService(ENV);
	const send = async (to: Endpoints, { conversationId, post }: ReturnType<typeof posts>[number]) => {
		const { webhook, body } = post;
		const response =
			webhook === "events" ? await postEvents(to, KEY, conversationId, body) : await postWebhook(to, KEY, body);
		expect(response.status).toBe(200);
	};
	for (const [n, post] of posts().entries()) {
		await send(reference, post);
		await send(replicas[n % 2 === 0 ? 0 : 1], post);
	}
	const everything = async (from: Endpoints) => {
		const updates = await updatesUntilCaughtUp(from, KEY, { start: BEGINNING });
		const ids = [...new Set(updates.map(({ conversationId }) => conversationId))];
		const records = await Promise.all(ids.map((id) => getText(from, KEY, id, "secrets=plaintext")));
		const events = await allEvents(from, KEY, {});
		// The times of receipt differ, and so do the summaries in which they stand in for times that a record lacks.
		const receipts = new Set(updates.map(({ receivedAt }) => receivedAt && timestampMs(receivedAt)));
		const own = (time: Timestamp | undefined) => (time && receipts.has(timestampMs(time)) ? undefined : time);
		return {
			updates: updates.map(({ receivedAt: _, summary, ...update }) => ({
				...update,
				summary: summary && {
					...summary,
					createdAt: own(summary.createdAt),
					updatedAt: own(summary.updatedAt),
					runStartedAt: own(summary.runStartedAt),
					// Gaps are open since a time of receipt.
					gaps: summary.gaps?.count,
				},
			})),
			records,
			events: events.map(({ sequence, conversationId, event }) => ({
				sequence,
				conversationId,
				event: eventJson(event),
			})),
		};
	};
	const expected = await everything(reference);
	expect(expected.updates.length).toBeGreaterThan(50);
	expect(expected.events.length).toBeGreaterThan(50);
	for (const replica of replicas) expect(await everything(replica)).toEqual(expected);
});

test("metrics of a service with PostgreSQL show commits and queues, but no file sizes", async () => {
	const scraper = "key-of-prometheus-itself";
	const ACCESS_KEYS = `test:${KEY}:ingest,prometheus:${scraper}:metrics`;
	await using service = await ServiceProcess.start("", { DATABASE_URL: await databases.create(), ACCESS_KEYS });
	expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
	// The response can arrive before the commit is counted, and a check of the store can be under way at a scrape.
	const names = ["commit_size_sum", "commit_duration_seconds_count", "newest_sequence", "queue_size"];
	const counted = async () => {
		const found = await scrape(service, scraper);
		return names.map((name) => countsOf(found, `conversations_${name}`));
	};
	await expect
		.poll(counted)
		.toEqual([
			{ "": 1 },
			{ "": 1 },
			{ "log=updates": 1, "log=events": 0 },
			{ "thread=intake": 0, "thread=large-intake": 0, "thread=writer": 0 },
		]);
	const scraped = await scrape(service, scraper);
	for (const name of ["conversations_database_size_bytes", "conversations_disk_size_bytes"])
		expect(countsOf(scraped, name)).toEqual({});
});

test("a watch on one replica shows posts to another, and continues after the other replica has stopped", async () => {
	const end = new AbortController();
	const [one, other] = replicas;
	const seen: bigint[] = [];
	const watching = (async () => {
		try {
			for await (const { content } of watch(other, KEY, { start: BEGINNING }, end.signal))
				if (content.case === "update") seen.push(content.value.sequence);
		} catch (error) {
			if (!end.signal.aborted) throw error;
		}
	})();
	const body = (title: string) =>
		JSON.stringify({
			id: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
			workspace: { kind: "LocalWorkspace", working_dir: "/workspace" },
			agent: { kind: "ACPAgent", acp_command: ["acp"] },
			title,
		});
	for (const title of ["first", "second \0"]) expect((await postWebhook(one, KEY, body(title))).status).toBe(200);
	one.signal("SIGTERM");
	expect(await one.exit()).toEqual({ code: 0, signal: null });
	expect((await postWebhook(other, KEY, body("third"))).status).toBe(200);
	const stored = await updatesUntilCaughtUp(other, KEY, { start: BEGINNING });
	expect(stored.slice(-3).map(({ summary }) => summary?.title)).toEqual(["first", "second \0", "third"]);
	await expect.poll(() => seen, { timeout: 30_000 }).toEqual(stored.map(({ sequence }) => sequence));
	end.abort();
	await watching;
});

test("a start with PostgreSQL and without keys fails with one line, because replicas need the same keys", async () => {
	const { ACCESS_KEYS: _, ...env } = testEnvironment("");
	const { code, stderr, stdout } = await ServiceProcess.run({ ...env, DATABASE_URL: url }, "serve");
	expect({ code, stderr }).toEqual({
		code: 1,
		stderr:
			"The service cannot start: With PostgreSQL, ACCESS_KEYS or CLIENT_CERTIFICATES must be set, to the same value for every replica, or a key must have been made with the command `keys add`\n",
	});
	expect(stdout).not.toContain(databases.server.password);
});
