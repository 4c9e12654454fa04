import { create, fromBinary, type JsonObject } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import {
	ConversationFilterSchema,
	ListConversationUpdatesRequestSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange, UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { WatchOptions } from "../../../src/conversations/watch/watch.ts";
import { type UpdateWatches, updateWatches } from "../../../src/conversations/watch/watches.ts";
import { ServiceError } from "../../../src/errors.ts";
import type { StoredUpdate, UpdateQuery } from "../../../src/store/entries.ts";
import { Reading, refusal } from "../read/reading.ts";
import { numbers, type SpiedLog, spyLog, Watcher } from "./watching.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const OTHER = "0190d6a0-0000-7000-8000-000000000002";
const NEVER = 2 ** 30;
/** An origin of a newer release, decoded from a request: field 7 with the value 9. */
const UNKNOWN_ORIGIN = fromBinary(ListConversationUpdatesRequestSchema, Buffer.from([7 << 3, 9])).origin;
let reading: Reading;
let log: SpiedLog<StoredUpdate, UpdateQuery>;
let stopping: AbortController;

beforeEach(async () => {
	reading = await Reading.open();
	log = spyLog(reading.store.updates);
	stopping = new AbortController();
});

afterEach(async () => {
	stopping.abort();
	await reading[Symbol.asyncDispose]();
});

function watching(options: Omit<WatchOptions, "stopping"> = {}): UpdateWatches {
	return updateWatches({ updates: log }, () => reading.views, {
		heartbeat: NEVER,
		...options,
		stopping: stopping.signal,
	});
}

/** Stores updates one after the other, titled by number unless `members` has a title. Returns the last sequence. */
async function keep(count: number, members: JsonObject = {}): Promise<bigint> {
	let newest = 0n;
	for (let index = 0; index < count; index++) newest = (await reading.keep({ title: `${index}`, ...members })).sequence;
	return newest;
}

test("a watch receives the updates stored after its start, a heartbeat, then new updates", async () => {
	await keep(3);
	const watches = watching();
	const head = { at: 3n, latest: 3n };
	const [all, onlyNew] = [new Watcher(watches), new Watcher(watches, { start: "now" })];
	expect(await all.next(4)).toEqual([1n, 2n, 3n, head]);
	expect(await onlyNew.next(1)).toEqual([head]);
	await keep(2);
	for (const watcher of [all, onlyNew]) expect(await watcher.next(2)).toEqual([4n, 5n]);
});

test("an update has its changed fields and summary, and the whole record on request", async () => {
	await reading.keep({ id: ID, title: "one", execution_status: "running" });
	await reading.keep({ id: ID, title: "two", execution_status: "paused" });
	const updates = [];
	for (const full of [false, true]) {
		const watcher = new Watcher(watching(), { start: 1n, view: { full, secrets: "redacted", secretPaths: true } });
		const message = await watcher.message();
		if (message?.content.case !== "update") throw new Error("no update came");
		updates.push(message.content.value);
	}
	const [summary, full] = updates;
	expect(summary).toMatchObject({
		sequence: 2n,
		conversationId: ID,
		change: UpdateChange.PAUSED,
		current: true,
		changedFields: { paths: ["title", "execution_status"].sort() },
		summary: { id: ID, title: "two", executionStatus: ConversationExecutionStatus.PAUSED },
	});
	expect(summary?.conversation).toBe(undefined);
	expect(full?.conversation).toMatchObject({ id: ID, title: "two" });
});

test("a watcher that resumes after a sequence receives exactly the rest", async () => {
	const newest = await keep(40);
	const watches = watching({ recent: { entries: 7, bytes: 1e6 } });
	// Keeps the newest updates in memory, so that some watchers resume from memory and some from the store.
	const other = new Watcher(watches, { start: newest });
	await other.next(1);
	const last = await keep(20);
	await other.through(last);
	await fc.assert(
		fc.asyncProperty(fc.bigInt(1n, last - 1n), async (start) => {
			const watcher = new Watcher(watches, { start });
			expect(await watcher.through(last)).toEqual(numbers(start + 1n, last));
			watcher.cancel();
		}),
		{ numRuns: 30 },
	);
});

test("a start beyond the newest sequence is refused with an error that names it", async () => {
	await keep(2);
	expect(await refusal(new Watcher(watching(), { start: 3n }).next(1))).toEqual({
		kind: "out_of_range",
		message: "after_sequence 3 is beyond the newest sequence, which is 2: it comes from another store",
	});
	expect(await new Watcher(watching(), { start: 2n }).next(1)).toEqual([{ at: 2n, latest: 2n }]);
});

test("a watch of one conversation receives only its updates, both stored and new ones", async () => {
	await keep(3);
	await keep(2, { id: ID });
	await keep(1);
	const watcher = new Watcher(watching(), { conversationId: ID });
	expect(await watcher.next(3)).toEqual([4n, 5n, { at: 6n, latest: 6n }]);
	await keep(1);
	await keep(1, { id: ID, title: "again" });
	expect(await watcher.next(1)).toEqual([8n]);
});

test("a watch with a filter receives only updates whose record matches; heartbeats advance past the others", async () => {
	await reading.keep({ id: ID, execution_status: "idle", tags: { team: "a" } });
	await reading.keep({ id: ID, execution_status: "running", tags: { team: "a" } });
	await reading.keep({ id: OTHER, execution_status: "running", tags: { team: "b" } });
	const filter = create(ConversationFilterSchema, {
		executionStatus: ConversationExecutionStatus.RUNNING,
		tags: { team: "a" },
	});
	const watcher = new Watcher(watching({ heartbeat: 5 }), { filter });
	expect(await watcher.through(2n)).toEqual([2n]);
	expect(await watcher.heartbeatAt(3n)).toEqual({ at: 3n, latest: 3n });
	await reading.keep({ id: OTHER, execution_status: "finished", tags: { team: "a" } });
	expect(await watcher.heartbeatAt(4n)).toEqual({ at: 4n, latest: 4n });
	await reading.keep({ id: OTHER, execution_status: "running", tags: { team: "a" } });
	expect(await watcher.through(5n)).toEqual([5n]);
});

test("a watch of one origin receives only updates of that origin; heartbeats advance past the others", async () => {
	await keep(1);
	expect(await reading.keepLive({ id: ID })).toBe(2n);
	const watches = watching({ heartbeat: 5 });
	const posted = new Watcher(watches, { origin: UpdateOrigin.POSTED });
	const byEvents = new Watcher(watches, { origin: UpdateOrigin.EVENTS });
	const all = new Watcher(watches, { origin: UpdateOrigin.UNSPECIFIED });
	expect(await byEvents.through(2n)).toEqual([2n]);
	expect(await all.through(2n)).toEqual([1n, 2n]);
	expect(await posted.through(1n)).toEqual([1n]);
	expect(await posted.heartbeatAt(2n)).toEqual({ at: 2n, latest: 2n });
	await reading.keepLive({ id: OTHER });
	await keep(1);
	expect(await byEvents.through(3n)).toEqual([3n]);
	expect(await byEvents.heartbeatAt(4n)).toEqual({ at: 4n, latest: 4n });
	expect(await posted.through(4n)).toEqual([4n]);
	expect(() => new Watcher(watches, { origin: UNKNOWN_ORIGIN })).toThrow("origin is not a known origin");
});

test("heartbeats are sent while there are no updates", async () => {
	const watcher = new Watcher(watching({ heartbeat: 5 }));
	const silent = { at: 0n, latest: 0n };
	expect(await watcher.next(3)).toEqual([silent, silent, silent]);
	await keep(1);
	expect(await watcher.through(1n)).toEqual([1n]);
	expect(await watcher.next(2)).toEqual([
		{ at: 1n, latest: 1n },
		{ at: 1n, latest: 1n },
	]);
});

test("a start in the pruned range is refused, except for a conversation of which nothing was pruned", async () => {
	await keep(2, { id: ID });
	await keep(5, { id: OTHER });
	await reading.pruneTo(2);
	expect((await log.range()).prunedThrough).toBe(5n);
	for (const request of [{}, { conversationId: OTHER }])
		expect(await refusal(new Watcher(watching(), { ...request, start: 4n }).next(1))).toEqual({
			kind: "out_of_range",
			message: expect.stringContaining("start after sequence 5 or later"),
		});
	expect(await new Watcher(watching(), { start: 5n }).next(2)).toEqual([6n, 7n]);
	expect(await new Watcher(watching(), { start: 1n, conversationId: ID }).next(1)).toEqual([2n]);
	for (const start of ["beginning", 0n] as const)
		expect(await new Watcher(watching(), { start }).next(5)).toEqual([1n, 2n, 6n, 7n, { at: 7n, latest: 7n }]);
});

test("a stalled watcher whose next updates are pruned fails with out_of_range instead of skipping them", async () => {
	const watches = watching({ recent: { entries: 2, bytes: 1e6 } });
	await keep(1);
	const reader = new Watcher(watches);
	const stalled = new Watcher(watches);
	await Promise.all([reader.next(2), stalled.next(2)]);
	const newest = await keep(10, { id: ID });
	await reader.through(newest);
	await reading.pruneTo(3);
	expect((await refusal(stalled.next(1))).kind).toBe("out_of_range");
	await keep(1, { id: ID, title: "later" });
	expect(await reader.next(1)).toEqual([newest + 1n]);
});

test("a stalled watcher does not exceed the memory limits, and misses nothing when it reads again", async () => {
	const watches = watching({ recent: { entries: 8, bytes: 20_000 } });
	const stalled = new Watcher(watches);
	const reader = new Watcher(watches);
	await Promise.all([stalled.next(1), reader.next(1)]);
	const newest = 60n;
	for (let sequence = 1n; sequence <= newest; sequence++) {
		// Every tenth record alone exceeds the limit in bytes.
		await reading.keep({ title: `${sequence}`, workspace: { kind: "LocalWorkspace", working_dir: path(sequence) } });
		expect(await reader.next(1)).toEqual([sequence]);
		const { entries, bytes, followers } = watches.recent.usage;
		expect(entries).toBeLessThanOrEqual(8);
		expect(bytes <= 20_000 || entries === 1).toBe(true);
		expect(followers).toBe(2);
	}
	expect(await stalled.through(newest)).toEqual(numbers(1n, newest));
});

function path(sequence: bigint): string {
	return `/${"x".repeat(sequence % 10n === 0n ? 25_000 : 3_000)}`;
}

test("the lag is that of the slowest watcher, and is 0 when each waits for more", async () => {
	const watches = watching();
	const [slow, fast] = [new Watcher(watches, { start: "now" }), new Watcher(watches, { start: "now" })];
	await Promise.all([slow.next(1), fast.next(1)]);
	expect(watches.recent.lag).toBe(0n);
	const newest = await keep(3);
	await fast.through(newest);
	expect(watches.recent.lag).toBe(3n);
	await slow.through(newest);
	const more = [slow.next(1), fast.next(1)];
	await expect.poll(() => watches.recent.lag).toBe(0n);
	expect(await keep(1)).toBe(4n);
	expect(await Promise.all(more)).toEqual([[4n], [4n]]);
	for (const watcher of [slow, fast]) watcher.cancel();
	expect(watches.recent.lag).toBe(0n);
});

test("a thousand watchers receive an update as the same message object, with one read of the store", async () => {
	const watches = watching();
	const watchers = Array.from({ length: 1000 }, () => new Watcher(watches, { start: "now" }));
	await Promise.all(watchers.map((watcher) => watcher.next(1)));
	log.queries.length = 0;
	await keep(1);
	const messages = new Set(await Promise.all(watchers.map((watcher) => watcher.message())));
	expect([...messages].map((message) => message?.sequence)).toEqual([1n]);
	expect(log.queries.length).toBe(1);
	expect(log.listeners()).toBe(1);
	for (const watcher of watchers) watcher.cancel();
	expect(watches.recent.usage).toEqual({ entries: 0, bytes: 0, followers: 0 });
});

test("watchers share what is read from the store also while a slow one has not read what came before", async () => {
	const watches = watching();
	const slow = new Watcher(watches, { start: "now" });
	await slow.next(1);
	const before = await keep(3);
	const watchers = Array.from({ length: 300 }, () => new Watcher(watches, { start: "now" }));
	await Promise.all(watchers.map((watcher) => watcher.next(1)));
	log.queries.length = 0;
	const newest = await keep(1);
	for (const sequences of await Promise.all(watchers.map((watcher) => watcher.next(1))))
		expect(sequences).toEqual([newest]);
	expect(log.queries.map(({ after }) => after)).toEqual([before]);
	expect(await slow.through(newest)).toEqual(numbers(1n, newest));
});

test("watchers that resume after the same sequence share the reads of the history", async () => {
	const newest = await keep(300);
	const watches = watching();
	const watchers = Array.from({ length: 50 }, () => new Watcher(watches, { start: 1n }));
	const received = await Promise.all(watchers.map((watcher) => watcher.through(newest)));
	for (const sequences of received) expect(sequences).toEqual(numbers(2n, newest));
	// Two pages. Reads at the end of the history are not counted: watchers that get there later do not share them.
	expect(log.queries.filter(({ after }) => after < newest).length).toBe(2);
});

test("a failed read of the store ends the watches, and later watches work again", async () => {
	const watches = watching();
	const watcher = new Watcher(watches, { start: "now" });
	await watcher.next(1);
	log.failure = new ServiceError("unavailable", "the disk is gone");
	await keep(1);
	expect(await refusal(watcher.next(1))).toEqual({ kind: "unavailable", message: "the disk is gone" });
	expect(await refusal(new Watcher(watches, { start: 0n }).next(1))).toEqual({
		kind: "unavailable",
		message: "the disk is gone",
	});
	log.failure = undefined;
	expect(await new Watcher(watches, { start: 0n }).next(2)).toEqual([1n, { at: 1n, latest: 1n }]);
});

test("watchers that received updates which the store then lost fail with out_of_range, and new ones work", async () => {
	const watches = watching();
	await keep(3);
	const watcher = new Watcher(watches);
	expect(await watcher.next(4)).toEqual([1n, 2n, 3n, { at: 3n, latest: 3n }]);
	const slow = new Watcher(watches, { start: 1n });
	const [next] = await slow.next(1);
	expect(next).toBe(2n);
	log.lose(2n);
	const refused = {
		kind: "out_of_range",
		message: "the database has lost the entries after sequence 2; start after sequence 2",
	};
	expect(await refusal(watcher.next(1))).toEqual(refused);
	expect(await slow.next(1)).toEqual([3n]);
	expect(await refusal(slow.next(2))).toEqual(refused);
	expect(await new Watcher(watches, { start: 2n }).next(1)).toEqual([3n]);
});

test("stopping the service ends a watch with unavailable, and cancelling ends it without an error", async () => {
	const watches = watching();
	const stopped = new Watcher(watches, { start: "now" }, stopping.signal);
	const cancelled = new Watcher(watches, { start: "now" });
	await Promise.all([stopped.next(1), cancelled.next(1)]);
	const end = cancelled.message();
	cancelled.cancel();
	expect(await end).toBe(undefined);
	const refused = refusal(stopped.next(1));
	stopping.abort();
	expect(await refused).toEqual({ kind: "unavailable", message: "The service is stopping" });
	expect(watches.recent.usage.followers).toBe(0);
});

test("pruning ends a watch from the beginning only if the watch has not received the pruned updates", async () => {
	const large = { workspace: { kind: "LocalWorkspace", working_dir: `/${"x".repeat(200_000)}` } };
	await keep(2, { id: OTHER, ...large });
	await keep(4, { id: ID, ...large });
	await reading.pruneTo(3);
	const watches = watching({ recent: { entries: 1, bytes: 1 } });
	const overtaken = new Watcher(watches);
	const ahead = new Watcher(watches);
	const other = new Watcher(watches, { conversationId: OTHER });
	expect(await overtaken.next(1)).toEqual([1n]);
	expect(await ahead.next(4)).toEqual([1n, 2n, 4n, 5n]);
	expect(await other.next(1)).toEqual([1n]);
	await reading.pruneTo(2);
	expect(await ahead.next(1)).toEqual([6n]);
	expect((await refusal(overtaken.next(1))).kind).toBe("out_of_range");
	expect(await other.next(1)).toEqual([2n]);
});

test("an unreadable update is sent as unreadable, whatever the filter, and the watch continues", async () => {
	await keep(3, { id: ID });
	reading.damage(2n);
	const filter = create(ConversationFilterSchema, { titleContains: "2" });
	const view = { full: true, secrets: "redacted", secretPaths: false } as const;
	const watcher = new Watcher(watching(), { filter, view });
	for (const [sequence, unreadable] of [
		[2n, true],
		[3n, false],
	])
		expect(await watcher.message()).toMatchObject({ sequence, content: { value: { unreadable } } });
});
