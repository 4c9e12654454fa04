import { setImmediate } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import {
	type ConversationFilter,
	type ConversationUpdate,
	HeartbeatSchema,
	WatchConversationUpdatesResponseSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceError } from "../../errors.ts";
import { type Condition, meets } from "../../store/condition.ts";
import type { RangeQuery, SequenceRange, Store, StoredUpdate } from "../../store/store.ts";
import { conditionsOf } from "../read/filter.ts";
import type { UpdateViewOptions, UpdateViews } from "../read/update-view.ts";
import { assertNotPruned, assertReached } from "./pruned.ts";
import { type Follower, RecentUpdates, type UpdateBounds } from "./recent-updates.ts";
import { SharedResponse } from "./shared-response.ts";

/** What a watcher asks for. */
export interface WatchRequest {
	/** A sequence number to start after, the oldest update that is kept, or what comes from now on. */
	readonly start: bigint | "beginning" | "now";
	/** Lower-case UUID with dashes. */
	readonly conversationId: string | undefined;
	/** Conditions on each update's own record. */
	readonly filter: ConversationFilter | undefined;
	readonly view: UpdateViewOptions;
}

/** Messages for one watcher, in order. They may be shared with other watchers: nobody may change them. */
export type WatchBatch = readonly SharedResponse[];

/** Settings of the watches of a service. */
export interface WatchOptions {
	/** After how much silence a heartbeat is sent, in milliseconds. 15000 when left out. */
	readonly heartbeat?: number;
	/** Ends all watches when it fires. */
	readonly stopping: AbortSignal;
	/** Bounds of what is kept in memory of the newest updates. */
	readonly recent?: UpdateBounds;
}

/** Bounds of one batch: all that a watcher that does not read on keeps in memory, unless one record is larger. */
const BATCH: UpdateBounds = { updates: 256, bytes: 256 * 1024 };
/** Batches of the newest updates that are kept for other watchers to share. */
const SHARED_BATCHES = 64;
/** Watchers that read history from the store at the same time; the others wait for their turn. */
const READERS = 4;
/** Milliseconds for which updates are made ready before other work has its turn. */
const LONGEST_RUN = 5;

/** What one watcher follows. */
interface Watched {
	readonly conversationId: string | undefined;
	readonly conditions: readonly Condition[];
	readonly view: UpdateViewOptions;
	/** Equal for watchers that are given the same messages. */
	readonly key: string;
}

interface Scanned {
	readonly responses: WatchBatch;
	/** Sequence through which the watcher now has everything. */
	readonly through: bigint;
}

/**
 * Lets many watchers follow the updates of a store. A watcher is given updates at the pace at which it takes them, and
 * holds no more than one batch meanwhile: the newest ones come from the {@link RecentUpdates} that all share, older
 * ones from the store.
 */
export class Watches {
	readonly recent: RecentUpdates;
	readonly #store: Store;
	readonly #views: UpdateViews;
	readonly #heartbeat: number;
	readonly #stopping: AbortSignal;
	readonly #shared = new LRUCache<string, Promise<WatchBatch>>({ max: SHARED_BATCHES });
	readonly #reads = new Map<string, Promise<Scanned>>();
	readonly #turns = new Turns(READERS);
	readonly #responses = new WeakMap<ConversationUpdate, SharedResponse>();
	#lastHeartbeat = heartbeat(0n, 0n);

	constructor(store: Store, views: UpdateViews, options: WatchOptions) {
		this.recent = new RecentUpdates(store, options.recent);
		this.#store = store;
		this.#views = views;
		this.#heartbeat = options.heartbeat ?? 15_000;
		this.#stopping = options.stopping;
	}

	/**
	 * Follows updates until `signal` fires, which ends the iteration and frees all that belongs to it.
	 *
	 * @throws ServiceError `invalid_argument` that names a field of the filter, `out_of_range` when updates that it should
	 *   give have been pruned or the start is beyond the newest sequence, `unavailable` when the store cannot be read or
	 *   the service stops
	 */
	async *watch(request: WatchRequest, signal: AbortSignal): AsyncGenerator<WatchBatch, void, undefined> {
		const watched = watchedOf(request);
		const follower = await this.recent.follow();
		let due = false;
		const silence = setTimeout(() => {
			due = true;
			follower.wake();
		}, this.#heartbeat);
		const release = (): void => {
			clearTimeout(silence);
			follower.leave();
		};
		// Not only at the end: a transport that waits for a client that has gone may never ask for it.
		signal.addEventListener("abort", release, { once: true });
		try {
			for await (const batch of this.#follow(request.start, watched, follower, signal, () => due)) {
				yield batch;
				due = false;
				if (!signal.aborted) silence.refresh();
			}
		} finally {
			signal.removeEventListener("abort", release);
			release();
		}
		if (this.#stopping.aborted) throw new ServiceError("unavailable", "The service stops");
	}

	async *#follow(
		start: WatchRequest["start"],
		watched: Watched,
		follower: Follower,
		signal: AbortSignal,
		isDue: () => boolean,
	): AsyncGenerator<WatchBatch, void, undefined> {
		const range = await this.#store.updates.range();
		let cursor = startOf(start, range);
		// A watch from the beginning asks for what is stored now. What was pruned before does not concern it.
		let afterRemoval = cursor === 0n ? range.lastRemoval : undefined;
		let caughtUp = false;
		while (!signal.aborted) {
			follower.check();
			const isRecent = this.recent.covers(cursor);
			if (isRecent) afterRemoval = undefined;
			const scanned = isRecent
				? await this.#fromRecent(watched, cursor)
				: await this.#fromStore(watched, cursor, afterRemoval);
			if (signal.aborted) return;
			const advanced = scanned.through > cursor;
			cursor = scanned.through;
			if (scanned.responses.length > 0) yield scanned.responses;
			const isNewest = cursor >= this.recent.newest;
			if (isDue() || (isNewest && !caughtUp)) {
				caughtUp ||= isNewest;
				yield [this.#heartbeatAt(cursor)];
			} else if (!advanced) await follower.wait();
		}
	}

	/** The next updates out of memory; no more than those that are there. */
	async #fromRecent(watched: Watched, cursor: bigint): Promise<Scanned> {
		const updates = this.recent.after(cursor, BATCH);
		const through = updates.at(-1)?.sequence ?? maxOf(cursor, this.recent.end);
		if (updates.length === 0) return { responses: [], through };
		const key = `${cursor} ${through} ${watched.key}`;
		let responses = this.#shared.get(key);
		if (responses === undefined) {
			responses = this.#select(watched, updates);
			this.#shared.set(key, responses);
			responses.catch(() => this.#shared.delete(key));
		}
		return { responses: await responses, through };
	}

	/** The next updates out of the store. Watchers that stand at the same place, as after a restart, read together. */
	#fromStore(watched: Watched, cursor: bigint, afterRemoval: bigint | undefined): Promise<Scanned> {
		const key = `${cursor} ${afterRemoval} ${watched.key}`;
		let read = this.#reads.get(key);
		if (read === undefined) {
			read = this.#turns
				.run(() => this.#readPage(watched, cursor, afterRemoval))
				.finally(() => {
					this.#reads.delete(key);
				});
			this.#reads.set(key, read);
		}
		return read;
	}

	async #readPage(watched: Watched, cursor: bigint, afterRemoval: bigint | undefined): Promise<Scanned> {
		const { conversationId } = watched;
		const { end } = this.recent;
		const query = { after: cursor, conversationId, limit: BATCH.updates, maxBytes: BATCH.bytes, withRecords: true };
		const updates = await this.#store.updates.list(query);
		await assertNotPruned(this.#store, cursor, { conversationId, afterRemoval } satisfies RangeQuery);
		const through = updates.at(-1)?.sequence ?? maxOf(cursor, end);
		return { responses: await this.#select(watched, updates), through };
	}

	async #select({ conversationId, conditions, view }: Watched, updates: readonly StoredUpdate[]): Promise<WatchBatch> {
		const responses: SharedResponse[] = [];
		let since = performance.now();
		for (const stored of updates) {
			if (conversationId !== undefined && stored.conversationId !== conversationId) continue;
			const update = await this.#views.toUpdate(stored, view);
			// What cannot be read may meet the conditions.
			if (update.summary === undefined || meets(conditions, update.summary)) responses.push(this.#responseOf(update));
			if (performance.now() - since < LONGEST_RUN) continue;
			await setImmediate();
			since = performance.now();
		}
		return responses;
	}

	/** One message for all watchers of one view of an update, so that a transport need encode it only once. */
	#responseOf(update: ConversationUpdate): SharedResponse {
		const known = this.#responses.get(update);
		if (known !== undefined) return known;
		const event = { case: "update", value: update } as const;
		const response = new SharedResponse(
			create(WatchConversationUpdatesResponseSchema, { sequence: update.sequence, event }),
		);
		this.#responses.set(update, response);
		return response;
	}

	#heartbeatAt(sequence: bigint): SharedResponse {
		const latest = maxOf(sequence, this.recent.newest);
		const last = this.#lastHeartbeat.message;
		const same =
			last.sequence === sequence && last.event.case === "heartbeat" && last.event.value.latestSequence === latest;
		if (!same) this.#lastHeartbeat = heartbeat(sequence, latest);
		return this.#lastHeartbeat;
	}
}

function heartbeat(sequence: bigint, latestSequence: bigint): SharedResponse {
	const event = { case: "heartbeat", value: create(HeartbeatSchema, { latestSequence }) } as const;
	return new SharedResponse(create(WatchConversationUpdatesResponseSchema, { sequence, event }));
}

/** @throws ServiceError `invalid_argument` that names a field of the filter */
function watchedOf({ conversationId, filter, view }: WatchRequest): Watched {
	const conditions = conditionsOf(filter);
	const key = JSON.stringify([conversationId, conditions, view], (_, value: unknown) =>
		typeof value === "bigint" ? String(value) : value,
	);
	return { conversationId, conditions, view, key };
}

/** @throws ServiceError `out_of_range` when the start is beyond the newest sequence */
function startOf(start: WatchRequest["start"], { newest }: SequenceRange): bigint {
	if (start === "now") return newest;
	if (start === "beginning") return 0n;
	assertReached(start, newest);
	return start;
}

function maxOf(a: bigint, b: bigint): bigint {
	return a > b ? a : b;
}

/** Lets a number of tasks run at the same time, the others in the order in which they came. */
class Turns {
	#free: number;
	readonly #waiting: (() => void)[] = [];

	constructor(count: number) {
		this.#free = count;
	}

	async run<Result>(task: () => Promise<Result>): Promise<Result> {
		if (this.#free > 0) this.#free -= 1;
		else await new Promise<void>((resolve) => this.#waiting.push(resolve));
		try {
			return await task();
		} finally {
			const next = this.#waiting.shift();
			if (next === undefined) this.#free += 1;
			else next();
		}
	}
}
