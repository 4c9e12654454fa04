import { setImmediate } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { LogChange, RangeQuery, SequenceRange } from "../../store/sequence-log.ts";
import { assertNotPruned, type EntryLog, type LogEntry } from "../read/entry-log.ts";

export interface EntryLimits {
	readonly entries: number;
	/** Maximum bytes of records or texts. A single entry may exceed it. */
	readonly bytes: number;
}

/** Limits of one page. A watcher that stops reading keeps no more in memory, unless one record is larger. */
const PAGE: EntryLimits = { entries: 256, bytes: 256 * 1024 };
/** Maximum number of pages of history that are read at the same time. */
const MAX_CONCURRENT_READS = 4;
/** Pause before followers are woken, in milliseconds: per follower, and the maximum. A wake-up costs more than an entry. */
const PAUSE_PER_FOLLOWER = 0.1;
const MAX_PAUSE = 100;
/** Number of followers that are woken before the event loop runs other work. */
const WOKEN_AT_ONCE = 128;

export interface EntryPage<Entry> {
	readonly entries: readonly Entry[];
	/** Sequence through which the page has all entries that the reader requests. */
	readonly through: bigint;
	/** Largest sequence of all pruned entries, of any conversation, when the page had been read. */
	readonly prunedThrough: bigint;
}

type Reader = Pick<RangeQuery, "conversationId" | "owner" | "afterRemoval">;

/**
 * The entries of a log for its watchers. While there are watchers, the newest ones are read from the store once for all,
 * and kept in memory within fixed limits; the oldest of them are dropped first. Others are read for each watcher.
 */
export class RecentEntries<Entry extends LogEntry> {
	readonly #source: EntryLog<Entry>;
	readonly #limits: EntryLimits;
	readonly #followers = new Set<Follower>();
	/** All stored entries after `#start`, through `#end`. */
	#entries: Entry[] = [];
	#bytes = 0;
	/** Undefined while there are no watchers. */
	#start: bigint | undefined;
	#end = 0n;
	#newest = 0n;
	#restarts = 0;
	/** Reads under way of pages for all watchers, by the sequence after which they begin. */
	readonly #reads = new Map<bigint, Promise<EntryPage<Entry>>>();
	/** The last read of history in each lane. */
	readonly #lanes = Array.from({ length: MAX_CONCURRENT_READS }, () => Promise.resolve());
	#waking: NodeJS.Timeout | undefined;

	constructor(source: EntryLog<Entry>, limits: EntryLimits = { entries: 1024, bytes: 8 * 1024 * 1024 }) {
		this.#source = source;
		this.#limits = limits;
		source.log.subscribe((newest, change) => this.#changed(newest, change));
	}

	/** Sequence of the newest entry that is known to be stored. */
	get newest(): bigint {
		return this.#newest;
	}

	/** How often the entries in memory were dropped. Later, a sequence may have another entry or another owner. */
	get restarts(): number {
		return this.#restarts;
	}

	get usage(): { readonly entries: number; readonly bytes: number; readonly followers: number } {
		return { entries: this.#entries.length, bytes: this.#bytes, followers: this.#followers.size };
	}

	/** Sequence numbers by which the slowest follower is behind the newest entry. */
	get lag(): bigint {
		let lag = 0n;
		for (const { through = this.#newest } of this.#followers)
			if (this.#newest - through > lag) lag = this.#newest - through;
		return lag;
	}

	/** Adds a follower, and returns the range of the log. */
	async join(follower: Follower): Promise<SequenceRange> {
		this.#followers.add(follower);
		const range = await this.#source.log.range();
		if (range.newest > this.#newest) this.#newest = range.newest;
		if (this.#start === undefined && this.#followers.has(follower)) this.#begin(range.newest);
		return range;
	}

	/** Removes a follower, which wakes up. A second call is harmless. */
	leave(follower: Follower): void {
		follower.wake();
		this.#followers.delete(follower);
		if (this.#followers.size === 0 && this.#start !== undefined) this.#begin(undefined);
	}

	/** Whether every entry after a sequence, through the newest that was read, is in memory. */
	covers(after: bigint): boolean {
		return this.#start !== undefined && after >= this.#start;
	}

	/** Returns the entries in memory after a sequence, in order and within limits, but at least one if there is one. */
	after(sequence: bigint, limits: EntryLimits): readonly Entry[] {
		const first = this.#entries.findLastIndex((entry) => entry.sequence <= sequence) + 1;
		const entries: Entry[] = [];
		let bytes = 0;
		for (const entry of this.#entries.slice(first, first + limits.entries)) {
			bytes += this.#source.sizeOf(entry);
			if (entries.length > 0 && bytes > limits.bytes) break;
			entries.push(entry);
		}
		return entries;
	}

	/**
	 * Returns the page after a sequence. It may have entries that the reader does not request. Throws `out_of_range` when
	 * requested entries have been pruned.
	 */
	async read(after: bigint, reader: Reader): Promise<EntryPage<Entry>> {
		const isRecent = this.covers(after);
		if (isRecent && after < this.#end) {
			const entries = this.after(after, PAGE);
			return { entries, through: entries.at(-1)?.sequence ?? this.#end, prunedThrough: 0n };
		}
		const { conversationId, owner } = reader;
		const isForAll = isRecent || (conversationId === undefined && owner === undefined);
		const page = isForAll
			? this.#readForAll(after)
			: this.#inTurn(() => this.#readPage(after, { conversationId, owner }));
		const found = await page;
		if (found.prunedThrough > after) await assertNotPruned(this.#source, after, reader);
		return found;
	}

	/** Reads a page that all watchers share, and keeps it if it follows the entries in memory. */
	#readForAll(after: bigint): Promise<EntryPage<Entry>> {
		return this.#reads.getOrInsertComputed(after, () => {
			const { restarts } = this;
			const read = () => this.#readPage(after, {});
			const page = this.covers(after) ? read() : this.#inTurn(read);
			const end = (found?: EntryPage<Entry>) => {
				if (restarts !== this.#restarts) return;
				this.#reads.delete(after);
				if (found !== undefined && this.covers(after) && after === this.#end) this.#keep(found);
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

	async #readPage(after: bigint, of: Reader): Promise<EntryPage<Entry>> {
		const newest = this.#newest > after ? this.#newest : after;
		const query = { after, ...of, limit: PAGE.entries, maxBytes: PAGE.bytes, withRecords: true };
		const entries = await this.#source.log.list(query);
		// Queried after the page, so that pruning before or during the read of the page is noticed.
		const { prunedThrough } = await this.#source.log.range();
		return { entries, through: entries.at(-1)?.sequence ?? newest, prunedThrough };
	}

	#keep({ entries, through, prunedThrough }: EntryPage<Entry>): void {
		const { sizeOf } = this.#source;
		this.#entries.push(...entries);
		this.#bytes += entries.reduce((sum, entry) => sum + sizeOf(entry), 0);
		// Pruned entries may be missing. Watchers that need them read from the store, which reports the pruning.
		let start = prunedThrough > this.#end ? prunedThrough : (this.#start ?? through);
		this.#end = through;
		for (;;) {
			const [first, second] = this.#entries;
			const isFull =
				this.#entries.length > this.#limits.entries || (this.#bytes > this.#limits.bytes && second !== undefined);
			if (first === undefined || (!isFull && first.sequence > start)) break;
			this.#bytes -= sizeOf(first);
			if (first.sequence > start) start = first.sequence;
			this.#entries.shift();
		}
		this.#start = start;
	}

	/**
	 * Takes note of new entries. After another change, those in memory are dropped, so that watchers read the store again;
	 * watchers that received entries which the store has lost fail.
	 */
	#changed(newest: bigint, change: LogChange): void {
		if (change === "added") {
			if (newest > this.#newest) this.#newest = newest;
			this.#wakeSoon();
			return;
		}
		if (change === "lost") {
			this.#newest = newest;
			for (const follower of this.#followers) follower.lost(newest);
		}
		this.#begin(this.#start === undefined ? undefined : this.#newest);
	}

	/** Drops the entries in memory, and begins again after a sequence. */
	#begin(start: bigint | undefined): void {
		this.#restarts += 1;
		this.#reads.clear();
		this.#entries = [];
		this.#bytes = 0;
		this.#start = start;
		this.#end = start ?? 0n;
	}

	#wakeSoon(): void {
		const pause = Math.min(this.#followers.size * PAUSE_PER_FOLLOWER, MAX_PAUSE);
		if (pause < 1) void this.#wakeAll();
		else this.#waking ??= setTimeout(() => void this.#wakeAll(), pause);
	}

	/** Reads the next page, and wakes the watchers, which need it. If it cannot be read, their own reads fail. */
	async #wakeAll(): Promise<void> {
		this.#waking = undefined;
		const end = this.#end;
		if (this.#start !== undefined && end < this.#newest) {
			try {
				await this.#readForAll(end);
				// Only after progress: a page that a restart has made void would be read again without end.
				if (this.#end > end && this.#end < this.#newest) this.#wakeSoon();
			} catch {
				// The reads of the watchers tell why.
			}
		}
		let woken = 0;
		// A copy, because watchers come and leave during the loop.
		for (const follower of [...this.#followers]) {
			follower.wake();
			woken += 1;
			if (woken % WOKEN_AT_ONCE === 0) await setImmediate();
		}
	}
}

export class Follower {
	/** Sequence through which it has received everything; undefined until it is known. */
	through: bigint | undefined;
	/** Sequence after which the store has lost entries, until {@link check} reports the loss. */
	#lostAfter: bigint | undefined;
	#resolve: (() => void) | undefined;

	/** Waits for a wake-up, at most for a time in milliseconds. There must be only one wait at a time. */
	async wait(time: number): Promise<void> {
		const { promise, resolve } = Promise.withResolvers<void>();
		const timer = setTimeout(resolve, time);
		this.#resolve = resolve;
		await promise;
		clearTimeout(timer);
	}

	wake(): void {
		this.#resolve?.();
	}

	/** Reports that the store has lost the entries after `newest`. */
	lost(newest: bigint): void {
		if (this.#lostAfter === undefined || newest < this.#lostAfter) this.#lostAfter = newest;
		this.wake();
	}

	/** @throws ServiceError `out_of_range` when the store has lost entries that the follower has received */
	check(through: bigint): void {
		const newest = this.#lostAfter;
		this.#lostAfter = undefined;
		if (newest === undefined || newest >= through) return;
		throw new ServiceError(
			"out_of_range",
			`the database has lost the entries after sequence ${newest}; start after sequence ${newest}`,
		);
	}
}
