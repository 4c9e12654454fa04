import { setImmediate } from "node:timers/promises";
import type { DescMessage } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { ServiceError } from "../../errors.ts";
import { idDigest } from "../../store/erasure.ts";
import type { LogChange, RangeQuery } from "../../store/sequence-log.ts";
import { assertNotBeyondNewest, assertNotPruned, type EntryLog, type LogEntry } from "../read/entry-log.ts";
import type { SharedResponse } from "./shared-response.ts";

/** Where a watch starts: after a sequence number, at the oldest stored entry, or with the next new one. */
export type WatchStart = bigint | "beginning" | "now";

export interface WatchRequest<Entry extends LogEntry, Response extends DescMessage> {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
	/** Only entries of conversations of this owner; undefined for those of all. */
	readonly owner?: string | undefined;
	/** All else that determines the messages. Watchers of the same conversation with an equal variant share them. */
	readonly variant: readonly unknown[];
	readonly responder: () => Respond<Entry, Response>;
}

/** Returns the message for an entry of the requested conversations; undefined when the request excludes it. */
type Respond<Entry, Response extends DescMessage> = (
	entry: Entry,
) => SharedResponse<Response> | undefined | Promise<SharedResponse<Response> | undefined>;

/** Messages for one watcher, in order. They must not be changed, because other watchers may share them. */
export type WatchBatch<Response extends DescMessage> = readonly SharedResponse<Response>[];

interface EntryLimits {
	readonly entries: number;
	/** Maximum bytes of records or texts. A single entry may exceed it. */
	readonly bytes: number;
}

export interface WatchOptions {
	/** Milliseconds without a message after which a heartbeat is sent. Default: 15000. */
	readonly heartbeat?: number;
	/** Fires when the service stops. A watch that ends after that fails with `unavailable`. */
	readonly stopping: AbortSignal;
	/** Limits of the newest entries that are kept in memory. Default: {@link RECENT}. */
	readonly recent?: EntryLimits;
}

/** Makes the message with a heartbeat of a watcher that has received everything through `sequence`. */
type ToHeartbeat<Response extends DescMessage> = (
	sequence: bigint,
	heartbeat: { readonly case: "heartbeat"; readonly value: { readonly latestSequence: bigint } },
) => SharedResponse<Response>;

const RECENT: EntryLimits = { entries: 1024, bytes: 8 * 1024 * 1024 };
/** Limits of one page. A watcher that stops reading keeps no more in memory, unless one record is larger. */
const PAGE: EntryLimits = { entries: 256, bytes: 256 * 1024 };
/** Maximum number of pages of history that are read at the same time. */
const MAX_CONCURRENT_READS = 4;
/** Maximum number of batches that are kept for other watchers to share. */
const MAX_SHARED_BATCHES = 64;
/** Milliseconds of preparing entries after which the event loop runs other work. */
const MAX_RUN = 5;
/** Pause before watchers are woken, in milliseconds: per watcher, and the maximum. A wake-up costs more than an entry. */
const PAUSE_PER_WATCHER = 0.1;
const MAX_PAUSE = 100;
/** Number of watchers that are woken before the event loop runs other work. */
const WOKEN_AT_ONCE = 128;

type Reader = Pick<RangeQuery, "conversationId" | "owner" | "afterRemoval">;

interface EntryPage<Entry> {
	readonly entries: readonly Entry[];
	/** Sequence through which the page has all entries that the reader requests. */
	readonly through: bigint;
	/** Largest sequence of all pruned entries, of any conversation, when the page had been read. */
	readonly prunedThrough: bigint;
}

/** What all watchers share, until stored entries change: then a sequence may have another entry or another owner. */
interface Recent<Entry, Response extends DescMessage> {
	/** All stored entries after `start`, through `end`. */
	entries: Entry[];
	bytes: number;
	/** Undefined while there are no watchers. */
	start: bigint | undefined;
	end: bigint;
	/** Reads under way of pages for all watchers, by the sequence after which they begin. */
	readonly reads: Map<bigint, Promise<EntryPage<Entry>>>;
	readonly batches: LRUCache<string, Promise<WatchBatch<Response>>>;
}

interface Watcher {
	/** Sequence through which it has been sent everything; undefined until its start is known. */
	through: bigint | undefined;
	/** Ends its wait. */
	wake: () => void;
	/** Set when the store has lost entries that it has been sent. */
	failure: ServiceError | undefined;
}

/**
 * Lets many watchers follow a log of the store, each at its own pace; each holds at most one batch. The newest entries are
 * read from the store once for all, and kept in memory within fixed limits while there are watchers; the oldest of them are
 * dropped first. Others are read for each watcher.
 */
export class Watches<Entry extends LogEntry, Response extends DescMessage> {
	readonly #source: EntryLog<Entry>;
	readonly #toHeartbeat: ToHeartbeat<Response>;
	readonly #options: Required<WatchOptions>;
	readonly #watchers = new Set<Watcher>();
	/** Sequence of the newest entry that is known to be stored. */
	#newest = 0n;
	#recent: Recent<Entry, Response> = recentAfter(undefined);
	/** The last read of history in each lane. */
	readonly #lanes = Array.from({ length: MAX_CONCURRENT_READS }, () => Promise.resolve());
	#waking: NodeJS.Timeout | undefined;

	constructor(source: EntryLog<Entry>, toHeartbeat: ToHeartbeat<Response>, options: WatchOptions) {
		this.#source = source;
		this.#toHeartbeat = toHeartbeat;
		this.#options = { heartbeat: 15_000, recent: RECENT, ...options };
		source.log.subscribe((newest, change) => this.#changed(newest, change));
	}

	get usage(): { readonly entries: number; readonly bytes: number; readonly followers: number } {
		return { entries: this.#recent.entries.length, bytes: this.#recent.bytes, followers: this.#watchers.size };
	}

	/** Sequence numbers by which the slowest watcher is behind the newest entry. */
	get lag(): bigint {
		let lag = 0n;
		for (const { through = this.#newest } of this.#watchers)
			if (this.#newest - through > lag) lag = this.#newest - through;
		return lag;
	}

	/**
	 * Follows entries until `signal` fires, which ends the iteration and frees its resources.
	 *
	 * @throws ServiceError `out_of_range` when requested entries have been pruned, received entries have been lost, or the
	 *   start is beyond the newest sequence; `unavailable` when the store cannot be read or the service stops
	 */
	async *watch(
		request: WatchRequest<Entry, Response>,
		signal: AbortSignal,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const watcher: Watcher = { through: undefined, wake: () => undefined, failure: undefined };
		const leave = (): void => {
			watcher.wake();
			this.#watchers.delete(watcher);
			if (this.#watchers.size === 0) this.#recent = recentAfter(undefined);
		};
		this.#watchers.add(watcher);
		// On abort too: a transport may never resume the iteration when its client has disconnected.
		signal.addEventListener("abort", leave, { once: true });
		try {
			yield* this.#follow(request, watcher, signal);
		} finally {
			signal.removeEventListener("abort", leave);
			leave();
		}
		if (this.#options.stopping.aborted) throw new ServiceError("unavailable", "The service is stopping");
	}

	async *#follow(
		request: WatchRequest<Entry, Response>,
		watcher: Watcher,
		signal: AbortSignal,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const range = await this.#source.log.range();
		if (range.newest > this.#newest) this.#newest = range.newest;
		if (this.#recent.start === undefined && this.#watchers.has(watcher)) this.#recent = recentAfter(range.newest);
		let through = startOf(request.start, range.newest);
		// A watch from the beginning covers the entries that are stored now, so earlier pruning is no error.
		const { conversationId, owner } = request;
		const reader = { conversationId, owner, afterRemoval: through === 0n ? range.lastRemoval : undefined };
		const key = keyOf(request);
		let caughtUp = false;
		let quietSince = performance.now();
		while (!signal.aborted) {
			if (watcher.failure !== undefined) throw watcher.failure;
			watcher.through = through;
			const isNewest = through >= this.#newest;
			const left = quietSince + this.#options.heartbeat - performance.now();
			let batch: WatchBatch<Response> = [];
			if (left <= 0 || (isNewest && !caughtUp)) {
				caughtUp ||= isNewest;
				batch = [this.#heartbeatAt(through)];
			} else if (isNewest) await untilWoken(watcher, left);
			else {
				const recent = this.#recent;
				const respond = request.responder();
				const page = await this.#page(recent, through, reader);
				// What was read may have another owner now, or be lost.
				if (signal.aborted || recent !== this.#recent) continue;
				const select = () => selected(request, page.entries, respond);
				// Batches of history are not shared, because they can be many and large.
				batch = await (isIn(recent, through) ? this.#shared(`${through} ${page.through} ${key}`, select) : select());
				if (signal.aborted || recent !== this.#recent) continue;
				through = page.through;
			}
			if (batch.length === 0) continue;
			watcher.through = through;
			yield batch;
			quietSince = performance.now();
		}
	}

	#heartbeatAt(sequence: bigint): SharedResponse<Response> {
		const latestSequence = this.#newest > sequence ? this.#newest : sequence;
		return this.#toHeartbeat(sequence, { case: "heartbeat", value: { latestSequence } });
	}

	/** Returns a batch for the newest entries, which equal requests share. */
	#shared(key: string, select: () => Promise<WatchBatch<Response>>): Promise<WatchBatch<Response>> {
		const { batches } = this.#recent;
		const known = batches.get(key);
		if (known !== undefined) return known;
		const batch = select();
		batches.set(key, batch);
		batch.catch(() => batches.delete(key));
		return batch;
	}

	/**
	 * Returns the page after a sequence. It may have entries that the reader does not request. Throws `out_of_range` when
	 * requested entries have been pruned.
	 */
	async #page(recent: Recent<Entry, Response>, after: bigint, reader: Reader): Promise<EntryPage<Entry>> {
		const isRecent = isIn(recent, after);
		if (isRecent && after < recent.end) {
			const entries = this.#inMemory(recent, after);
			return { entries, through: entries.at(-1)?.sequence ?? recent.end, prunedThrough: 0n };
		}
		const { conversationId, owner } = reader;
		const isForAll = isRecent || (conversationId === undefined && owner === undefined);
		const page = isForAll
			? this.#readForAll(recent, after)
			: this.#inTurn(() => this.#read(after, { conversationId, owner }));
		const found = await page;
		if (found.prunedThrough > after) await assertNotPruned(this.#source, after, reader);
		return found;
	}

	/** Returns the entries in memory after a sequence, within the limits of a page, but at least one if there is one. */
	#inMemory(recent: Recent<Entry, Response>, after: bigint): readonly Entry[] {
		const first = recent.entries.findLastIndex((entry) => entry.sequence <= after) + 1;
		const entries: Entry[] = [];
		let bytes = 0;
		for (const entry of recent.entries.slice(first, first + PAGE.entries)) {
			bytes += this.#source.sizeOf(entry);
			if (entries.length > 0 && bytes > PAGE.bytes) break;
			entries.push(entry);
		}
		return entries;
	}

	/** Reads a page that all watchers share, and keeps it if it is later than the entries in memory. */
	#readForAll(recent: Recent<Entry, Response>, after: bigint): Promise<EntryPage<Entry>> {
		return recent.reads.getOrInsertComputed(after, () => {
			const read = () => this.#read(after, {});
			const page = isIn(recent, after) ? read() : this.#inTurn(read);
			const end = (found?: EntryPage<Entry>) => {
				recent.reads.delete(after);
				if (found !== undefined && isIn(recent, after) && after >= recent.end) this.#keep(recent, after, found);
			};
			page.then(end, () => end());
			return page;
		});
	}

	/** Reads history: only a few pages at a time, because watchers may ask for very many. */
	#inTurn<Result>(read: () => Promise<Result>): Promise<Result> {
		const before = this.#lanes.shift() ?? Promise.resolve();
		const result = before.then(read);
		const done = () => undefined;
		this.#lanes.push(result.then(done, done));
		return result;
	}

	async #read(after: bigint, of: Reader): Promise<EntryPage<Entry>> {
		const newest = this.#newest > after ? this.#newest : after;
		const query = { after, ...of, limit: PAGE.entries, maxBytes: PAGE.bytes, withRecords: true };
		const entries = await this.#source.log.list(query);
		// Queried after the page, so that pruning before or during the read of the page is noticed.
		const { prunedThrough } = await this.#source.log.range();
		return { entries, through: entries.at(-1)?.sequence ?? newest, prunedThrough };
	}

	#keep(recent: Recent<Entry, Response>, after: bigint, page: EntryPage<Entry>): void {
		const { entries, through, prunedThrough } = page;
		const { sizeOf } = this.#source;
		const limits = this.#options.recent;
		// Only slow watchers need what is in memory; nobody has read what came after it.
		if (after > recent.end) Object.assign(recent, { entries: [], bytes: 0, start: after, end: after });
		recent.entries.push(...entries);
		recent.bytes += entries.reduce((sum, entry) => sum + sizeOf(entry), 0);
		// Pruned entries may be missing. Watchers that need them read from the store, which reports the pruning.
		let start = prunedThrough > recent.end ? prunedThrough : (recent.start ?? through);
		recent.end = through;
		for (;;) {
			const [first, second] = recent.entries;
			const isFull = recent.entries.length > limits.entries || (recent.bytes > limits.bytes && second !== undefined);
			if (first === undefined || (!isFull && first.sequence > start)) break;
			recent.bytes -= sizeOf(first);
			if (first.sequence > start) start = first.sequence;
			recent.entries.shift();
		}
		recent.start = start;
	}

	/** Takes note of new entries. After another change, watchers read the store again. */
	#changed(newest: bigint, change: LogChange): void {
		if (change === "added") {
			if (newest > this.#newest) this.#newest = newest;
			const pause = Math.min(this.#watchers.size * PAUSE_PER_WATCHER, MAX_PAUSE);
			if (pause > 0) this.#waking ??= setTimeout(() => void this.#wakeAll(), pause);
			return;
		}
		if (change === "lost") {
			this.#newest = newest;
			for (const watcher of this.#watchers) fail(watcher, newest);
		}
		this.#recent = recentAfter(this.#recent.start === undefined ? undefined : this.#newest);
	}

	async #wakeAll(): Promise<void> {
		this.#waking = undefined;
		let woken = 0;
		// A copy, because watchers come and leave during the loop.
		for (const watcher of [...this.#watchers]) {
			watcher.wake();
			woken += 1;
			if (woken % WOKEN_AT_ONCE === 0) await setImmediate();
		}
	}
}

function recentAfter<Entry, Response extends DescMessage>(start: bigint | undefined): Recent<Entry, Response> {
	const batches = new LRUCache<string, Promise<WatchBatch<Response>>>({ max: MAX_SHARED_BATCHES });
	return { entries: [], bytes: 0, start, end: start ?? 0n, reads: new Map(), batches };
}

/** Whether every entry after a sequence, through the newest that was read, is in memory. */
function isIn({ start }: Pick<Recent<unknown, DescMessage>, "start">, after: bigint): boolean {
	return start !== undefined && after >= start;
}

/** Returns the messages for the entries that a request selects. */
async function selected<Entry extends LogEntry, Response extends DescMessage>(
	{ conversationId, owner }: WatchRequest<Entry, Response>,
	entries: readonly Entry[],
	respond: Respond<Entry, Response>,
): Promise<WatchBatch<Response>> {
	// An erasure has the digest of the id in its place.
	const ids = conversationId === undefined ? undefined : [conversationId, idDigest(conversationId)];
	const responses: SharedResponse<Response>[] = [];
	let since = performance.now();
	for (const entry of entries) {
		if (ids !== undefined && !ids.includes(entry.conversationId)) continue;
		if (owner !== undefined && entry.owner !== owner) continue;
		const response = await respond(entry);
		if (response !== undefined) responses.push(response);
		if (performance.now() - since < MAX_RUN) continue;
		await setImmediate();
		since = performance.now();
	}
	return responses;
}

/** Waits until a watcher is woken, at most for a time in milliseconds. */
async function untilWoken(watcher: Watcher, time: number): Promise<void> {
	const { promise, resolve } = Promise.withResolvers<void>();
	const timer = setTimeout(resolve, time);
	watcher.wake = resolve;
	await promise;
	clearTimeout(timer);
}

/** Ends a watcher that has been sent entries which the store has lost: those after `newest`. */
function fail(watcher: Watcher, newest: bigint): void {
	if (watcher.through === undefined || watcher.through <= newest) return;
	watcher.through = newest;
	watcher.failure = new ServiceError(
		"out_of_range",
		`the database has lost the entries after sequence ${newest}; start after sequence ${newest}`,
	);
	watcher.wake();
}

/** Returns a key that is equal for watchers that receive the same messages. */
function keyOf({ conversationId, owner, variant }: Omit<WatchRequest<never, never>, "start" | "responder">): string {
	return JSON.stringify([conversationId, owner, variant], (_, value: unknown) =>
		typeof value === "bigint" ? String(value) : value,
	);
}

function startOf(start: WatchStart, newest: bigint): bigint {
	if (start === "now") return newest;
	if (start === "beginning") return 0n;
	assertNotBeyondNewest(start, newest);
	return start;
}
