import { setImmediate } from "node:timers/promises";
import { type DescMessage, fromBinary, type MessageShape, toBinary, toJsonString } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { ServiceError } from "../../errors.ts";
import { idDigest } from "../../store/erasure.ts";
import type { SequenceRange } from "../../store/sequence-log.ts";
import { assertNotBeyondNewest, assertNotPruned, type EntryLog, type LogEntry } from "../read/entry-log.ts";
import { type EntryLimits, type Follower, RecentEntries } from "./recent-entries.ts";

/** Where a watch starts: after a sequence number, at the oldest stored entry, or with the next new one. */
export type WatchStart = bigint | "beginning" | "now";

/** Request of one watcher. */
export interface WatchRequest<Entry extends LogEntry, Response extends DescMessage> {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
	/** Only entries of conversations of this owner; undefined for those of all. */
	readonly owner?: string | undefined;
	/** All else that determines the messages. Watchers of the same conversation with an equal variant share them. */
	readonly variant: readonly unknown[];
	/** Called before entries are read; the result makes their messages. */
	readonly responder: () => Respond<Entry, Response>;
}

/** Returns the message for an entry of the requested conversations; undefined when the request excludes it. */
type Respond<Entry, Response extends DescMessage> = (
	entry: Entry,
) => MaybePromise<SharedResponse<Response> | undefined>;

type MaybePromise<Value> = Value | Promise<Value>;

/** Messages for one watcher, in order. They must not be changed, because other watchers may share them. */
export type WatchBatch<Response extends DescMessage> = readonly SharedResponse<Response>[];

/** Settings of the watches of a service. */
export interface WatchOptions {
	/** Milliseconds without a message after which a heartbeat is sent. Default: 15000. */
	readonly heartbeat?: number;
	/** Fires when the service stops. A watch that ends after that fails with `unavailable`. */
	readonly stopping: AbortSignal;
	/** Limits of the newest entries in memory. */
	readonly recent?: EntryLimits;
}

/** Makes the message with a heartbeat of a watcher that has received everything through `sequence`. */
type ToHeartbeat<Response extends DescMessage> = (
	sequence: bigint,
	content: { readonly case: "heartbeat"; readonly value: { readonly latestSequence: bigint } },
) => SharedResponse<Response>;

/** Limits of one batch. A watcher that stops reading keeps no more in memory, unless one record is larger. */
const BATCH: EntryLimits = { entries: 256, bytes: 256 * 1024 };
/** Maximum number of batches of the newest entries that are kept for other watchers to share. */
const MAX_SHARED_BATCHES = 64;
/** Maximum number of concurrent reads of history from the store. Further reads wait. */
const MAX_CONCURRENT_READS = 4;
/** Milliseconds of preparing entries after which the event loop runs other work. */
const MAX_RUN = 5;

/** A request with a key that is equal for watchers that receive the same messages. */
interface KeyedRequest<Entry extends LogEntry, Response extends DescMessage> extends WatchRequest<Entry, Response> {
	readonly key: string;
}

/** Responses for the next entries. There may be none, because a request can exclude entries. */
interface Scanned<Response extends DescMessage> {
	readonly responses: WatchBatch<Response>;
	/** Sequence through which the watcher has received everything once it has these responses. */
	readonly through: bigint;
}

/**
 * Lets many watchers follow a log of the store. Each watcher receives entries at its own pace and holds at most one
 * batch. The newest entries come from the {@link RecentEntries} that all watchers share, older ones from the store.
 */
export class Watches<Entry extends LogEntry, Response extends DescMessage> {
	readonly recent: RecentEntries<Entry>;
	readonly #source: EntryLog<Entry>;
	readonly #toHeartbeat: ToHeartbeat<Response>;
	readonly #heartbeat: number;
	readonly #stopping: AbortSignal;
	readonly #shared = new LRUCache<string, Promise<WatchBatch<Response>>>({ max: MAX_SHARED_BATCHES });
	readonly #reads = new Map<string, Promise<Scanned<Response>>>();
	readonly #readLimit = new ConcurrencyLimit(MAX_CONCURRENT_READS);
	#lastHeartbeat: { sequence: bigint; latest: bigint; response: SharedResponse<Response> } | undefined;

	constructor(source: EntryLog<Entry>, toHeartbeat: ToHeartbeat<Response>, options: WatchOptions) {
		this.recent = new RecentEntries(source, options.recent);
		this.#source = source;
		this.#toHeartbeat = toHeartbeat;
		this.#heartbeat = options.heartbeat ?? 15_000;
		this.#stopping = options.stopping;
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
		const follower = await this.recent.follow();
		let due = false;
		const heartbeatTimer = setTimeout(() => {
			due = true;
			follower.wake();
		}, this.#heartbeat);
		const release = (): void => {
			clearTimeout(heartbeatTimer);
			follower.leave();
		};
		// On abort too: a transport may never resume the iteration when its client has disconnected.
		signal.addEventListener("abort", release, { once: true });
		try {
			for await (const batch of this.#follow({ ...request, key: keyOf(request) }, follower, signal, () => due)) {
				yield batch;
				due = false;
				if (!signal.aborted) heartbeatTimer.refresh();
			}
		} finally {
			signal.removeEventListener("abort", release);
			release();
		}
		if (this.#stopping.aborted) throw new ServiceError("unavailable", "The service is stopping");
	}

	async *#follow(
		request: KeyedRequest<Entry, Response>,
		follower: Follower,
		signal: AbortSignal,
		isDue: () => boolean,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const range = await this.#source.log.range();
		let cursor = startOf(request.start, range);
		follower.reached(cursor);
		// A watch from the beginning covers the entries that are stored now, so earlier pruning is no error.
		let afterRemoval = cursor === 0n ? range.lastRemoval : undefined;
		let caughtUp = false;
		while (!signal.aborted) {
			follower.check(cursor);
			const isRecent = this.recent.covers(cursor);
			if (isRecent) afterRemoval = undefined;
			const scanned = isRecent
				? await this.#fromRecent(request, cursor)
				: await this.#fromStore(request, cursor, afterRemoval);
			if (signal.aborted) return;
			const advanced = scanned.through > cursor;
			cursor = scanned.through;
			if (scanned.responses.length > 0) yield scanned.responses;
			// The watcher has resumed the iteration, so it has received these responses.
			follower.reached(cursor);
			const isNewest = cursor >= this.recent.newest;
			if (isDue() || (isNewest && !caughtUp)) {
				caughtUp ||= isNewest;
				yield [this.#heartbeatAt(cursor)];
			} else if (!advanced) await follower.wait();
		}
	}

	/** Returns the responses for the next entries in memory. */
	async #fromRecent(request: KeyedRequest<Entry, Response>, cursor: bigint): Promise<Scanned<Response>> {
		const entries = this.recent.after(cursor, BATCH);
		const through = entries.at(-1)?.sequence ?? maxOf(cursor, this.recent.end);
		if (entries.length === 0) return { responses: [], through };
		const key = `${this.recent.restarts} ${cursor} ${through} ${request.key}`;
		let responses = this.#shared.get(key);
		if (responses === undefined) {
			// In the same turn of the event loop in which the entries were taken out of memory.
			responses = this.#select(request, entries, request.responder());
			this.#shared.set(key, responses);
			responses.catch(() => this.#shared.delete(key));
		}
		return { responses: await responses, through };
	}

	/** Returns the responses for the next entries in the store. Equal requests at one position share a read. */
	#fromStore(
		request: KeyedRequest<Entry, Response>,
		cursor: bigint,
		afterRemoval: bigint | undefined,
	): Promise<Scanned<Response>> {
		const key = `${this.recent.restarts} ${cursor} ${afterRemoval} ${request.key}`;
		return this.#reads.getOrInsertComputed(key, () =>
			this.#readLimit
				.run(() => this.#readPage(request, cursor, afterRemoval))
				.finally(() => {
					this.#reads.delete(key);
				}),
		);
	}

	async #readPage(
		request: WatchRequest<Entry, Response>,
		cursor: bigint,
		afterRemoval: bigint | undefined,
	): Promise<Scanned<Response>> {
		const { conversationId, owner } = request;
		const { end } = this.recent;
		const query = {
			after: cursor,
			conversationId,
			owner,
			limit: BATCH.entries,
			maxBytes: BATCH.bytes,
			withRecords: true,
		};
		const respond = request.responder();
		const entries = await this.#source.log.list(query);
		await assertNotPruned(this.#source, cursor, { conversationId, owner, afterRemoval });
		const through = entries.at(-1)?.sequence ?? maxOf(cursor, end);
		return { responses: await this.#select(request, entries, respond), through };
	}

	async #select(
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

	/** Returns the heartbeat at a sequence. Successive equal ones are one message, which up-to-date watchers share. */
	#heartbeatAt(sequence: bigint): SharedResponse<Response> {
		const latest = maxOf(sequence, this.recent.newest);
		const last = this.#lastHeartbeat;
		if (last?.sequence === sequence && last.latest === latest) return last.response;
		const response = this.#toHeartbeat(sequence, { case: "heartbeat", value: { latestSequence: latest } });
		this.#lastHeartbeat = { sequence, latest, response };
		return response;
	}
}

function keyOf<Entry extends LogEntry, Response extends DescMessage>({
	conversationId,
	owner,
	variant,
}: WatchRequest<Entry, Response>): string {
	return JSON.stringify([conversationId, owner, variant], (_, value: unknown) =>
		typeof value === "bigint" ? String(value) : value,
	);
}

/** @throws ServiceError `out_of_range` when the start is beyond the newest sequence */
function startOf(start: WatchStart, { newest }: SequenceRange): bigint {
	if (start === "now") return newest;
	if (start === "beginning") return 0n;
	assertNotBeyondNewest(start, newest);
	return start;
}

function maxOf(a: bigint, b: bigint): bigint {
	return a > b ? a : b;
}

/** Limits the number of tasks that run at the same time. Further tasks run in the order of their arrival. */
class ConcurrencyLimit {
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

/** A message for many watchers. It is encoded once for all of them, when its encoded form is first needed. */
export class SharedResponse<Response extends DescMessage> {
	readonly #schema: Response;
	/** Undefined when the message is encoded, because a decoded record takes several times the memory. */
	#message: MessageShape<Response> | undefined;
	#bytes: Uint8Array | undefined;
	#json: Uint8Array | undefined;
	/** Sequence through which a watcher has received everything once it has the message. */
	readonly sequence: bigint;
	/**
	 * The entry of the message as an event of a `text/event-stream` (HTML Standard, section 9.2.5), in UTF-8. Undefined for
	 * a heartbeat, and unless the watcher asked for JSON texts.
	 */
	readonly event: Uint8Array | undefined;

	/**
	 * @param message must not be changed afterwards
	 * @param entryJson the entry of the message as JSON text
	 */
	constructor(schema: Response, message: MessageShape<Response>, sequence: bigint, entryJson?: string) {
		this.#schema = schema;
		this.#message = message;
		this.sequence = sequence;
		// A line break would end the data. In JSON it stands only between tokens, where a space is the same.
		const data = entryJson?.replaceAll(/[\r\n]+/g, " ");
		this.event = data === undefined ? undefined : Buffer.from(`id: ${sequence}\ndata: ${data}\n\n`);
	}

	/** The message. It is decoded each time after the encoded form was needed. */
	get message(): MessageShape<Response> {
		return this.#message ?? fromBinary(this.#schema, this.bytes);
	}

	/** The encoded message. */
	get bytes(): Uint8Array {
		this.#bytes ??= toBinary(this.#schema, this.message);
		this.#message = undefined;
		return this.#bytes;
	}

	/** The message as ProtoJSON in UTF-8. */
	get json(): Uint8Array {
		// Decoded from the bytes, because a field that was set in its encoded form is not a member of the message.
		this.#json ??= Buffer.from(toJsonString(this.#schema, fromBinary(this.#schema, this.bytes)));
		return this.#json;
	}
}
