import { randomUUID } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { toMicroseconds } from "../../src/record/json/scalars.ts";
import type { AppendedEvents, RecordState } from "../../src/store/event-batch.ts";
import { type EventCondition, eventMeets } from "../../src/store/event-condition.ts";
import type { NewEvent, StoredEvent } from "../../src/store/events.ts";
import type { Store } from "../../src/store/store.ts";
import type { StoredRecord, Unreadable } from "../../src/store/stored-record.ts";
import type { Appended, StoredUpdate } from "../../src/store/updates.ts";
import {
	appendEvents,
	batch,
	effect,
	effectOf,
	event,
	record,
	stateUpdate,
	storedEvent,
	withActivity,
} from "./event-samples.ts";
import { append, bytes, conditions, type Sample, sample, second, start, stored, summaryWithTimes } from "./samples.ts";

/** Returns the id of a sample. */
function idOf(stored: StoredEvent | undefined): string {
	if (stored === undefined || "unreadable" in stored.event) throw new Error("there is no such event");
	return String(JSON.parse(Buffer.from(stored.event.text).toString()).id);
}

const at = (n: number) => start + BigInt(n) * second;

/** Tests of events, and of the record versions that state updates produce. */
export function eventConformance(current: () => Store, reopen: () => Promise<Store>): void {
	let store: Store;
	beforeEach(() => {
		store = current();
	});

	const all = { after: 0n, limit: 1_000 };
	const emptyState: Omit<RecordState, "revision"> = {
		memberTimes: undefined,
		postedAt: undefined,
		hasUnappliedEvents: false,
		current: undefined,
		knownIds: [],
	};

	/** Appends a batch. Throws if the store writes nothing of it. */
	async function appendBatch(...args: Parameters<typeof batch>): Promise<AppendedEvents> {
		const appended = await appendEvents(store, batch(...args));
		if (appended === undefined) throw new Error("the store refused the batch");
		return appended;
	}

	/** Appends a posted record with a title. It was updated and received a number of seconds after `start`. */
	async function post(
		conversationId: string,
		title: string,
		seconds: number,
		more: Partial<Sample["columns"]> = {},
		leafEventId = "posted",
	) {
		const update = sample({
			conversationId,
			receivedAt: at(seconds),
			redactionVersion: 7,
			record: record({ id: conversationId, title, tags: { padding: "x".repeat(400) }, leafEventId }),
			columns: { title, updatedAt: at(seconds), ...more },
		});
		return { update, appended: await append(store, update) };
	}

	const decoded = (found: StoredRecord | Unreadable | undefined) => {
		if (found === undefined || "unreadable" in found) throw new Error("there is no record to read");
		const { title, leafEventId, tags, id } = fromBinary(ConversationInfoSchema, found.bytes);
		expect([id?.length, tags.padding?.length]).toEqual([36, 400]);
		return `${title} ${leafEventId}`;
	};
	const titles = (updates: readonly StoredUpdate[]) => updates.map((update) => decoded(update.record));
	const history = (conversationId: string) =>
		store.updates.list({ ...all, conversationId, withRecords: true }).then(titles);

	describe("appendEvents", () => {
		it("numbers the events of all conversations from 1 upwards, and stores an id once per conversation", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const events = [event({ secrets: ["/value/a~1b", ""] }), stateUpdate(), event({ message: "said" })];
			const more = event({ text: Buffer.from("x".repeat(100_000)) });
			const first = batch(a, events, { receivedAt: at(1) });
			const other = batch(b, events.slice(0, 1), { receivedAt: at(2) });
			const again = batch(a, [...events, more], { receivedAt: at(3) });
			expect(await appendEvents(store, first)).toEqual({ stored: 3, newest: 3n, updateSequence: undefined });
			expect(await appendEvents(store, other)).toEqual({ stored: 1, newest: 4n, updateSequence: undefined });
			expect(await appendEvents(store, again)).toEqual({ stored: 1, newest: 5n, updateSequence: undefined });
			expect(await appendEvents(store, again)).toEqual({ stored: 0, newest: 0n, updateSequence: undefined });
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
			expect(await store.listConversations({ conditions: [], limit: 10, withRecords: false })).toEqual([]);
			store = await reopen();
			expect(await store.events.list(all)).toEqual(expected);
			expect(await appendBatch(a, [event()])).toMatchObject({ newest: 6n });
		});

		it("stores the first of several events with the same id in a batch", async () => {
			const twice = [
				event({ eventId: "twice", message: "first" }),
				event(),
				event({ eventId: "twice", message: "second" }),
			];
			const sent = batch(randomUUID(), twice);
			expect(await appendEvents(store, sent)).toEqual({ stored: 2, newest: 2n, updateSequence: undefined });
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

	describe("versions that events make", () => {
		it("are returned by every read as whole records, with the other fields of the posted record", async () => {
			const a = randomUUID();
			const { update, appended } = await post(a, "posted", 1, { status: "idle" }, "");
			const reported = stateUpdate({ happenedAt: at(5) });
			const running = effect(1n, "first", { status: "running" });
			const one = await appendBatch(a, [reported], { effect: running, receivedAt: at(6) });
			expect(one).toEqual({ stored: 1, newest: 1n, updateSequence: 2n, updateChange: UpdateChange.RUNNING });
			const finished = effect(2n, "second", { status: "finished" }, { schemaVersion: 4 });
			const two = await appendBatch(a, [stateUpdate({ happenedAt: at(7) })], { effect: finished, receivedAt: at(8) });
			const encoded = (title: string) =>
				bytes(Buffer.concat([recordWithoutTitle(update.record.bytes), record({ title })]));
			const version = (n: number, title: string, change: UpdateChange, summary: Uint8Array, versions: object) => ({
				conversationId: a,
				sequence: BigInt(n),
				receivedAt: at(n === 2 ? 6 : 8),
				origin: UpdateOrigin.EVENTS,
				change,
				current: true,
				previousSequence: BigInt(n - 1),
				summary: withActivity(
					summaryWithTimes(summary, { createdAt: start, updatedAt: at(n === 2 ? 6 : 8) }),
					BigInt(n - 1),
					at(n === 2 ? 5 : 7),
					{ runStartedAt: at(6) },
				),
				record: { bytes: encoded(title), ...versions },
			});
			const [{ version: v1 }, { version: v2 }] = [running, finished];
			if (v1 === undefined || v2 === undefined) throw new Error("both make a version");
			const versions = { redactionVersion: 7, schemaVersion: 3 };
			const expected = [
				stored(update, appended),
				version(2, "first", UpdateChange.RUNNING, v1.summary, versions),
				version(3, "second", UpdateChange.FINISHED, v2.summary, { ...versions, schemaVersion: 0 }),
			];
			const check = async () => {
				expect(await store.updates.list({ ...all, withRecords: true })).toEqual(expected);
				expect(await store.get(a)).toEqual(expected[2]);
				for (const n of [1, 2, 3]) expect(await store.get(a, BigInt(n))).toEqual(expected[n - 1]);
				const page = { conditions: conditions({ status: "finished" }), limit: 10, withRecords: true };
				expect(await store.listConversations(page)).toEqual([
					{ conversationId: a, sequence: 3n, summary: expected[2]?.summary, record: expected[2]?.record },
				]);
				expect(await store.getRecordState(a, ["unknown", reported.eventId])).toEqual({
					revision: 3n,
					memberTimes: "reported over 2",
					postedAt: at(1),
					hasUnappliedEvents: false,
					current: expected[2],
					knownIds: [reported.eventId],
				});
			};
			expect(two).toEqual({ stored: 1, newest: 2n, updateSequence: 3n, updateChange: UpdateChange.FINISHED });
			await check();
			store = await reopen();
			await check();
			const of = (origin: UpdateOrigin, more: object = {}) =>
				store.updates
					.list({ ...all, ...more, origin, withRecords: false })
					.then((updates) => updates.map(({ sequence }) => sequence));
			expect(await of(UpdateOrigin.POSTED)).toEqual([1n]);
			expect(await of(UpdateOrigin.EVENTS, { conversationId: a })).toEqual([2n, 3n]);
			expect(await of(UpdateOrigin.EVENTS, { limit: 1 })).toEqual([2n]);
			expect(await of(UpdateOrigin.UNSPECIFIED)).toEqual([1n, 2n, 3n]);
		});

		it("are returned whole also when large changes make the store keep some of them without a base", async () => {
			const a = randomUUID();
			await post(a, "posted", 1);
			const said = Array.from({ length: 12 }, (_, n) => `${n} ${"y".repeat((n % 3) * 200)}`);
			for (const [n, title] of said.entries()) await appendBatch(a, [], { effect: effect(BigInt(n + 1), title) });
			expect(await history(a)).toEqual(["posted posted", ...said.map((title) => `${title} posted`)]);
			const { update } = await post(a, "posted again", 2);
			await appendBatch(a, [], { effect: effect(14n, "after it") });
			expect(decoded((await store.get(a))?.record)).toBe("after it posted");
			expect(decoded((await store.get(a, 14n))?.record)).toBe("posted again posted");
			expect(await append(store, update)).toMatchObject({ sequence: 14n, duplicate: true, current: true });
		});

		it("are not written when no member changes; the record state is saved only if there is a record", async () => {
			const a = randomUUID();
			await post(a, "posted", 1);
			const reported = { expects: 1n, next: 2n, memberTimes: "reported", version: undefined };
			expect(await appendBatch(a, [stateUpdate()], { effect: reported })).toMatchObject({
				stored: 1,
				updateSequence: undefined,
			});
			expect(await store.getRecordState(a, [])).toMatchObject({
				revision: 2n,
				memberTimes: "reported",
				current: { sequence: 1n },
			});
			const b = randomUUID();
			expect(await appendBatch(b, [stateUpdate()], { effect: { ...reported, expects: 0n, next: 1n } })).toMatchObject({
				stored: 1,
			});
			expect(await store.getRecordState(b, [])).toEqual({ revision: -1n, ...emptyState });
		});

		it("are not written as the first record when they were made without an event that is stored", async () => {
			const a = randomUUID();
			const first = record({ id: a, title: "reported", tags: { padding: "x".repeat(400) } });
			const { revision } = await store.getRecordState(a, []);
			const reported = { expects: revision, next: 2n ** 61n, memberTimes: "{}", version: undefined };
			await appendBatch(a, [stateUpdate()], { effect: reported });
			const made = batch(a, [stateUpdate()], { effect: effectOf(revision, first) });
			expect([revision, await appendEvents(store, made)]).toEqual([0n, undefined]);
			expect(await store.getRecordState(a, [])).toEqual({ revision: -1n, ...emptyState });
			expect(await appendBatch(a, [stateUpdate()], { effect: effectOf(-1n, first) })).toEqual({
				stored: 1,
				newest: 2n,
				updateSequence: 1n,
				gaps: { count: 1n, since: start },
				updateChange: UpdateChange.STARTED,
			});
			expect(await history(a)).toEqual(["reported undefined"]);
		});

		it("can be the first record of a conversation, which a posted record then replaces", async () => {
			const a = randomUUID();
			const first = record({ id: a, title: "reported", tags: { padding: "x".repeat(400) } });
			const events = [stateUpdate({ happenedAt: at(9) }), event({ eventId: "leaf", happenedAt: at(3) })];
			const { updateSequence } = await appendBatch(a, events, {
				effect: effectOf(0n, first, { status: "running" }),
			});
			expect(updateSequence).toBe(1n);
			const found = await store.getRecordState(a, []);
			expect(found).toMatchObject({
				revision: 1n,
				memberTimes: "reported over 0",
				postedAt: undefined,
				hasUnappliedEvents: false,
			});
			expect(found.current).toMatchObject({ change: UpdateChange.STARTED, current: true, previousSequence: undefined });
			expect(decoded(found.current?.record)).toBe("reported leaf");
			const { appended } = await post(a, "posted", 4);
			expect(appended).toMatchObject({ sequence: 2n, current: true, hasUnappliedEvents: true, duplicate: false });
			expect(await store.getRecordState(a, [])).toMatchObject({
				revision: 2n,
				memberTimes: undefined,
				postedAt: at(4),
			});
			expect(await history(a)).toEqual(["reported leaf", "posted posted"]);
		});

		it("of a record without `updated_at` are replaced when the same record is posted again", async () => {
			const a = randomUUID();
			const { update, appended } = await post(a, "posted", 1, { updatedAt: undefined });
			expect(await append(store, update)).toEqual({ ...appended, gaps: undefined, duplicate: true });
			await appendBatch(a, [], { effect: effect(1n, "reported") });
			expect(await append(store, update)).toMatchObject({ sequence: 3n, duplicate: false, current: true });
			expect(await history(a)).toEqual(["posted posted", "reported posted", "posted posted"]);
		});
	});

	describe("a posted record", () => {
		it("has unapplied events when stored state updates are later, until an effect is appended", async () => {
			const [a, b, c, d] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
			for (const id of [a, b, c, d])
				await appendBatch(id, [stateUpdate({ happenedAt: at(5) }), event({ happenedAt: at(9) })]);
			const outcomes = [
				await post(a, "older", 4),
				await post(b, "as old", 5),
				await post(c, "older", 4, { status: "deleting" }),
				await post(d, "older", 4),
			];
			expect(outcomes.map(({ appended }) => appended.hasUnappliedEvents)).toEqual([true, false, false, true]);
			expect(await append(store, outcomes[0]?.update ?? sample())).toMatchObject({
				duplicate: true,
				hasUnappliedEvents: true,
			});
			expect((await post(a, "too old", 3)).appended).toMatchObject({ current: false, hasUnappliedEvents: true });
			store = await reopen();
			expect(new Set(await store.listUnapplied(10))).toEqual(new Set([a, d]));
			expect(await store.listUnapplied(1)).toHaveLength(1);
			await appendBatch(a, [], { effect: { expects: 1n, next: 2n, memberTimes: "reported", version: undefined } });
			expect(await store.listUnapplied(10)).toEqual([d]);
			expect((await post(d, "newer", 6)).appended).toMatchObject({ current: true, hasUnappliedEvents: false });
			expect(await store.listUnapplied(10)).toEqual([]);
			expect((await post(a, "still older", 4)).appended).toMatchObject({ current: true, hasUnappliedEvents: true });
			await appendBatch(b, [stateUpdate({ happenedAt: at(7) })]);
			expect((await store.getRecordState(b, [])).hasUnappliedEvents).toBe(false);
		});

		it("without `updated_at` is compared with state updates by its time of receipt", async () => {
			const a = randomUUID();
			const of = (receivedAt: bigint) => sample({ conversationId: a, receivedAt, record: record({ id: a }) });
			await appendBatch(a, [stateUpdate({ happenedAt: at(5) })]);
			expect(await append(store, of(at(4)))).toMatchObject({ hasUnappliedEvents: true });
			expect(await store.getRecordState(a, [])).toMatchObject({ postedAt: at(4), hasUnappliedEvents: true });
			expect(await append(store, sample({ ...of(at(5)), record: record({ id: a, title: "x" }) }))).toMatchObject({
				hasUnappliedEvents: false,
			});
		});
	});

	describe("the leaf", () => {
		const leafOf = async (conversationId: string) => {
			const { record: got } = (await store.get(conversationId)) ?? {};
			const { current: same } = await store.getRecordState(conversationId, []);
			const [listed] = await store.listConversations({ conditions: [], limit: 1, withRecords: true });
			expect([same?.record, listed?.record]).toEqual([got, got]);
			return decoded(got).split(" ")[1];
		};
		const leafAt = (eventId: string, n: number): NewEvent => event({ eventId, happenedAt: at(n) });

		it("of the current record follows later events; updates in the history keep their stored leaf", async () => {
			const a = randomUUID();
			await post(a, "posted", 5);
			expect(await leafOf(a)).toBe("posted");
			await appendBatch(a, [leafAt("early", 4), leafAt("same", 5)]);
			expect(await leafOf(a)).toBe("posted");
			await appendBatch(a, [leafAt("later", 8), leafAt("stamped-earlier", 6)]);
			expect(await leafOf(a)).toBe("stamped-earlier");
			await appendBatch(a, [leafAt("late", 7), stateUpdate({ happenedAt: at(20) })]);
			expect(await leafOf(a)).toBe("stamped-earlier");
			await appendBatch(a, [leafAt("later", 8), leafAt("grown-batch", 6)]);
			expect(await leafOf(a)).toBe("grown-batch");
			expect(await history(a)).toEqual(["posted posted"]);
			await appendBatch(a, [leafAt("newest", 9)], { effect: effect(1n, "reported") });
			await appendBatch(a, [leafAt("last", 10)]);
			expect(await leafOf(a)).toBe("last");
			expect(await history(a)).toEqual(["posted posted", "reported newest"]);
			expect(decoded((await store.get(a, 2n))?.record)).toBe("reported newest");
			await post(a, "again", 10);
			expect(await leafOf(a)).toBe("posted");
			await appendBatch(a, [leafAt("after", 11)]);
			expect(await leafOf(a)).toBe("after");
			store = await reopen();
			expect(await leafOf(a)).toBe("after");
			await post(a, "gone", 10, { status: "deleting" });
			expect(await leafOf(a)).toBe("posted");
		});
	});

	describe("activity", () => {
		const listed = async () => {
			const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
			return page.map(({ summary }) => summary);
		};

		it("is the present one in lists and that of the time of writing in updates, also with late batches", async () => {
			const a = randomUUID();
			await appendBatch(a, [event({ happenedAt: at(8), message: "hello" }), event({ happenedAt: at(9) })]);
			const { update } = await post(a, "posted", 1, {}, "");
			expect(await listed()).toEqual([withActivity(update.summary, 2n, at(9), { lastMessage: "hello" })]);
			await appendBatch(a, [event({ happenedAt: at(7), message: "late" })]);
			expect(await listed()).toEqual([withActivity(update.summary, 3n, at(9), { lastMessage: "hello" })]);
			await appendBatch(a, [event({ happenedAt: at(8), message: "same time" }), stateUpdate({ happenedAt: at(10) })]);
			expect(await listed()).toEqual([withActivity(update.summary, 5n, at(10), { lastMessage: "same time" })]);
			const updates = await store.updates.list({ ...all, withRecords: false });
			expect(updates.map(({ summary }) => summary)).toEqual([
				withActivity(update.summary, 2n, at(9), { lastMessage: "hello" }),
			]);
		});

		it("has the first message of a user, and the last error until the conversation runs again", async () => {
			const a = randomUUID();
			const facts = async () => {
				const [summary] = (await listed()).map((bytes) => fromBinary(ConversationSummarySchema, bytes));
				const { firstMessage, lastError: error, runStartedAt } = summary ?? {};
				const { code, kind, retryable, text, eventSequence } = error ?? {};
				const [failed, started] = [error?.happenedAt, runStartedAt].map((time) => time && toMicroseconds(time));
				return [firstMessage, error && [code, kind, retryable, text, failed, eventSequence], started];
			};
			const failure = (code: string, n: number, retryable?: boolean) => {
				const error = { code, kind: "auth", retryable, text: `${code} failed` };
				return event({ kind: "ConversationErrorEvent", source: "environment", happenedAt: at(n), error });
			};
			const said = (message: string, n: number, source = "user") => event({ message, happenedAt: at(n), source });
			await post(a, "posted", 1);
			expect(await facts()).toEqual([undefined, undefined, undefined]);
			await post(a, "posted", 2, { status: "running" });
			expect(await facts()).toEqual([undefined, undefined, at(2)]);
			await appendBatch(a, [said("of the agent", 3, "agent"), said("second", 5), said("first", 4)]);
			const { newest } = await appendBatch(a, [failure("One", 6, true)]);
			const one = ["One", "auth", true, "One failed", at(6), newest];
			expect(await facts()).toEqual(["first", one, at(2)]);
			await appendBatch(a, [failure("Late", 5), said("late", 5), said("same time", 4)]);
			expect(await facts()).toEqual(["first", one, at(2)]);
			const { newest: second } = await appendBatch(a, [stateUpdate({ happenedAt: at(8) }), failure("Two", 7)], {
				effect: effect((await store.getRecordState(a, [])).revision, "failed", { status: "error" }),
			});
			const two = ["Two", "auth", undefined, "Two failed", at(7), second];
			expect(await facts()).toEqual(["first", two, at(2)]);
			store = await reopen();
			expect(await facts()).toEqual(["first", two, at(2)]);
			const { revision } = await store.getRecordState(a, []);
			const running = effect(revision, "runs", { status: "running" });
			const version = running.version && { ...running.version, statusAt: at(9) };
			await appendBatch(a, [stateUpdate({ happenedAt: at(9) })], { effect: { ...running, version } });
			expect(await facts()).toEqual(["first", undefined, at(9)]);
			const updates = await store.updates.list({ ...all, withRecords: false });
			const errors = updates.map(({ summary }) => fromBinary(ConversationSummarySchema, summary).lastError);
			expect(errors.map((error) => error && [error.code, error.eventSequence])).toEqual([
				...[undefined, undefined],
				["Two", second],
				undefined,
			]);
		});

		it("counts each event once and follows the latest by time, in whatever batches they arrive", async () => {
			const said = fc.record({ happenedAt: fc.integer({ max: 9 }).map(at), said: fc.boolean() });
			const arrivals = fc.array(fc.array(fc.nat(7), { maxLength: 4 }), { maxLength: 6 });
			await fc.assert(
				fc.asyncProperty(fc.array(said, { minLength: 8, maxLength: 8 }), arrivals, async (made, batches) => {
					const a = randomUUID();
					const { update } = await post(a, "posted", 1, {}, "");
					const events = made.map(({ happenedAt, said }, n) =>
						event({ happenedAt, message: said ? `message ${n}` : undefined }),
					);
					const seen = new Map<string, NewEvent>();
					for (const indexes of batches) {
						const some = [...new Set(indexes)].flatMap((n) => events[n] ?? []);
						await appendBatch(a, some);
						for (const one of some) if (!seen.has(one.eventId)) seen.set(one.eventId, one);
					}
					const arrived = [...seen.values()];
					const byTime = arrived.toSorted((one, other) => Number(one.happenedAt - other.happenedAt));
					const lastSaid = byTime.findLast(({ message }) => message !== undefined)?.message;
					const { summary } = update;
					const count = BigInt(arrived.length);
					const lastAt = byTime.at(-1)?.happenedAt;
					expect((await listed())[0]).toEqual(
						lastAt === undefined ? bytes(summary) : withActivity(summary, count, lastAt, { lastMessage: lastSaid }),
					);
				}),
				{ numRuns: 30 },
			);
		});
	});

	describe("retention", () => {
		const olderThan = (seconds: number, limit = 100) => ({ receivedBefore: at(seconds), limit });
		const kept = async () => (await store.updates.list({ ...all, withRecords: false })).map((one) => one.sequence);
		const keptEvents = async () => (await store.events.list(all)).map(({ sequence }) => sequence);

		/** Appends a posted record, and then versions that events make that were received 1,000 seconds apart. */
		async function versions(count: number): Promise<{ id: string; posted: Appended }> {
			const id = randomUUID();
			const { appended: posted } = await post(id, "posted", 1);
			for (let n = 1; n <= count; n++)
				await appendBatch(id, [], { effect: effect(BigInt(n), `v${n}`), receivedAt: at(1_000 * n) });
			return { id, posted };
		}

		it("keeps the base record of kept deltas, and no other old history", async () => {
			const { id } = await versions(4);
			expect(await store.prune(olderThan(2_500))).toBe(2);
			expect(await store.prune(olderThan(2_500))).toBe(0);
			expect(await kept()).toEqual([1n, 4n, 5n]);
			expect(await history(id)).toEqual(["posted posted", "v3 posted", "v4 posted"]);
			expect(await store.get(id, 2n)).toBeUndefined();
			expect(await store.get(id, 3n)).toBeUndefined();
			expect(decoded((await store.get(id, 1n))?.record)).toBe("posted posted");
			expect(decoded((await store.get(id, 4n))?.record)).toBe("v3 posted");
			await post(id, "posted again", 9_000);
			let removed = 0;
			for (let step = 1; step > 0; removed += step) step = await store.prune({ updatesPerConversation: 1, limit: 100 });
			expect(removed).toBe(3);
			expect(await history(id)).toEqual(["posted again posted"]);
		});

		it("removes the oldest events in steps, and records how far each conversation was pruned", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			for (let n = 0; n < 6; n++) await appendBatch(n < 4 ? a : b, [event()], { receivedAt: at(n) });
			expect(await store.pruneEvents(at(5), 2)).toBe(2);
			expect(await store.pruneEvents(at(5), 300)).toBe(3);
			expect(await store.pruneEvents(at(5), 300)).toBe(0);
			expect(await keptEvents()).toEqual([6n]);
			const through = (conversationId?: string, afterRemoval?: bigint) =>
				store.events.range({ conversationId, afterRemoval }).then(({ prunedThrough }) => prunedThrough);
			expect(await store.events.range()).toEqual({ newest: 6n, prunedThrough: 5n, lastRemoval: 2n });
			expect([await through(a), await through(b), await through(a, 1n), await through(undefined, 2n)]).toEqual([
				4n,
				5n,
				4n,
				0n,
			]);
			expect(await store.updates.range()).toEqual({ newest: 0n, prunedThrough: 0n, lastRemoval: 0n });
			expect(await store.pruneEvents(at(9), 300)).toBe(1);
			store = await reopen();
			expect(await appendBatch(a, [event()])).toMatchObject({ newest: 7n });
		});

		it("counts pruned events in the activity only if the conversation had a record when they were pruned", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			for (const id of [a, b]) await appendBatch(id, [event({ happenedAt: at(3) })]);
			const { update } = await post(a, "posted", 1, {}, "");
			expect(await store.pruneEvents(at(1), 10)).toBe(2);
			const { update: later } = await post(b, "posted", 1, {}, "");
			const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
			expect(page.map(({ summary }) => summary)).toEqual([
				bytes(later.summary),
				withActivity(update.summary, 1n, at(3)),
			]);
		});

		it("removes a deleted conversation with its events, in steps of at most the limit", async () => {
			const { id } = await versions(2);
			const other = randomUUID();
			await appendBatch(
				id,
				Array.from({ length: 7 }, () => event({ message: "said" })),
			);
			await appendBatch(other, [event()]);
			await post(id, "gone", 2_000, { status: "deleting" });
			const removed: number[] = [];
			do removed.push(await store.prune(olderThan(2_001, 4)));
			while (removed.at(-1) === 4);
			expect(removed).toEqual([4, 4, 3]);
			expect([await kept(), await keptEvents()]).toEqual([[], [8n]]);
			expect(await store.events.range({ conversationId: id })).toMatchObject({ newest: 8n, prunedThrough: 7n });
			expect(await store.getRecordState(id, [])).toEqual({ revision: 0n, ...emptyState });
			const { update: again } = await post(id, "new", 1);
			const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
			expect(page.map(({ summary }) => summary)).toEqual([bytes(again.summary)]);
			// An effect computed from the removed conversation does not fit the new one with the same id.
			expect(await appendEvents(store, batch(id, [], { effect: effect(1n, "stale") }))).toBeUndefined();
		});

		it("removes a conversation whose deletion came from a state update", async () => {
			const { id } = await versions(2);
			await appendBatch(id, [], { effect: effect(3n, "gone", { status: "deleting" }), receivedAt: at(3_000) });
			expect(await store.prune(olderThan(3_001, 2))).toBe(2);
			expect(await store.prune(olderThan(3_001, 2))).toBe(2);
			expect(await store.prune(olderThan(3_001, 2))).toBe(0);
			expect(await kept()).toEqual([]);
		});
	});
}

/** Returns an encoded record without its title. */
function recordWithoutTitle(encoded: Uint8Array): Uint8Array {
	const { title: _, ...rest } = fromBinary(ConversationInfoSchema, encoded);
	return record(rest);
}
