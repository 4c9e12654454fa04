import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationSenderService } from "../../gen/conversations/v1/conversation_sender_service_pb.js";
import { type Endpoints, postWebhook } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { postEvents } from "../support/event-clients.ts";
import { capturedBatches, record } from "../support/fixtures.ts";
import { startTestService } from "../support/service.ts";

const NEW_YORK = "key-of-the-sender-in-new-york";
const KOLKATA = "key-of-the-sender-in-kolkata";
const READER = "key-of-a-reader-of-everything";
const OTHER = "key-of-a-reader-of-another-team";
const ACCESS_KEYS = [
	`new-york:${NEW_YORK}:ingest@west`,
	`kolkata:${KOLKATA}:ingest@east`,
	`reader:${READER}:read`,
	`other:${OTHER}:read@east`,
].join();

/** Posts a captured batch with new ids, whose newest event happens now by the clock of a time zone. */
async function post(to: Endpoints, key: string, timeZone: string, n: number): Promise<void> {
	const batches = capturedBatches();
	const { events } = batches[n % batches.length] ?? { events: [] };
	const timestamp = Temporal.Now.plainDateTimeISO(timeZone).toString({ smallestUnit: "microsecond" });
	const fresh = events.map((event) => ({ ...event, id: randomUUID(), timestamp }));
	expect((await postEvents(to, key, randomUUID(), JSON.stringify(fresh))).status).toBe(200);
}

async function senders(of: Endpoints, key: string): Promise<Record<string, unknown>[]> {
	const response = await fetch(`${of.http}/api/v1/senders`, { headers: { "X-Access-Token": key } });
	expect(response.status).toBe(200);
	return JSON.parse(await response.text()).senders;
}

describe.each(ENGINES)("senders with $engine", ({ engine, open }) => {
	let databases: EngineDatabases;
	beforeAll(async () => {
		databases = await open();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

	test("have their own time zones, and a wrong one is logged once", async () => {
		const env = { ...(await databases.create()), ACCESS_KEYS };
		await using service = await startTestService(env);
		for (let n = 0; n < 21; n++) {
			await post(service, NEW_YORK, "Etc/GMT+5", n);
			await post(service, KOLKATA, "Asia/Kolkata", n);
		}
		const warned = service
			.log()
			.split("\n")
			.filter((line) => line.includes("sender_clock_wrong"))
			.map((line) => JSON.parse(line));
		expect(warned).toMatchObject([
			{ sender: "new-york", minutes: 300 },
			{ sender: "kolkata", minutes: -330 },
		]);
		expect(await senders(service, READER)).toMatchObject([
			{ name: "kolkata", owner: "east", clock_skew_seconds: -19_800, records: 0, silent: false },
			{ name: "new-york", owner: "west", clock_skew_seconds: 18_000, records: 0, silent: false },
		]);
		expect(await senders(service, OTHER)).toMatchObject([{ name: "kolkata", owner: "east" }]);

		const zones = "new-york=Etc/GMT+5,kolkata=Asia/Kolkata";
		await using corrected = await startTestService({ ...env, ...(await databases.create()), SENDER_TIME_ZONES: zones });
		for (let n = 0; n < 20; n++) {
			await post(corrected, NEW_YORK, "Etc/GMT+5", n);
			await post(corrected, KOLKATA, "Asia/Kolkata", n);
		}
		expect(corrected.log()).not.toContain("sender_clock_wrong");
		const found = await senders(corrected, READER);
		expect(found.map(({ clock_skew_seconds }) => clock_skew_seconds)).toEqual([0, 0]);
	});

	test("a repeated post counts as the last post, and as nothing else", async () => {
		const env = { ...(await databases.create()), ACCESS_KEYS };
		const service = await startTestService(env);
		const [{ events = [] } = {}] = capturedBatches();
		const [id, body] = [randomUUID(), JSON.stringify(record({ updated_at: "2026-01-01T00:00:00Z" }))];
		const postBoth = async () => {
			expect((await postEvents(service, NEW_YORK, id, JSON.stringify(events))).status).toBe(200);
			expect((await postWebhook(service, KOLKATA, body)).status).toBe(200);
		};
		await postBoth();
		const before = await senders(service, READER);
		expect(before).toMatchObject([
			{ name: "kolkata", records: 1, events: 0 },
			{ name: "new-york", records: 0, events: events.length },
		]);
		const repeatedAt = Date.now();
		await postBoth();
		await service.stop();
		await using again = await service.restart();
		const after = await senders(again, READER);
		expect(after).toEqual(before.map((one) => ({ ...one, last_post_at: expect.any(String) })));
		for (const { last_post_at } of after) expect(Date.parse(String(last_post_at))).toBeGreaterThanOrEqual(repeatedAt);
		for (const { last_post_at } of before) expect(Date.parse(String(last_post_at))).toBeLessThan(repeatedAt);
	});

	test("have their posts and refusals counted, also by replicas and after a restart", async () => {
		const env = { ...(await databases.create()), ACCESS_KEYS };
		const count = engine === "PostgreSQL" ? 2 : 1;
		const services = await Promise.all(Array.from({ length: count }, () => startTestService(env)));
		let events = 0;
		for (const [n, service] of services.entries()) {
			await post(service, NEW_YORK, "UTC", n);
			events += capturedBatches()[n]?.events.length ?? 0;
			expect((await postEvents(service, NEW_YORK, randomUUID(), "[{}]")).status).toBe(422);
			expect((await postEvents(service, OTHER, randomUUID(), "[]")).status).toBe(403);
			await service[Symbol.asyncDispose]();
		}
		await using service = await startTestService(env);
		const totals = [
			{ name: "new-york", refusals: { invalid_record: count }, events },
			{ name: "other", refusals: { permission_denied: count }, events: 0 },
		];
		const found = await senders(service, READER);
		expect(
			found.map(({ name, refusals_last_day, events: stored }) => ({
				name,
				refusals: refusals_last_day,
				events: stored,
			})),
		).toEqual(totals);
		const rpc = createClient(
			ConversationSenderService,
			createConnectTransport({ baseUrl: service.http, httpVersion: "1.1" }),
		);
		const listed = await rpc.listSenders({}, { headers: { "X-Access-Token": READER } });
		expect(listed.senders.map(({ name, refusalsLastHour }) => ({ name, refusalsLastHour }))).toEqual(
			found.map(({ name }) => ({
				name,
				refusalsLastHour: name === "other" ? { permission_denied: BigInt(count) } : { invalid_record: BigInt(count) },
			})),
		);
	});
});
