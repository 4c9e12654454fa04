import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { type EventCondition, eventMeets } from "../../src/store/condition.ts";
import type { StoredEvent } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, effect, event, stateUpdate, storedEvent } from "./event-samples.ts";
import { all, at, emptyState, eventSteps } from "./event-steps.ts";
import { append, sample } from "./samples.ts";

/** Returns the id of an event. */
function idOf(stored: StoredEvent | undefined): string {
	if (stored === undefined || "unreadable" in stored.event) throw new Error("there is no such event");
	return String(JSON.parse(Buffer.from(stored.event.text).toString()).id);
}

/** Tests of appends of events, and of their lists. */
export function eventConformance(current: () => Store, reopen: () => Promise<Store>): void {
	let store: Store;
	beforeEach(() => {
		store = current();
	});
	const { appendBatch, history, post } = eventSteps(() => store);

	describe("appendEvents", () => {
		it("numbers the events of all conversations from 1 upwards, and stores an id once per conversation", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const events = [event({ secrets: ["/value/a~1b", ""] }), stateUpdate(), event({ message: "said" })];
			const more = event({ text: Buffer.from("x".repeat(100_000)) });
			const first = batch(a, events, { receivedAt: at(1) });
			const other = batch(b, events.slice(0, 1), { receivedAt: at(2) });
			const again = batch(a, [...events, more], { receivedAt: at(3) });
			const stored = (count: number, newest: bigint) => ({ stored: count, newest, updateSequence: undefined });
			expect(await appendEvents(store, first)).toEqual(stored(3, 3n));
			expect(await appendEvents(store, other)).toEqual(stored(1, 4n));
			expect(await appendEvents(store, again)).toEqual(stored(1, 5n));
			expect(await appendEvents(store, again)).toEqual(stored(0, 0n));
			const ofFirst = events.map((one, n) => storedEvent(first, one, BigInt(n + 1)));
			const ofOther = storedEvent(other, events[0] ?? more, 4n);
			const expected = [...ofFirst, ofOther, storedEvent(again, more, 5n)];
			expect(await store.events.list(all)).toEqual(expected);
			expect(await store.events.list({ ...all, conversationId: b })).toEqual([ofOther]);
			expect(await store.events.list({ ...all, after: 1n, limit: 2 })).toEqual(expected.slice(1, 3));
			expect(await store.events.list({ ...all, conversationId: a, after: 2n })).toEqual([expected[2], expected[4]]);
			const newestFirst = { ...all, newestFirst: true };
			expect(await store.events.list(newestFirst)).toEqual(expected.toReversed());
			expect(await store.events.list({ ...newestFirst, after: 1n, before: 5n, limit: 2 })).toEqual([
				...[expected[3], expected[2]],
			]);
			expect(await store.events.list({ ...newestFirst, maxBytes: 1 })).toEqual([expected[4]]);
			expect(await store.events.list({ ...all, conversationId: a, before: 3n })).toEqual([
				...expected.slice(0, 2).filter(({ conversationId }) => conversationId === a),
			]);
			for (const { kind } of expected) {
				const conditions: EventCondition[] = [{ kind: "none_of", field: "kind", values: [kind] }];
				const others = expected.filter((one) => eventMeets(conditions, one));
				expect(others).toEqual(expected.filter((one) => one.kind !== kind));
				expect(await store.events.list({ ...all, conditions })).toEqual(others);
			}
			expect(await store.events.list({ ...all, conversationId: randomUUID() })).toEqual([]);
			expect(await store.events.range()).toEqual({ newest: 5n, prunedThrough: 0n, lastRemoval: 0n });
			expect(await store.updates.range()).toEqual({ newest: 0n, prunedThrough: 0n, lastRemoval: 0n });
			expect(await store.get(a)).toBeUndefined();
			store = await reopen();
			expect(await store.events.list(all)).toEqual(expected);
			expect(await appendBatch(a, [event()])).toMatchObject({ newest: 6n });
		});

		it("lists conversations without a record after the others, by their newest events, until the last one is pruned", async () => {
			const [a, b, c] = [randomUUID(), randomUUID(), randomUUID()];
			const listed = async () => {
				const page = await store.listConversations({ conditions: [], limit: 10, withRecords: true });
				return page.map(({ conversationId, sequence, record }) => [
					conversationId,
					sequence > 0n,
					record !== undefined,
				]);
			};
			const total = async () => (await store.countConversations({ conditions: [], group: undefined, limit: 1 })).total;
			await appendEvents(store, batch(a, [event(), event()], { receivedAt: at(1) }));
			await Promise.all([
				appendEvents(store, batch(b, [event()], { receivedAt: at(1) })),
				append(store, sample({ conversationId: c })),
			]);
			expect(await listed()).toEqual([
				[c, true, true],
				[b, false, false],
				[a, false, false],
			]);
			await appendEvents(store, batch(a, [event()], { receivedAt: at(3) }));
			store = await reopen();
			expect(await listed()).toEqual([
				[c, true, true],
				[a, false, false],
				[b, false, false],
			]);
			expect(await total()).toBe(3);
			expect(await store.getRecordState(a, [])).toMatchObject({ revision: -3n, current: undefined });
			expect(await store.pruneEvents(at(2), 10)).toBe(3);
			expect((await listed()).map(([id]) => id)).toEqual([c, a]);
			expect([await total(), await store.listGaps(b)]).toEqual([2, []]);
			await append(store, sample({ conversationId: a }));
			expect(await listed()).toEqual([
				[a, true, true],
				[c, true, true],
			]);
			expect([await total(), await store.listGaps(a)]).toEqual([2, []]);
		});

		it("stores the first of several events with the same id in a batch", async () => {
			const twice = [
				event({ eventId: "twice", message: "first" }),
				event(),
				event({ eventId: "twice", message: "second" }),
			];
			const sent = batch(randomUUID(), twice);
			expect(await appendEvents(store, sent)).toMatchObject({ stored: 2, newest: 2n, updateSequence: undefined });
			const kept = twice.slice(0, 2).map((one, n) => storedEvent(sent, one, BigInt(n + 1)));
			expect(await store.events.list(all)).toEqual(kept);
		});

		it("stores batches and updates that arrive together, and notifies listeners of each log separately", async () => {
			const heard: { events: bigint[]; updates: bigint[] } = { events: [], updates: [] };
			const stops = [
				store.events.subscribe((newest) => heard.events.push(newest)),
				store.updates.subscribe((newest) => heard.updates.push(newest)),
			];
			const ids = Array.from({ length: 100 }, () => randomUUID());
			const outcomes = await Promise.all(
				ids.flatMap((id) => [append(store, sample({ conversationId: id })), appendBatch(id, [event(), event()])]),
			);
			expect(outcomes.filter((outcome) => "stored" in outcome && outcome.stored === 2)).toHaveLength(100);
			await expect.poll(() => [heard.events.at(-1), heard.updates.at(-1)]).toEqual([200n, 100n]);
			const events = await store.events.list(all);
			expect(events.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 200 }, (_, n) => BigInt(n + 1)));
			for (let n = 0; n < 200; n += 2) expect(events[n]?.conversationId).toBe(events[n + 1]?.conversationId);
			const { length } = heard.updates;
			await appendBatch(ids[0] ?? "", [event()]);
			await expect.poll(() => heard.events.at(-1)).toBe(201n);
			expect(heard.updates).toHaveLength(length);
			for (const stop of stops) stop();
		});

		it("writes nothing of a batch that expects another revision of the record state", async () => {
			const a = randomUUID();
			expect(await appendEvents(store, batch(a, [stateUpdate()], { effect: effect(1n, "stale") }))).toBeUndefined();
			expect(await store.getRecordState(a, [])).toEqual({ revision: 0n, ...emptyState });
			await post(a, "posted", 1);
			await post(a, "posted again", 2);
			for (const expects of [0n, 1n, 3n])
				expect(
					await appendEvents(store, batch(a, [stateUpdate()], { effect: effect(expects, "stale") })),
				).toBeUndefined();
			expect(await store.events.list(all)).toEqual([]);
			expect(await history(a)).toEqual(["posted posted", "posted again posted"]);
			const taken = await Promise.all(
				["one", "other"].map((title) => appendEvents(store, batch(a, [stateUpdate()], { effect: effect(2n, title) }))),
			);
			expect(taken.filter((outcome) => outcome !== undefined)).toHaveLength(1);
			expect(await store.events.list(all)).toHaveLength(1);
		});
	});

	describe("a list of events", () => {
		it("has the same events as a linear search, for any conditions and page size", async () => {
			const kinds = ["MessageEvent", "ActionEvent", "a 'quoted' kind", ""];
			const values = fc.uniqueArray(fc.constantFrom(...kinds, "user", "agent"), { maxLength: 3 });
			const time = fc.integer({ min: -1, max: 41 }).map((n) => at(n));
			const condition: fc.Arbitrary<EventCondition> = fc.oneof(
				fc.record({ kind: fc.constant("one_of" as const), field: fc.constantFrom("kind", "source"), values }),
				fc.record(
					{ kind: fc.constant("happened" as const), from: time, to: fc.oneof(time, fc.constant(2n ** 80n)) },
					{ requiredKeys: ["kind"] },
				),
			);
			const ids = [randomUUID(), randomUUID()];
			for (let n = 0; n < 40; n++) {
				const of = { kind: kinds[n % 4] ?? "", source: n % 3 === 0 ? "user" : "agent", happenedAt: at((n * 7) % 40) };
				await appendBatch(ids[n % 2] ?? "", [event(of)]);
			}
			const everything = await store.events.list(all);
			const [third] = everything.slice(2);
			expect(everything.filter((one) => eventMeets([{ kind: "id", value: idOf(third) }], one))).toEqual([third]);
			const query = fc.tuple(
				fc.array(condition, { maxLength: 3 }),
				fc.option(fc.constantFrom(...ids), { nil: undefined }),
				fc.integer({ min: 1, max: 15 }),
			);
			await fc.assert(
				fc.asyncProperty(query, async ([by, conversationId, limit]) => {
					const expected = everything.filter(
						(one) => (conversationId ?? one.conversationId) === one.conversationId && eventMeets(by, one),
					);
					const found = [];
					for (let after = 0n; ; ) {
						const page = await store.events.list({ after, conversationId, conditions: by, limit });
						found.push(...page);
						if (page.length < limit) break;
						after = page.at(-1)?.sequence ?? 0n;
					}
					expect(found).toEqual(expected);
				}),
			);
		});

		it("has the events of a range of time, whichever of them happened before earlier ones", async () => {
			const ids = [randomUUID(), randomUUID(), randomUUID()];
			const count = 3_600;
			for (let n = 0; n < count; n += 300) {
				const events = Array.from({ length: 300 }, (_, index) =>
					// Every 700th event is late by an hour.
					event({ happenedAt: at(n + index - ((n + index) % 700 === 650 ? 3_600 : 0)) }),
				);
				await appendBatch(ids[(n / 300) % 3] ?? "", events);
			}
			const everything: StoredEvent[] = [];
			while (everything.length < count)
				everything.push(...(await store.events.list({ ...all, after: everything.at(-1)?.sequence ?? 0n })));
			const time = fc.option(fc.integer({ min: -1_000, max: count + 10 }).map(at), { nil: undefined });
			const query = fc.record({
				from: time,
				to: time,
				conversationId: fc.option(fc.constantFrom(...ids), { nil: undefined }),
				newestFirst: fc.boolean(),
				after: fc.integer({ max: count, min: 0 }).map((n) => everything[n]?.sequence ?? 0n),
				limit: fc.constantFrom(1, 20, 1_000),
			});
			await fc.assert(
				fc.asyncProperty(query, async ({ from, to, ...others }) => {
					const { conversationId, newestFirst, after, limit } = others;
					const conditions: EventCondition[] = [
						...(from === undefined ? [] : [{ kind: "happened" as const, from }]),
						...(to === undefined ? [] : [{ kind: "happened" as const, to }]),
					];
					const expected = everything.filter(
						(one) =>
							(conversationId ?? one.conversationId) === one.conversationId &&
							one.sequence > after &&
							eventMeets(conditions, one),
					);
					const ordered = newestFirst ? expected.toReversed() : expected;
					const found = await store.events.list({ ...others, conditions });
					expect(found.map(({ sequence }) => sequence)).toEqual(
						ordered.slice(0, limit).map(({ sequence }) => sequence),
					);
				}),
				{ numRuns: 40 },
			);
		});

		it("finds events by their id, in one conversation or in all", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const longest = "x".repeat(256);
			await appendBatch(a, [event({ eventId: "one" }), event({ eventId: longest })]);
			await appendBatch(b, [event({ eventId: "two" }), event({ eventId: "one" })]);
			const find = async (value: string, conversationId?: string) =>
				(await store.events.list({ ...all, conversationId, conditions: [{ kind: "id", value }] })).map(
					({ sequence, conversationId: id }) => [sequence, id],
				);
			expect(await find("one")).toEqual([
				[1n, a],
				[4n, b],
			]);
			expect(await find("one", b)).toEqual([[4n, b]]);
			expect(await find(longest, a)).toEqual([[2n, a]]);
			expect(await find("two", a)).toEqual([]);
			expect(await find("One")).toEqual([]);
		});

		it("stops before the texts exceed `maxBytes`, but has at least one event", async () => {
			for (const size of [30, 30, 40_000, 30])
				await appendBatch(randomUUID(), [event({ text: Buffer.alloc(size, "x") })]);
			const count = async (after: bigint, maxBytes: number) =>
				(await store.events.list({ ...all, after, maxBytes })).length;
			expect(await count(0n, 60)).toBe(2);
			expect(await count(0n, 40_059)).toBe(2);
			expect(await count(0n, 40_060)).toBe(3);
			expect(await count(0n, 0)).toBe(1);
			expect(await count(2n, 0)).toBe(1);
		});
	});
}
