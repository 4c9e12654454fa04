import { setImmediate, setTimeout } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { EntryLog, LogEntry } from "../read/entry-log.ts";

/** Bounds of a list of entries. */
export interface EntryBounds {
	/** Most entries that are held. */
	readonly entries: number;
	/** Most bytes of records or texts that are held; one may pass it when it is alone. */
	readonly bytes: number;
}

/** Bounds of one read from the store. */
const PAGE_ENTRIES = 256;
const PAGE_BYTES = 1024 * 1024;
/** Followers that are woken before other work has its turn. */
const WOKEN_AT_ONCE = 128;
/** Pause between two rounds of waking, in milliseconds: for each follower, and at most. */
const PAUSE_PER_FOLLOWER = 0.1;
const MAX_PAUSE = 100;

/**
 * The newest entries of a log, read from the store once for everyone who follows them. What a commit adds is read whole
 * and kept in memory within fixed bounds, oldest out first; a follower that comes too late for it reads from the store.
 *
 * Followers are woken in rounds, with a pause between rounds that grows with their number: a thousand of them are
 * woken ten times a second and then take several entries together, because each wake-up costs more than an entry.
 */
export class RecentEntries<Entry extends LogEntry> {
	readonly #source: EntryLog<Entry>;
	readonly #bounds: EntryBounds;
	readonly #followers = new Set<Follower>();
	#run: Run<Entry> | undefined;
	#losses = 0;

	constructor(source: EntryLog<Entry>, bounds: EntryBounds = { entries: 1024, bytes: 8 * 1024 * 1024 }) {
		this.#source = source;
		this.#bounds = bounds;
	}

	/** Sequence of the newest entry that is known to be stored. */
	get newest(): bigint {
		return this.#run?.newest ?? 0n;
	}

	/** Sequence through which the store has been read. */
	get end(): bigint {
		return this.#run?.end ?? 0n;
	}

	/** How often the store has lost entries: a sequence may stand for another entry after each time. */
	get losses(): number {
		return this.#losses;
	}

	/** What is held, and for how many. */
	get held(): { readonly entries: number; readonly bytes: number; readonly followers: number } {
		return { entries: this.#run?.entries.length ?? 0, bytes: this.#run?.bytes ?? 0, followers: this.#followers.size };
	}

	/** By how many sequence numbers the slowest follower is behind the newest entry. */
	get lag(): bigint {
		let lag = 0n;
		for (const { through } of this.#followers)
			if (through !== undefined && this.newest - through > lag) lag = this.newest - through;
		return lag;
	}

	/**
	 * Begins to follow. The store is read only while someone follows.
	 *
	 * @throws ServiceError `unavailable` when the store cannot be read
	 */
	async follow(): Promise<Follower> {
		const follower = new Follower((gone) => this.#leave(gone));
		this.#followers.add(follower);
		this.#run ??= this.#start();
		const run = this.#run;
		try {
			await run.started;
			// After a failure nothing reads on by itself.
			if (!run.reading) void this.#read(run);
			return follower;
		} catch (error) {
			follower.leave();
			throw error;
		}
	}

	/** Whether every entry after a sequence, through {@link end}, is held. */
	covers(after: bigint): boolean {
		return this.#run !== undefined && after >= this.#run.start;
	}

	/** The held entries after a sequence, in order: at least one if there is one, within bounds otherwise. */
	after(sequence: bigint, bounds: EntryBounds): readonly Entry[] {
		const held = this.#run?.entries ?? [];
		const first = held.findLastIndex((entry) => entry.sequence <= sequence) + 1;
		const entries: Entry[] = [];
		let bytes = 0;
		for (const entry of held.slice(first, first + bounds.entries)) {
			bytes += this.#source.sizeOf(entry);
			if (entries.length > 0 && bytes > bounds.bytes) break;
			entries.push(entry);
		}
		return entries;
	}

	#leave(follower: Follower): void {
		this.#followers.delete(follower);
		if (this.#followers.size > 0) return;
		this.#run?.unsubscribe();
		this.#run = undefined;
	}

	#start(): Run<Entry> {
		const { log } = this.#source;
		const run: Run<Entry> = {
			entries: [],
			bytes: 0,
			start: 0n,
			end: 0n,
			newest: 0n,
			lastRemoval: 0n,
			reading: true,
			unsubscribe: log.subscribe((newest, isLoss) => {
				if (newest > run.newest) run.newest = newest;
				if (isLoss) this.#startAnew(newest);
				else if (!run.reading) void this.#read(run);
			}),
			started: Promise.resolve(),
		};
		run.started = log.range().then(({ newest, lastRemoval }) => {
			run.lastRemoval = lastRemoval;
			run.start = newest;
			run.end = newest;
			if (newest > run.newest) run.newest = newest;
			void this.#read(run);
		});
		// Everyone who follows awaits it; when all have left already, nobody does.
		run.started.catch(() => undefined);
		return run;
	}

	/** Forgets what is held. Followers that have entries which are gone are told, the others go on. */
	#startAnew(newest: bigint): void {
		this.#run?.unsubscribe();
		this.#losses += 1;
		const run = this.#start();
		this.#run = run;
		for (const follower of this.#followers) follower.lost(newest);
		run.started.then(
			() => this.#wakeAll(),
			(error: unknown) => this.#failAll(error),
		);
	}

	#failAll(error: unknown): void {
		for (const follower of this.#followers) follower.fail(error);
	}

	/** Reads on to the newest update. What fails is told to the followers; the next commit starts anew. */
	async #read(run: Run<Entry>): Promise<void> {
		run.reading = true;
		try {
			while (this.#run === run && run.end < run.newest) {
				await this.#readPage(run);
				await this.#wakeAll();
				const pause = Math.min(this.#followers.size * PAUSE_PER_FOLLOWER, MAX_PAUSE);
				if (pause >= 1) await setTimeout(pause);
			}
		} catch (error) {
			this.#failAll(error);
		} finally {
			run.reading = false;
		}
	}

	async #readPage(run: Run<Entry>): Promise<void> {
		const { end, newest } = run;
		const { log, sizeOf } = this.#source;
		const query = { after: end, limit: PAGE_ENTRIES, maxBytes: PAGE_BYTES, withRecords: true };
		const page = await log.list(query);
		// Asked for after the page, so that nothing can have been pruned from it unnoticed.
		const { prunedThrough, lastRemoval } = await log.range({ afterRemoval: run.lastRemoval });
		run.lastRemoval = lastRemoval;
		for (const entry of page) {
			run.entries.push(entry);
			run.bytes += sizeOf(entry);
		}
		// An empty page: all that was announced has been pruned already.
		run.end = page.at(-1)?.sequence ?? newest;
		// What was pruned meanwhile may be missing: who needs it has to hear of it from the store.
		const missing = prunedThrough > end ? prunedThrough : run.start;
		let dropped = 0;
		for (const [index, entry] of run.entries.entries()) {
			const held = run.entries.length - index;
			const excess = held > this.#bounds.entries || (run.bytes > this.#bounds.bytes && held > 1);
			if (!excess && entry.sequence > missing) break;
			run.bytes -= sizeOf(entry);
			run.start = entry.sequence;
			dropped += 1;
		}
		run.entries.splice(0, dropped);
		if (missing > run.start) run.start = missing;
	}

	async #wakeAll(): Promise<void> {
		let woken = 0;
		// A copy: followers come and leave meanwhile.
		for (const follower of [...this.#followers]) {
			follower.wake();
			woken += 1;
			if (woken % WOKEN_AT_ONCE === 0) await setImmediate();
		}
	}
}

/**
 * What is in memory while there are followers. All stored entries after `start`, through `end`, are in `entries`;
 * `newest` was announced; `lastRemoval` is the last removal of pruned entries that was taken into account.
 */
interface Run<Entry> {
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

/** One who follows the newest entries. */
export class Follower {
	readonly #leave: (follower: Follower) => void;
	#through: bigint | undefined;
	#woken = false;
	#error: unknown;
	/** Sequence after which entries are gone. */
	#newestLeft: bigint | undefined;
	#resolve: (() => void) | undefined;

	constructor(leave: (follower: Follower) => void) {
		this.#leave = leave;
	}

	/** Sequence through which it has everything; undefined until that is known. */
	get through(): bigint | undefined {
		return this.#through;
	}

	/** It has everything through a sequence. */
	reached(sequence: bigint): void {
		this.#through = sequence;
	}

	/** Waits for the next wake-up, or for one since the last wait. Only one wait at a time. */
	async wait(): Promise<void> {
		if (!this.#woken)
			await new Promise<void>((resolve) => {
				this.#resolve = resolve;
			});
		this.#woken = false;
	}

	/**
	 * @param through sequence through which it was given everything
	 * @throws what kept the tail from reading, when that happened since the last call; ServiceError `out_of_range` when
	 *   entries that it was given are gone
	 */
	check(through: bigint): void {
		const [error, newest] = [this.#error, this.#newestLeft];
		this.#error = undefined;
		this.#newestLeft = undefined;
		if (newest !== undefined && newest < through)
			throw new ServiceError(
				"out_of_range",
				`the database has lost what came after sequence ${newest}; start after that one`,
			);
		if (error === undefined) return;
		throw error instanceof Error ? error : new ServiceError("unavailable", "The store cannot be read");
	}

	wake(): void {
		this.#woken = true;
		this.#resolve?.();
		this.#resolve = undefined;
	}

	/** The entries after a sequence are gone. */
	lost(newest: bigint): void {
		if (this.#newestLeft === undefined || newest < this.#newestLeft) this.#newestLeft = newest;
		this.wake();
	}

	fail(error: unknown): void {
		this.#error = error;
		this.wake();
	}

	/** Ends it. Leaving twice is harmless. */
	leave(): void {
		this.wake();
		this.#leave(this);
	}
}
