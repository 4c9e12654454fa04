import { create } from "@bufbuild/protobuf";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConversationEventFilterSchema } from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { WatchOptions } from "../../../src/conversations/watch/watch.ts";
import { type EventWatches, eventWatches } from "../../../src/conversations/watch/watches.ts";
import type { EventQuery, StoredEvent } from "../../../src/store/entries.ts";
import { event, Reading, refusal } from "../read/reading.ts";
import { numbers, type SpiedLog, spyLog, EventWatcher as Watcher } from "./watching.ts";

const ID = "0190d6a0-0000-7000-8000-000000000001";
const OTHER = "0190d6a0-0000-7000-8000-000000000002";
const NEVER = 2 ** 30;
let reading: Reading;
let log: SpiedLog<StoredEvent, EventQuery>;
let stopping: AbortController;

beforeEach(async () => {
	reading = await Reading.open();
	log = spyLog(reading.store.events);
	stopping = new AbortController();
});

afterEach(async () => {
	stopping.abort();
	await reading[Symbol.asyncDispose]();
});

function watching(options: Omit<WatchOptions, "stopping"> = {}): EventWatches {
	return eventWatches({ events: log }, reading.eventViews, {
		heartbeat: NEVER,
		...options,
		stopping: stopping.signal,
	});
}

let stored = 0;

/** Stores events one after the other and returns the last sequence. */
async function keep(count: number, conversationId = ID, members = {}): Promise<bigint> {
	let newest = 0n;
	for (let index = 0; index < count; index++) {
		stored += 1;
		newest = await reading.keepEvents(conversationId, event(`e-${stored}`, members));
	}
	return newest;
}

test("a watch receives the events stored after its start, a heartbeat, then new events", async () => {
	await keep(3);
	const watches = watching();
	const head = { at: 3n, latest: 3n };
	const all = new Watcher(watches);
	const rest = new Watcher(watches, { start: 2n });
	const onlyNew = new Watcher(watches, { start: "now" });
	expect(await all.next(4)).toEqual([1n, 2n, 3n, head]);
	expect(await rest.next(2)).toEqual([3n, head]);
	expect(await onlyNew.next(1)).toEqual([head]);
	await keep(2);
	for (const watcher of [all, rest, onlyNew]) expect(await watcher.next(2)).toEqual([4n, 5n]);
});

test("an event is received as it was sent", async () => {
	await reading.keepEvents(ID, event("e", { parent_id: "d", text: "hello" }));
	const sent = { id: "e", source: "agent", kind: "MessageEvent", parentId: "d", membersJson: '{"text":"hello"}' };
	expect(await new Watcher(watching()).message()).toMatchObject({
		sequence: 1n,
		content: { case: "event", value: { event: sent } },
	});
});

test("a watch of a conversation with a filter receives only matching events; heartbeats advance past others", async () => {
	const filter = create(ConversationEventFilterSchema, { kinds: ["MessageEvent"], sources: ["user", "agent"] });
	await keep(1);
	await keep(1, OTHER);
	await keep(1, ID, { kind: "ActionEvent" });
	await keep(1, ID, { source: "hook" });
	const watcher = new Watcher(watching({ heartbeat: 5 }), { conversationId: ID, filter });
	expect(await watcher.next(1)).toEqual([1n]);
	expect(await watcher.heartbeatAt(4n)).toEqual({ at: 4n, latest: 4n });
	await keep(1, OTHER);
	expect(await watcher.heartbeatAt(5n)).toEqual({ at: 5n, latest: 5n });
	await keep(1, ID, { source: "user" });
	expect(await watcher.through(6n)).toEqual([6n]);
});

test("a stalled watcher does not exceed the memory limits, and misses nothing when it reads again", async () => {
	const watches = watching({ recent: { entries: 8, bytes: 20_000 } });
	const stalled = new Watcher(watches);
	const reader = new Watcher(watches);
	await Promise.all([stalled.next(1), reader.next(1)]);
	for (let sequence = 1n; sequence <= 60n; sequence++) {
		// Every tenth event alone exceeds the limit in bytes.
		await keep(1, ID, { text: "x".repeat(sequence % 10n === 0n ? 25_000 : 3_000) });
		expect(await reader.next(1)).toEqual([sequence]);
		const { entries, bytes } = watches.recent.usage;
		expect(entries).toBeLessThanOrEqual(8);
		expect(bytes <= 20_000 || entries === 1).toBe(true);
	}
	expect(await stalled.next(60)).toEqual(numbers(1n, 60n));
});

test("a start in the pruned range or beyond the newest sequence is refused", async () => {
	await keep(3);
	await keep(2, OTHER);
	await reading.pruneEvents(2);
	expect(await refusal(new Watcher(watching(), { start: 1n }).next(1))).toEqual({
		kind: "out_of_range",
		message:
			"Events after sequence 1 have been pruned; start after sequence 2 or later, " +
			"or after 0 to receive all events that are kept",
	});
	expect(await new Watcher(watching(), { start: 1n, conversationId: OTHER }).next(2)).toEqual([4n, 5n]);
	expect(await new Watcher(watching()).next(3)).toEqual([3n, 4n, 5n]);
	expect(await refusal(new Watcher(watching(), { start: 6n }).next(1))).toEqual({
		kind: "out_of_range",
		message: "after_sequence 6 is beyond the newest sequence, which is 5: it comes from another store",
	});
});

test("an invalid filter is refused when the watch is opened", () => {
	const filter = create(ConversationEventFilterSchema, { kinds: ["\ud800"] });
	expect(() => new Watcher(watching(), { filter })).toThrow("filter.kinds is not valid Unicode");
});

test("an unreadable event is sent as unreadable, and the watch continues", async () => {
	await keep(3);
	reading.damageEvent(2n);
	const watcher = new Watcher(watching());
	for (const [sequence, unreadable] of [
		[1n, false],
		[2n, true],
		[3n, false],
	])
		expect(await watcher.message()).toMatchObject({ content: { value: { sequence, unreadable } } });
	expect(reading.unreadableEvents).toEqual([2n]);
});
