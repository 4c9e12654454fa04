import { setImmediate } from "node:timers/promises";
import type { DescMessage } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { ServiceError } from "../../errors.ts";
import type { SequenceRange } from "../../store/store.ts";
import type { EntryLog, LogEntry } from "../read/entry-log.ts";
import { assertNotPruned, assertReached } from "./pruned.ts";
import { type EntryBounds, type Follower, RecentEntries } from "./recent-entries.ts";
import type { SharedResponse } from "./shared-response.ts";

/** A sequence number to start after, the oldest entry that is kept, or what comes from now on. */
export type WatchStart = bigint | "beginning" | "now";

/** What one watcher asks for. */
export interface Watched<Entry extends LogEntry, Response extends DescMessage> {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
	/** What else decides about the watcher's messages: watchers with equal ones share them. */
	readonly asked: readonly unknown[];
	/** What the watcher is given of an entry of its conversations; undefined when it does not ask for it. */
	readonly respond: (entry: Entry) => MaybePromise<SharedResponse<Response> | undefined>;
}

type MaybePromise<Value> = Value | Promise<Value>;

/** Messages for one watcher, in order. They may be shared with other watchers: nobody may change them. */
export type WatchBatch<Response extends DescMessage> = readonly SharedResponse<Response>[];

/** Settings of the watches of a service. */
export interface WatchOptions {
	/** After how much silence a heartbeat is sent, in milliseconds. 15000 when left out. */
	readonly heartbeat?: number;
	/** Ends all watches when it fires. */
	readonly stopping: AbortSignal;
	/** Bounds of what is kept in memory of the newest entries. */
	readonly recent?: EntryBounds;
}

/** Makes the heartbeat for a watcher that has everything through `sequence`; `latest` is the newest sequence. */
export type ToHeartbeat<Response extends DescMessage> = (sequence: bigint, latest: bigint) => SharedResponse<Response>;

/** Bounds of one batch: all that a watcher that does not read on keeps in memory, unless one record is larger. */
const BATCH: EntryBounds = { entries: 256, bytes: 256 * 1024 };
/** Batches of the newest entries that are kept for other watchers to share. */
const SHARED_BATCHES = 64;
/** Watchers that read history from the store at the same time; the others wait for their turn. */
const READERS = 4;
/** Milliseconds for which entries are made ready before other work has its turn. */
const LONGEST_RUN = 5;

/** A watcher, and the text that is equal for those that are given the same messages. */
type Keyed<Entry extends LogEntry, Response extends DescMessage> = Watched<Entry, Response> & { readonly key: string };

interface Scanned<Response extends DescMessage> {
	readonly responses: WatchBatch<Response>;
	/** Sequence through which the watcher now has everything. */
	readonly through: bigint;
}

/**
 * Lets many watchers follow a log of the store. A watcher is given entries at the pace at which it takes them, and holds
 * no more than one batch meanwhile: the newest ones come from the {@link RecentEntries} that all share, older ones from
 * the store.
 */
export class Watches<Entry extends LogEntry, Response extends DescMessage> {
	readonly recent: RecentEntries<Entry>;
	readonly #source: EntryLog<Entry>;
	readonly #toHeartbeat: ToHeartbeat<Response>;
	readonly #heartbeat: number;
	readonly #stopping: AbortSignal;
	readonly #shared = new LRUCache<string, Promise<WatchBatch<Response>>>({ max: SHARED_BATCHES });
	readonly #reads = new Map<string, Promise<Scanned<Response>>>();
	readonly #turns = new Turns(READERS);
	#lastHeartbeat: { sequence: bigint; latest: bigint; response: SharedResponse<Response> } | undefined;

	constructor(source: EntryLog<Entry>, toHeartbeat: ToHeartbeat<Response>, options: WatchOptions) {
		this.recent = new RecentEntries(source, options.recent);
		this.#source = source;
		this.#toHeartbeat = toHeartbeat;
		this.#heartbeat = options.heartbeat ?? 15_000;
		this.#stopping = options.stopping;
	}

	/**
	 * Follows entries until `signal` fires, which ends the iteration and frees all that belongs to it.
	 *
	 * @throws ServiceError `out_of_range` when entries that it should give have been pruned or the start is beyond the
	 *   newest sequence, `unavailable` when the store cannot be read or the service stops
	 */
	async *watch(
		watched: Watched<Entry, Response>,
		signal: AbortSignal,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
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
			for await (const batch of this.#follow({ ...watched, key: keyOf(watched) }, follower, signal, () => due)) {
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
		watched: Keyed<Entry, Response>,
		follower: Follower,
		signal: AbortSignal,
		isDue: () => boolean,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const range = await this.#source.log.range();
		let cursor = startOf(watched.start, range);
		follower.reached(cursor);
		// A watch from the beginning asks for what is stored now. What was pruned before does not concern it.
		let afterRemoval = cursor === 0n ? range.lastRemoval : undefined;
		let caughtUp = false;
		while (!signal.aborted) {
			follower.check(cursor);
			const isRecent = this.recent.covers(cursor);
			if (isRecent) afterRemoval = undefined;
			const scanned = isRecent
				? await this.#fromRecent(watched, cursor)
				: await this.#fromStore(watched, cursor, afterRemoval);
			if (signal.aborted) return;
			const advanced = scanned.through > cursor;
			cursor = scanned.through;
			if (scanned.responses.length > 0) yield scanned.responses;
			// The watcher has asked for more, so it has taken these.
			follower.reached(cursor);
			const isNewest = cursor >= this.recent.newest;
			if (isDue() || (isNewest && !caughtUp)) {
				caughtUp ||= isNewest;
				yield [this.#heartbeatAt(cursor)];
			} else if (!advanced) await follower.wait();
		}
	}

	/** The next entries out of memory; no more than those that are there. */
	async #fromRecent(watched: Keyed<Entry, Response>, cursor: bigint): Promise<Scanned<Response>> {
		const entries = this.recent.after(cursor, BATCH);
		const through = entries.at(-1)?.sequence ?? maxOf(cursor, this.recent.end);
		if (entries.length === 0) return { responses: [], through };
		const key = `${this.recent.losses} ${cursor} ${through} ${watched.key}`;
		let responses = this.#shared.get(key);
		if (responses === undefined) {
			responses = this.#select(watched, entries);
			this.#shared.set(key, responses);
			responses.catch(() => this.#shared.delete(key));
		}
		return { responses: await responses, through };
	}

	/** The next entries out of the store. Watchers that stand at the same place, as after a restart, read together. */
	#fromStore(
		watched: Keyed<Entry, Response>,
		cursor: bigint,
		afterRemoval: bigint | undefined,
	): Promise<Scanned<Response>> {
		const key = `${cursor} ${afterRemoval} ${watched.key}`;
		return this.#reads.getOrInsertComputed(key, () =>
			this.#turns
				.run(() => this.#readPage(watched, cursor, afterRemoval))
				.finally(() => {
					this.#reads.delete(key);
				}),
		);
	}

	async #readPage(
		watched: Watched<Entry, Response>,
		cursor: bigint,
		afterRemoval: bigint | undefined,
	): Promise<Scanned<Response>> {
		const { conversationId } = watched;
		const { end } = this.recent;
		const query = { after: cursor, conversationId, limit: BATCH.entries, maxBytes: BATCH.bytes, withRecords: true };
		const entries = await this.#source.log.list(query);
		await assertNotPruned(this.#source, cursor, { conversationId, afterRemoval });
		const through = entries.at(-1)?.sequence ?? maxOf(cursor, end);
		return { responses: await this.#select(watched, entries), through };
	}

	async #select(
		{ conversationId, respond }: Watched<Entry, Response>,
		entries: readonly Entry[],
	): Promise<WatchBatch<Response>> {
		const responses: SharedResponse<Response>[] = [];
		let since = performance.now();
		for (const entry of entries) {
			if (conversationId !== undefined && entry.conversationId !== conversationId) continue;
			const response = await respond(entry);
			if (response !== undefined) responses.push(response);
			if (performance.now() - since < LONGEST_RUN) continue;
			await setImmediate();
			since = performance.now();
		}
		return responses;
	}

	/** Equal heartbeats one after the other are one message, because all watchers that are up to date get the same. */
	#heartbeatAt(sequence: bigint): SharedResponse<Response> {
		const latest = maxOf(sequence, this.recent.newest);
		const last = this.#lastHeartbeat;
		if (last?.sequence === sequence && last.latest === latest) return last.response;
		const response = this.#toHeartbeat(sequence, latest);
		this.#lastHeartbeat = { sequence, latest, response };
		return response;
	}
}

function keyOf<Entry extends LogEntry, Response extends DescMessage>({
	conversationId,
	asked,
}: Watched<Entry, Response>): string {
	return JSON.stringify([conversationId, asked], (_, value: unknown) =>
		typeof value === "bigint" ? String(value) : value,
	);
}

/** @throws ServiceError `out_of_range` when the start is beyond the newest sequence */
function startOf(start: WatchStart, { newest }: SequenceRange): bigint {
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
