import { setImmediate, setTimeout } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { Store, StoredUpdate } from "../../store/store.ts";
import { recordSize } from "../read/record-opener.ts";

/** Bounds of a list of updates. */
export interface UpdateBounds {
	/** Most updates that are held. */
	readonly updates: number;
	/** Most bytes of records that are held; one record may pass it when it is alone. */
	readonly bytes: number;
}

/** Bounds of one read from the store. */
const PAGE_UPDATES = 256;
const PAGE_BYTES = 1024 * 1024;
/** Followers that are woken before other work has its turn. */
const WOKEN_AT_ONCE = 128;
/** Pause between two rounds of waking, in milliseconds: for each follower, and at most. */
const PAUSE_PER_FOLLOWER = 0.1;
const MAX_PAUSE = 100;

/**
 * The newest updates, read from the store once for everyone who follows them. What a commit adds is read with its
 * records and kept in memory within fixed bounds, oldest out first; a follower that comes too late for it reads from
 * the store.
 *
 * Followers are woken in rounds, with a pause between rounds that grows with their number: a thousand of them are
 * woken ten times a second and then take several updates together, because each wake-up costs more than an update.
 */
export class RecentUpdates {
	readonly #store: Pick<Store, "updates">;
	readonly #bounds: UpdateBounds;
	readonly #followers = new Set<Follower>();
	#run: Run | undefined;

	constructor(
		store: Pick<Store, "updates">,
		bounds: UpdateBounds = { updates: 1024, bytes: 8 * 1024 * 1024 },
	) {
		this.#store = store;
		this.#bounds = bounds;
	}

	/** Sequence of the newest update that is known to be stored. */
	get newest(): bigint {
		return this.#run?.newest ?? 0n;
	}

	/** Sequence through which the store has been read. */
	get end(): bigint {
		return this.#run?.end ?? 0n;
	}

	/** What is held, and for how many. */
	get held(): { readonly updates: number; readonly bytes: number; readonly followers: number } {
		return { updates: this.#run?.updates.length ?? 0, bytes: this.#run?.bytes ?? 0, followers: this.#followers.size };
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

	/** Whether every update after a sequence, through {@link end}, is held. */
	covers(after: bigint): boolean {
		return this.#run !== undefined && after >= this.#run.start;
	}

	/** The held updates after a sequence, in order: at least one if there is one, within bounds otherwise. */
	after(sequence: bigint, bounds: UpdateBounds): readonly StoredUpdate[] {
		const updates = this.#run?.updates ?? [];
		const first = updates.findLastIndex((update) => update.sequence <= sequence) + 1;
		let last = first;
		let bytes = 0;
		while (last < updates.length && last - first < bounds.updates) {
			bytes += sizeOf(updates[last]);
			if (last > first && bytes > bounds.bytes) break;
			last += 1;
		}
		return updates.slice(first, last);
	}

	#leave(follower: Follower): void {
		this.#followers.delete(follower);
		if (this.#followers.size > 0) return;
		this.#run?.unsubscribe();
		this.#run = undefined;
	}

	#start(): Run {
		const run: Run = {
			updates: [],
			bytes: 0,
			start: 0n,
			end: 0n,
			newest: 0n,
			lastRemoval: 0n,
			reading: true,
			unsubscribe: this.#store.updates.subscribe((newest) => {
				if (newest > run.newest) run.newest = newest;
				if (!run.reading) void this.#read(run);
			}),
			started: Promise.resolve(),
		};
		run.started = this.#store.updates.range().then(({ newest, lastRemoval }) => {
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

	/** Reads on to the newest update. What fails is told to the followers; the next commit starts anew. */
	async #read(run: Run): Promise<void> {
		run.reading = true;
		try {
			while (this.#run === run && run.end < run.newest) {
				await this.#readPage(run);
				await this.#wakeAll();
				const pause = Math.min(this.#followers.size * PAUSE_PER_FOLLOWER, MAX_PAUSE);
				if (pause >= 1) await setTimeout(pause);
			}
		} catch (error) {
			for (const follower of this.#followers) follower.fail(error);
		} finally {
			run.reading = false;
		}
	}

	async #readPage(run: Run): Promise<void> {
		const { end, newest } = run;
		const query = { after: end, limit: PAGE_UPDATES, maxBytes: PAGE_BYTES, withRecords: true };
		const page = await this.#store.updates.list(query);
		// Asked for after the page, so that nothing can have been pruned from it unnoticed.
		const { prunedThrough, lastRemoval } = await this.#store.updates.range({ afterRemoval: run.lastRemoval });
		run.lastRemoval = lastRemoval;
		for (const update of page) {
			run.updates.push(update);
			run.bytes += sizeOf(update);
		}
		// An empty page: all that was announced has been pruned already.
		run.end = page.at(-1)?.sequence ?? newest;
		// What was pruned meanwhile may be missing: who needs it has to hear of it from the store.
		const missing = prunedThrough > end ? prunedThrough : run.start;
		let dropped = 0;
		for (const [index, update] of run.updates.entries()) {
			const held = run.updates.length - index;
			const excess = held > this.#bounds.updates || (run.bytes > this.#bounds.bytes && held > 1);
			if (!excess && update.sequence > missing) break;
			run.bytes -= sizeOf(update);
			run.start = update.sequence;
			dropped += 1;
		}
		run.updates.splice(0, dropped);
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
 * What is in memory while there are followers. All stored updates after `start`, through `end`, are in `updates`;
 * `newest` was announced; `lastRemoval` is the last removal of pruned updates that was taken into account.
 */
interface Run {
	updates: StoredUpdate[];
	bytes: number;
	start: bigint;
	end: bigint;
	newest: bigint;
	lastRemoval: bigint;
	reading: boolean;
	readonly unsubscribe: () => void;
	started: Promise<void>;
}

function sizeOf(update: StoredUpdate | undefined): number {
	return recordSize(update?.record);
}

/** One who follows the newest updates. */
export class Follower {
	readonly #leave: (follower: Follower) => void;
	#woken = false;
	#error: unknown;
	#resolve: (() => void) | undefined;

	constructor(leave: (follower: Follower) => void) {
		this.#leave = leave;
	}

	/** Waits for the next wake-up, or for one since the last wait. Only one wait at a time. */
	async wait(): Promise<void> {
		if (!this.#woken)
			await new Promise<void>((resolve) => {
				this.#resolve = resolve;
			});
		this.#woken = false;
	}

	/** @throws what kept the tail from reading, when that happened since the last call */
	check(): void {
		const error = this.#error;
		this.#error = undefined;
		if (error === undefined) return;
		throw error instanceof Error ? error : new ServiceError("unavailable", "The store cannot be read");
	}

	wake(): void {
		this.#woken = true;
		this.#resolve?.();
		this.#resolve = undefined;
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
