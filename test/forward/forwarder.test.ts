import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { LOOK } from "../../src/forward/endpoint-worker.ts";
import type { Answer } from "../../src/forward/http-sink.ts";
import type { Store } from "../../src/store/store.ts";
import { append, sample, start } from "../store/samples.ts";
import { CALLER, Forwarding, OK } from "./forwarding.ts";
import { eventually, stores } from "./stores.ts";

const HOUR = 3_600_000;
/** The waits before the retries that issue 36 lists, in milliseconds. */
const LISTED = [5_000, 30_000, 120_000, 600_000, HOUR, ...Array.from({ length: 12 }, () => 6 * HOUR)];
const failure = (status: number, retryAfter?: number): Answer => ({ status, error: "no", answer: "", retryAfter });

describe.each(stores())("with $engine", ({ engine, make }) => {
	const open = async () => await (await make())();

	test("a delivery that fails alone is tried again after the listed times, then it is failed, and its conversation goes on", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		const [bad, good] = [randomUUID(), randomUUID()];
		const first = await append(forwarding.store, sample({ conversationId: bad }));
		const second = await append(forwarding.store, sample({ conversationId: bad }));
		forwarding.answer = ({ sequence }) => (sequence === first.sequence ? failure(404) : OK);
		forwarding.start();
		const waits: number[] = [];
		for (let attempts = 1; attempts <= LISTED.length; attempts++) {
			const row = await forwarding.until(bad, (one) => one.attempts === attempts);
			expect(row).toMatchObject({ sequence: first.sequence, state: "waiting" });
			waits.push(Number((row.nextAt ?? 0n) / 1000n) - forwarding.clock.now());
			forwarding.clock.advance(waits.at(-1) ?? 0);
			// So the endpoint is not disabled.
			await append(forwarding.store, sample({ conversationId: good }));
			await eventually(() =>
				expect(forwarding.sent.filter((one) => one.conversationId === good)).toHaveLength(attempts),
			);
		}
		expect(waits).toEqual(LISTED);
		expect(await forwarding.until(bad, ({ state }) => state === "failed")).toMatchObject({ attempts: 18 });
		expect(await forwarding.until(bad, ({ state }) => state === "delivered")).toMatchObject({
			sequence: second.sequence,
		});
		const [failed] = (await forwarding.deliveries()).filter(({ state }) => state === "failed");
		forwarding.answer = () => OK;
		await forwarding.endpoints.retry({ name: "hook", owner: "" }, failed?.id ?? "", CALLER);
		await eventually(async () =>
			expect((await forwarding.deliveries()).every(({ state }) => state === "delivered")).toBe(true),
		);
		expect(forwarding.sent.at(-1)?.id).toBe(failed?.id);
		expect(forwarding.errors).toEqual([]);
	});

	test("what is thrown while a delivery is made is a failed try with a reason, and its conversation goes on", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		const conversationId = randomUUID();
		const first = await append(forwarding.store, sample({ conversationId }));
		forwarding.answer = ({ sequence }) => {
			if (sequence === first.sequence) throw new RangeError("invalid fixed64");
			return OK;
		};
		forwarding.start();
		const row = await forwarding.until(conversationId, ({ attempts }) => attempts === 1);
		const error = "the delivery cannot be made: invalid fixed64";
		expect(row).toMatchObject({ state: "waiting", tries: [{ status: 0, error, answer: "" }] });
		expect(forwarding.errors).toEqual([new RangeError("invalid fixed64")]);
		forwarding.answer = () => OK;
		forwarding.clock.advance(5_000);
		expect(await forwarding.until(conversationId, ({ state }) => state === "delivered")).toMatchObject({
			attempts: 1,
			tries: [{ error }, { error: "", status: 200 }],
		});
	});

	test("what is put into the queue after the erasure of its conversation leaves no id", async () => {
		// What is told is not stored any more.
		await using forwarding = new Forwarding(await open(), { tell: async () => undefined });
		await forwarding.create();
		const [endpoint] = await forwarding.store.tables.read.listEndpoints({ owner: undefined });
		const conversationId = randomUUID();
		const { sequence } = await append(forwarding.store, sample({ conversationId }));
		await forwarding.store.erase({ conversationId, owner: undefined, erasedAt: 1n });
		const delivery = { id: "late", change: "STARTED", conversationId, sequence, data: undefined };
		const at = BigInt(forwarding.clock.now()) * 1000n;
		await forwarding.store.tables.write.enqueueDeliveries({ id: endpoint?.id ?? "", deliveries: [delivery], at });
		forwarding.start();
		const found = async () => (await forwarding.deliveries()).find(({ id }) => id === "late");
		await eventually(async () => expect(await found()).toMatchObject({ state: "lost" }));
		expect(await found()).toMatchObject({ conversationId: "", data: undefined });
		expect(forwarding.sent.map(({ id }) => id)).not.toContain("late");
	});

	test("each conversation is told in order, and at most 8 deliveries are under way", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		const ids = Array.from({ length: 20 }, () => randomUUID());
		let underWay = 0;
		let most = 0;
		const refused = new Set<string>();
		forwarding.answer = async ({ id }) => {
			underWay += 1;
			most = Math.max(most, underWay);
			await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
			underWay -= 1;
			// Each fifth is refused once.
			if (refused.size % 5 !== 0 || refused.has(id)) return OK;
			refused.add(id);
			return failure(409);
		};
		const appended: [string, bigint][] = [];
		for (let round = 0; round < 4; round++)
			for (const conversationId of ids)
				appended.push([conversationId, (await append(forwarding.store, sample({ conversationId }))).sequence]);
		forwarding.start();
		await eventually(async () => {
			forwarding.clock.advance(5_000);
			const rows = await forwarding.deliveries();
			expect(rows.filter(({ state }) => state === "delivered")).toHaveLength(80);
		}, 100);
		expect(most).toBeLessThanOrEqual(8);
		expect(most).toBeGreaterThan(4);
		for (const id of ids) {
			const told = forwarding.sent
				.filter(({ conversationId }) => conversationId === id)
				.map(({ sequence }) => sequence);
			const order = [...new Set(told)];
			expect(order).toEqual(appended.filter(([of]) => of === id).map(([, sequence]) => sequence));
			expect(told).toEqual(told.toSorted((a, b) => Number((a ?? 0n) - (b ?? 0n))));
		}
	});

	test("an endpoint that answers 503 to all is tried with one at a time, and all goes on with its first success", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		let underWay = 0;
		const together: number[] = [];
		let release: () => void = () => undefined;
		let isAway = true;
		forwarding.answer = async () => {
			underWay += 1;
			together.push(underWay);
			await new Promise<void>((resolve) => {
				release = resolve;
				if (together.length < 8 || !isAway) resolve();
			});
			underWay -= 1;
			return isAway ? failure(503) : OK;
		};
		for (let n = 0; n < 12; n++) await append(forwarding.store, sample());
		forwarding.start();
		await eventually(() => expect(forwarding.sent.length).toBeGreaterThanOrEqual(8));
		release();
		await eventually(async () =>
			expect((await forwarding.endpoints.get({ name: "hook", owner: "" }, CALLER)).failures).toBeGreaterThanOrEqual(8),
		);
		const before = forwarding.sent.length;
		for (let probe = 1; probe <= 3; probe++) {
			forwarding.clock.advance(5_000);
			await forwarding.count(before + probe);
			release();
			await eventually(() => expect(underWay).toBe(0));
			await eventually(async () => {
				const { failures } = await forwarding.endpoints.get({ name: "hook", owner: "" }, CALLER);
				expect(failures).toBe(before + probe);
			});
		}
		expect(together.slice(before)).toEqual([1, 1, 1]);
		isAway = false;
		forwarding.clock.advance(5_000);
		await eventually(async () =>
			expect((await forwarding.deliveries()).filter(({ state }) => state === "delivered")).toHaveLength(12),
		);
		expect((await forwarding.endpoints.get({ name: "hook", owner: "" }, CALLER)).failures).toBe(0);
	});

	test("410 disables at once; resumed, it goes on from its position or from now", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		forwarding.start();
		forwarding.answer = () => failure(410);
		const one = await append(forwarding.store, sample());
		await eventually(() => expect(forwarding.disabled).toEqual(["it answered with 410"]));
		const named = { name: "hook", owner: "" };
		expect(await forwarding.endpoints.get(named, CALLER)).toMatchObject({
			state: "disabled",
			reason: "it answered with 410",
		});
		const two = await append(forwarding.store, sample());
		const figures = {
			...{ name: "hook", owner: "", lost: 0, failing: 0 },
			...{ failed: 0, failedTries: 1 },
		};
		await expect
			.poll(() => forwarding.figures())
			.toEqual([{ ...figures, state: "disabled", waiting: 1, lag: 1, delivered: 0 }]);
		forwarding.answer = () => OK;
		await forwarding.endpoints.resume(named, "position", CALLER);
		await forwarding.count(3);
		expect(forwarding.sent.map(({ sequence }) => sequence)).toEqual([one.sequence, one.sequence, two.sequence]);
		expect(new Set(forwarding.sent.map(({ id }) => id)).size).toBe(2);
		await expect
			.poll(() => forwarding.figures())
			.toEqual([{ ...figures, state: "active", waiting: 0, lag: 0, delivered: 2 }]);

		await forwarding.endpoints.pause(named, CALLER);
		await append(forwarding.store, sample());
		await forwarding.endpoints.resume(named, "now", CALLER);
		const four = await append(forwarding.store, sample());
		await forwarding.count(4);
		expect(forwarding.sent.at(-1)?.sequence).toBe(four.sequence);

		const replayed = await forwarding.endpoints.replay(named, { from: 1n, to: 100n }, CALLER);
		await forwarding.count(4 + replayed);
		expect(replayed).toBe(4);
		expect(forwarding.sent[4]?.id).toBe(forwarding.sent[0]?.id);
	});

	test("follows an update that is told while it reads which one is the newest", async () => {
		const store = await open();
		await append(store, sample());
		const [isRead, isTold] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
		const updates: Store["updates"] = {
			list: (...asked) => store.updates.list(...asked),
			range: async () => {
				const range = await store.updates.range();
				isRead.resolve();
				await isTold.promise;
				return range;
			},
			subscribe: (listener) =>
				store.updates.subscribe((...told) => {
					listener(...told);
					isTold.resolve();
				}),
		};
		const { tables, claim } = store;
		await using forwarding = new Forwarding(store, {
			store: { updates, tables, claim },
		});
		await forwarding.create();
		forwarding.start();
		await isRead.promise;
		const { sequence } = await append(store, sample());
		await forwarding.count(1);
		expect(forwarding.sent.map((one) => one.sequence)).toEqual([sequence]);
	});

	test("3 days without any success disable it", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		forwarding.start();
		forwarding.answer = () => failure(500);
		const id = randomUUID();
		await append(forwarding.store, sample({ conversationId: id }));
		for (let attempts = 1; forwarding.disabled.length === 0; attempts++) {
			const row = await forwarding.until(id, (one) => one.attempts >= attempts);
			if ((await forwarding.endpoints.get({ name: "hook", owner: "" }, CALLER)).state === "disabled") break;
			forwarding.clock.advance(Number((row.nextAt ?? 0n) / 1000n) - forwarding.clock.now());
			await forwarding.count(attempts + 1);
		}
		expect(forwarding.disabled).toEqual(["no delivery succeeded for 3 days"]);
		expect(forwarding.sent.at(-1)?.at).toBeGreaterThanOrEqual((forwarding.sent[0]?.at ?? 0) + 72 * HOUR);
		expect(forwarding.sent.at(-2)?.at).toBeLessThan((forwarding.sent[0]?.at ?? 0) + 72 * HOUR);
	});

	test("429 with Retry-After puts off all deliveries", async () => {
		await using forwarding = new Forwarding(await open());
		await forwarding.create();
		forwarding.start();
		const busy = randomUUID();
		forwarding.answer = () => failure(429, 60_000);
		await append(forwarding.store, sample({ conversationId: busy }));
		const row = await forwarding.until(busy, ({ attempts }) => attempts === 1);
		expect(Number((row.nextAt ?? 0n) / 1000n) - forwarding.clock.now()).toBe(60_000);
		forwarding.answer = () => OK;
		const other = randomUUID();
		await append(forwarding.store, sample({ conversationId: other }));
		await forwarding.until(other, ({ state }) => state === "waiting");
		forwarding.clock.advance(60_000);
		await forwarding.until(busy, ({ state }) => state === "delivered");
		await forwarding.until(other, ({ state }) => state === "delivered");
		expect(forwarding.sent.slice(1).every(({ at }) => at === forwarding.clock.now())).toBe(true);
	});

	test("what retention removes before it was sent is counted", async () => {
		await using forwarding = new Forwarding(await open());
		const named = { name: "hook", owner: "" };
		await forwarding.create();
		await forwarding.endpoints.pause(named, CALLER);
		const conversationId = randomUUID();
		for (let n = 0; n < 5; n++)
			await append(forwarding.store, sample({ conversationId, receivedAt: start + BigInt(n) }));
		await forwarding.store.prune({ updatesPerConversation: 2, limit: 100 });
		expect(await forwarding.endpoints.get(named, CALLER)).toMatchObject({ lost: 3n, position: 0n });
		forwarding.start();
		await forwarding.endpoints.resume(named, "position", CALLER);
		await forwarding.count(2);
	});

	test("a process that follows from a former position puts nothing into the queue", async () => {
		await using forwarding = new Forwarding(await open());
		const { advanceEndpoint } = forwarding.store.tables.write;
		await forwarding.create();
		const [listed] = await forwarding.endpoints.list(CALLER);
		const delivery = { id: "d", change: "STARTED", conversationId: randomUUID(), sequence: 1n, data: undefined };
		const advance = { id: listed?.id ?? "", from: 0n, position: 8n, deliveries: [], at: 0n };
		expect(await advanceEndpoint(advance)).toBe(true);
		expect(await advanceEndpoint({ ...advance, position: 7n, deliveries: [delivery] })).toBe(false);
		expect((await forwarding.endpoints.list(CALLER))[0]).toMatchObject({ position: 8n, waiting: 0 });
	});

	// Only one process has a database of SQLite.
	if (engine === "PostgreSQL")
		test("of two processes, one delivers, and the other one follows when its claim has ended", async () => {
			const open = await make();
			await using forwarding = new Forwarding(await open());
			await forwarding.create();
			const [listed] = await forwarding.endpoints.list(CALLER);
			const now = BigInt(Date.now()) * 1000n;
			const until = now + 1_500_000n;
			await using other = await open();
			const holder = "a process that was killed";
			expect(await other.claim({ name: `forward ${listed?.id}`, holder, now, until })).toBe(true);
			forwarding.start();
			await append(forwarding.store, sample());
			await eventually(() => {
				forwarding.clock.advance(LOOK);
				expect(forwarding.sent).toHaveLength(1);
			});
			expect(BigInt(Date.now()) * 1000n).toBeGreaterThanOrEqual(until);
		});
});
