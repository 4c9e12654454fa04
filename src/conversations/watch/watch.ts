import { setImmediate } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import {
	type ConversationUpdate,
	HeartbeatSchema,
	WatchConversationUpdatesResponseSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceError } from "../../errors.ts";
import type { SequenceRange, Store, StoredUpdate, ConversationFilter as StoreFilter } from "../../store/store.ts";
import { columnsOf } from "../ingest/columns.ts";
import { matchesFilter } from "../read/filter.ts";
import { LruMap } from "../read/lru.ts";
import type { UpdateViewOptions, UpdateViews } from "../read/update-view.ts";
import { assertKept } from "./kept.ts";
import { SharedResponse } from "./shared-response.ts";
import { type Follower, type TailBounds, UpdateTail } from "./tail.ts";

/** What a watcher asks for. */
export interface WatchRequest {
	/** A sequence number to start after, the oldest update that is kept, or what comes from now on. */
	readonly start: bigint | "beginning" | "now";
	/** Lower-case UUID with dashes. */
	readonly conversationId: string | undefined;
	/** Conditions on each update's own record. */
	readonly filter: StoreFilter;
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
	readonly tail?: TailBounds;
}

/** Bounds of one batch: all that a watcher that does not read on keeps in memory, unless one record is larger. */
const BATCH: TailBounds = { updates: 256, bytes: 256 * 1024 };
/** Batches of the newest updates that are kept for other watchers to share. */
const SHARED_BATCHES = 64;
/** Watchers that read history from the store at the same time; the others wait for their turn. */
const READERS = 4;
/** Milliseconds for which updates are made ready before other work has its turn. */
const LONGEST_RUN = 5;

interface Scanned {
	readonly responses: WatchBatch;
	/** Sequence through which the watcher now has everything. */
	readonly through: bigint;
}

/**
 * Lets many watchers follow the updates of a store. A watcher is given updates at the pace at which it takes them, and
 * holds no more than one batch meanwhile: the newest ones come from the {@link UpdateTail} that all share, older ones
 * from the store.
 */
export class Watches {
	readonly tail: UpdateTail;
	readonly #store: Store;
	readonly #views: UpdateViews;
	readonly #heartbeat: number;
	readonly #stopping: AbortSignal;
	readonly #shared = new LruMap<string, Promise<WatchBatch>>(SHARED_BATCHES);
	readonly #reads = new Map<string, Promise<Scanned>>();
	readonly #turns = new Turns(READERS);
	readonly #responses = new WeakMap<ConversationUpdate, SharedResponse>();
	#lastHeartbeat = heartbeat(0n, 0n);

	constructor(store: Store, views: UpdateViews, options: WatchOptions) {
		this.tail = new UpdateTail(store, options.tail);
		this.#store = store;
		this.#views = views;
		this.#heartbeat = options.heartbeat ?? 15_000;
		this.#stopping = options.stopping;
	}

	/**
	 * Follows updates until `signal` fires, which ends the iteration and frees all that belongs to it.
	 *
	 * Starts after a sequence number that is not stored yet are starts at the newest one: the number comes from another
	 * or an older database, and waiting for it would leave out the updates up to it.
	 *
	 * @throws ServiceError `out_of_range` when updates that it should give have been pruned, `unavailable` when the
	 *   store cannot be read or the service stops
	 */
	async *watch(request: WatchRequest, signal: AbortSignal): AsyncGenerator<WatchBatch, void, undefined> {
		const follower = await this.tail.follow();
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
			for await (const batch of this.#follow(request, follower, signal, () => due)) {
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
		request: WatchRequest,
		follower: Follower,
		signal: AbortSignal,
		isDue: () => boolean,
	): AsyncGenerator<WatchBatch, void, undefined> {
		const key = keyOf(request);
		let cursor = startOf(request, await this.#store.range());
		// Who starts at the beginning asks for what is kept, whatever was pruned, until it has caught up.
		let complete = cursor > 0n;
		let caughtUp = false;
		while (!signal.aborted) {
			follower.check();
			const scanned = this.tail.covers(cursor)
				? await this.#fromTail(request, key, cursor)
				: await this.#fromStore(request, key, cursor, complete);
			if (signal.aborted) return;
			const advanced = scanned.through > cursor;
			cursor = scanned.through;
			complete ||= this.tail.covers(cursor);
			if (scanned.responses.length > 0) yield scanned.responses;
			const atHead = cursor >= this.tail.newest;
			if (isDue() || (atHead && !caughtUp)) {
				caughtUp ||= atHead;
				yield [this.#heartbeatAt(cursor)];
			} else if (!advanced) await follower.wait();
		}
	}

	/** The next updates out of the tail; no more than those that it holds. */
	async #fromTail(request: WatchRequest, key: string, cursor: bigint): Promise<Scanned> {
		const updates = this.tail.after(cursor, BATCH);
		const through = updates.at(-1)?.sequence ?? maxOf(cursor, this.tail.end);
		if (updates.length === 0) return { responses: [], through };
		const shareKey = `${cursor} ${through} ${key}`;
		let responses = this.#shared.get(shareKey);
		if (responses === undefined) {
			responses = this.#select(request, updates);
			this.#shared.set(shareKey, responses, 1);
			responses.catch(() => this.#shared.delete(shareKey));
		}
		return { responses: await responses, through };
	}

	/** The next updates out of the store. Watchers that stand at the same place, as after a restart, read together. */
	#fromStore(request: WatchRequest, key: string, cursor: bigint, complete: boolean): Promise<Scanned> {
		const readKey = `${cursor} ${complete} ${key}`;
		let read = this.#reads.get(readKey);
		if (read === undefined) {
			read = this.#turns
				.run(() => this.#readPage(request, cursor, complete))
				.finally(() => {
					this.#reads.delete(readKey);
				});
			this.#reads.set(readKey, read);
		}
		return read;
	}

	async #readPage(request: WatchRequest, cursor: bigint, complete: boolean): Promise<Scanned> {
		const { conversationId } = request;
		const { end } = this.tail;
		const query = { after: cursor, conversationId, limit: BATCH.updates, maxBytes: BATCH.bytes, withRecords: true };
		const updates = await this.#store.listUpdates(query);
		if (complete) await assertKept(this.#store, cursor, conversationId);
		const through = updates.at(-1)?.sequence ?? maxOf(cursor, end);
		return { responses: await this.#select(request, updates), through };
	}

	async #select({ conversationId, filter, view }: WatchRequest, updates: readonly StoredUpdate[]): Promise<WatchBatch> {
		const responses: SharedResponse[] = [];
		let since = performance.now();
		for (const stored of updates) {
			if (conversationId !== undefined && stored.conversationId !== conversationId) continue;
			const update = await this.#views.toUpdate(stored, view);
			if (update.summary !== undefined && matchesFilter(filter, columnsOf(update.summary)))
				responses.push(this.#responseOf(update));
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
		const latest = maxOf(sequence, this.tail.newest);
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

/** Equal for watchers that are given the same messages. */
function keyOf({ conversationId, filter, view }: WatchRequest): string {
	return JSON.stringify([conversationId, filter, view], (_, value: unknown) =>
		typeof value === "bigint" ? String(value) : value,
	);
}

function startOf({ start }: WatchRequest, { newest }: SequenceRange): bigint {
	if (start === "now") return newest;
	if (start === "beginning" || start === 0n) return 0n;
	return start < newest ? start : newest;
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
