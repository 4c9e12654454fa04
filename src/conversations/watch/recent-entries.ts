import { setImmediate, setTimeout } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { EntryLog, LogEntry } from "../read/entry-log.ts";

/** Limits of a list of entries. */
export interface EntryLimits {
	/** Maximum number of entries. */
	readonly entries: number;
	/** Maximum bytes of records or texts. A single entry may exceed it. */
	readonly bytes: number;
}

/** Limits of one read from the store. */
const PAGE_ENTRIES = 256;
const PAGE_BYTES = 1024 * 1024;
/** Number of followers that are woken before the event loop runs other work. */
const WOKEN_AT_ONCE = 128;
/** Pause between two rounds of waking, in milliseconds: per follower, and the maximum. */
const PAUSE_PER_FOLLOWER = 0.1;
const MAX_PAUSE = 100;

/**
 * The newest entries of a log, read from the store once for all followers. New entries are kept in memory within fixed
 * limits, and the oldest ones are dropped first. A follower that needs a dropped entry reads it from the store.
 *
 * Followers are woken in rounds. The pause between rounds grows with the number of followers: a thousand followers are
 * woken ten times a second and then take several entries together, because a wake-up costs more than an entry.
 */
export class RecentEntries<Entry extends LogEntry> {
	readonly #source: EntryLog<Entry>;
	readonly #limits: EntryLimits;
	readonly #followers = new Set<Follower>();
	#tail: Tail<Entry> | undefined;
	#restarts = 0;

	constructor(source: EntryLog<Entry>, limits: EntryLimits = { entries: 1024, bytes: 8 * 1024 * 1024 }) {
		this.#source = source;
		this.#limits = limits;
	}

	/** Sequence of the newest entry that is known to be stored. */
	get newest(): bigint {
		return this.#tail?.newest ?? 0n;
	}

	/** Sequence through which the store has been read. */
	get end(): bigint {
		return this.#tail?.end ?? 0n;
	}

	/** How often the entries in memory were dropped. Later, a sequence may have another entry or another owner. */
	get restarts(): number {
		return this.#restarts;
	}

	/** Number and size of the entries in memory, and number of followers. */
	get usage(): { readonly entries: number; readonly bytes: number; readonly followers: number } {
		return { entries: this.#tail?.entries.length ?? 0, bytes: this.#tail?.bytes ?? 0, followers: this.#followers.size };
	}

	/** Sequence numbers by which the slowest follower is behind the newest entry. */
	get lag(): bigint {
		let lag = 0n;
		for (const { through } of this.#followers)
			if (through !== undefined && this.newest - through > lag) lag = this.newest - through;
		return lag;
	}

	/**
	 * Adds a follower. The store is read only while there are followers.
	 *
	 * @throws ServiceError `unavailable` when the store cannot be read
	 */
	async follow(): Promise<Follower> {
		const follower = new Follower((gone) => this.#leave(gone));
		this.#followers.add(follower);
		this.#tail ??= this.#start();
		const tail = this.#tail;
		try {
			await tail.started;
			// Reading stops after a failure. A new follower starts it again.
			if (!tail.reading) void this.#read(tail);
			return follower;
		} catch (error) {
			follower.leave();
			throw error;
		}
	}

	/** Whether every entry after a sequence, through {@link end}, is in memory. */
	covers(after: bigint): boolean {
		return this.#tail !== undefined && after >= this.#tail.start;
	}

	/** Returns the entries in memory after a sequence, in order and within limits, but at least one if there is one. */
	after(sequence: bigint, limits: EntryLimits): readonly Entry[] {
		const held = this.#tail?.entries ?? [];
		const first = held.findLastIndex((entry) => entry.sequence <= sequence) + 1;
		const entries: Entry[] = [];
		let bytes = 0;
		for (const entry of held.slice(first, first + limits.entries)) {
			bytes += this.#source.sizeOf(entry);
			if (entries.length > 0 && bytes > limits.bytes) break;
			entries.push(entry);
		}
		return entries;
	}

	#leave(follower: Follower): void {
		this.#followers.delete(follower);
		if (this.#followers.size > 0) return;
		this.#tail?.unsubscribe();
		this.#tail = undefined;
	}

	#start(): Tail<Entry> {
		const { log } = this.#source;
		const tail: Tail<Entry> = {
			entries: [],
			bytes: 0,
			start: 0n,
			end: 0n,
			newest: 0n,
			lastRemoval: 0n,
			reading: true,
			unsubscribe: log.subscribe((newest, change) => {
				if (newest > tail.newest) tail.newest = newest;
				if (change === "lost") this.#restart(newest);
				else if (change === "rewritten") this.#restart(undefined);
				else if (!tail.reading) void this.#read(tail);
			}),
			started: Promise.resolve(),
		};
		tail.started = log.range().then(({ newest, lastRemoval }) => {
			tail.lastRemoval = lastRemoval;
			tail.start = newest;
			tail.end = newest;
			if (newest > tail.newest) tail.newest = newest;
			void this.#read(tail);
		});
		// Followers await `started`. If all of them have left, its rejection would be unhandled.
		tail.started.catch(() => undefined);
		return tail;
	}

	/**
	 * Drops the entries in memory, so that followers read them from the store again. Followers that received entries which
	 * the store has lost fail; the others go on.
	 *
	 * @param lostAfter sequence after which the store has lost entries; undefined if it has all of them
	 */
	#restart(lostAfter: bigint | undefined): void {
		this.#tail?.unsubscribe();
		this.#restarts += 1;
		const tail = this.#start();
		this.#tail = tail;
		if (lostAfter !== undefined) for (const follower of this.#followers) follower.lost(lostAfter);
		tail.started.then(
			() => this.#wakeAll(),
			(error: unknown) => this.#failAll(error),
		);
	}

	#failAll(error: unknown): void {
		for (const follower of this.#followers) follower.fail(error);
	}

	/** Reads up to the newest entry. Reports a failure to the followers; the next commit or follower starts it again. */
	async #read(tail: Tail<Entry>): Promise<void> {
		tail.reading = true;
		try {
			while (this.#tail === tail && tail.end < tail.newest) {
				await this.#readPage(tail);
				await this.#wakeAll();
				const pause = Math.min(this.#followers.size * PAUSE_PER_FOLLOWER, MAX_PAUSE);
				if (pause >= 1) await setTimeout(pause);
			}
		} catch (error) {
			this.#failAll(error);
		} finally {
			tail.reading = false;
		}
	}

	async #readPage(tail: Tail<Entry>): Promise<void> {
		const { end, newest } = tail;
		const { log, sizeOf } = this.#source;
		const query = { after: end, limit: PAGE_ENTRIES, maxBytes: PAGE_BYTES, withRecords: true };
		const page = await log.list(query);
		// Queried after the page, so that pruning before or during the read of the page is noticed.
		const { prunedThrough, lastRemoval } = await log.range({ afterRemoval: tail.lastRemoval });
		tail.lastRemoval = lastRemoval;
		for (const entry of page) {
			tail.entries.push(entry);
			tail.bytes += sizeOf(entry);
		}
		// An empty page means that all announced entries have been pruned.
		tail.end = page.at(-1)?.sequence ?? newest;
		// Pruned entries may be missing. Followers that need them read from the store, which reports the pruning.
		const missing = prunedThrough > end ? prunedThrough : tail.start;
		let dropped = 0;
		for (const [index, entry] of tail.entries.entries()) {
			const held = tail.entries.length - index;
			const excess = held > this.#limits.entries || (tail.bytes > this.#limits.bytes && held > 1);
			if (!excess && entry.sequence > missing) break;
			tail.bytes -= sizeOf(entry);
			tail.start = entry.sequence;
			dropped += 1;
		}
		tail.entries.splice(0, dropped);
		if (missing > tail.start) tail.start = missing;
	}

	async #wakeAll(): Promise<void> {
		let woken = 0;
		// A copy, because followers come and leave during the loop.
		for (const follower of [...this.#followers]) {
			follower.wake();
			woken += 1;
			if (woken % WOKEN_AT_ONCE === 0) await setImmediate();
		}
	}
}

/**
 * The end of the log, in memory while there are followers. `entries` holds all stored entries after `start`, through
 * `end`. `newest` is the newest known sequence, `lastRemoval` the last removal of pruned entries that was considered.
 */
interface Tail<Entry> {
	entries: Entry[];
	bytes: number;
	start: bigint;
	end: bigint;
	newest: bigint;
	lastRemoval: bigint;
	reading: boolean;
	readonly unsubscribe: () => void;
	started: Promise<void>;
}

/** A reader that follows the newest entries. */
export class Follower {
	readonly #leave: (follower: Follower) => void;
	#through: bigint | undefined;
	#woken = false;
	#error: unknown;
	/** Sequence after which the store has lost entries, until {@link check} reports the loss. */
	#lostAfter: bigint | undefined;
	#resolve: (() => void) | undefined;

	constructor(leave: (follower: Follower) => void) {
		this.#leave = leave;
	}

	/** Sequence through which the follower has received everything; undefined until it is known. */
	get through(): bigint | undefined {
		return this.#through;
	}

	/** Records that the follower has received everything through a sequence. */
	reached(sequence: bigint): void {
		this.#through = sequence;
	}

	/** Waits for a wake-up; returns at once after one since the last wait. There must be only one wait at a time. */
	async wait(): Promise<void> {
		if (!this.#woken)
			await new Promise<void>((resolve) => {
				this.#resolve = resolve;
			});
		this.#woken = false;
	}

	/**
	 * Throws the failure that was reported since the last call, if any.
	 *
	 * @param through sequence through which the follower has received everything
	 * @throws the error that stopped the reading; ServiceError `out_of_range` when the store has lost received entries
	 */
	check(through: bigint): void {
		const [error, newest] = [this.#error, this.#lostAfter];
		this.#error = undefined;
		this.#lostAfter = undefined;
		if (newest !== undefined && newest < through)
			throw new ServiceError(
				"out_of_range",
				`the database has lost the entries after sequence ${newest}; start after sequence ${newest}`,
			);
		if (error === undefined) return;
		throw error instanceof Error ? error : new ServiceError("unavailable", "The store cannot be read");
	}

	wake(): void {
		this.#woken = true;
		this.#resolve?.();
		this.#resolve = undefined;
	}

	/** Reports that the store has lost the entries after `newest`. */
	lost(newest: bigint): void {
		if (this.#lostAfter === undefined || newest < this.#lostAfter) this.#lostAfter = newest;
		this.wake();
	}

	fail(error: unknown): void {
		this.#error = error;
		this.wake();
	}

	/** Stops following. A second call is harmless. */
	leave(): void {
		this.wake();
		this.#leave(this);
	}
}
