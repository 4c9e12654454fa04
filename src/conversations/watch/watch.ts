import { setImmediate } from "node:timers/promises";
import { type DescMessage, fromBinary, type MessageShape, toBinary, toJsonString } from "@bufbuild/protobuf";
import { LRUCache } from "lru-cache";
import { ServiceError } from "../../errors.ts";
import { idDigest } from "../../store/erasure.ts";
import { assertNotBeyondNewest, type EntryLog, type LogEntry } from "../read/entry-log.ts";
import { type EntryLimits, type EntryPage, Follower, RecentEntries } from "./recent-entries.ts";

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
) => MaybePromise<SharedResponse<Response> | undefined>;

type MaybePromise<Value> = Value | Promise<Value>;

/** Messages for one watcher, in order. They must not be changed, because other watchers may share them. */
export type WatchBatch<Response extends DescMessage> = readonly SharedResponse<Response>[];

export interface WatchOptions {
	/** Milliseconds without a message after which a heartbeat is sent. Default: 15000. */
	readonly heartbeat?: number;
	/** Fires when the service stops. A watch that ends after that fails with `unavailable`. */
	readonly stopping: AbortSignal;
	readonly recent?: EntryLimits;
}

/** Makes the message with a heartbeat of a watcher that has received everything through `sequence`. */
type ToHeartbeat<Response extends DescMessage> = (
	sequence: bigint,
	heartbeat: { readonly case: "heartbeat"; readonly value: { readonly latestSequence: bigint } },
) => SharedResponse<Response>;

/** Maximum number of batches that are kept for other watchers to share. */
const MAX_SHARED_BATCHES = 64;
/** Milliseconds of preparing entries after which the event loop runs other work. */
const MAX_RUN = 5;

/**
 * Lets many watchers follow a log of the store. Each watcher receives entries at its own pace and holds at most one
 * batch. The newest entries come from the {@link RecentEntries} that all watchers share, older ones from the store.
 */
export class Watches<Entry extends LogEntry, Response extends DescMessage> {
	readonly recent: RecentEntries<Entry>;
	readonly #toHeartbeat: ToHeartbeat<Response>;
	readonly #heartbeat: number;
	readonly #stopping: AbortSignal;
	readonly #shared = new LRUCache<string, Promise<WatchBatch<Response>>>({ max: MAX_SHARED_BATCHES });

	constructor(source: EntryLog<Entry>, toHeartbeat: ToHeartbeat<Response>, options: WatchOptions) {
		this.recent = new RecentEntries(source, options.recent);
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
		const follower = new Follower();
		// On abort too: a transport may never resume the iteration when its client has disconnected.
		const leave = (): void => this.recent.leave(follower);
		signal.addEventListener("abort", leave, { once: true });
		try {
			yield* this.#follow(request, follower, signal);
		} finally {
			signal.removeEventListener("abort", leave);
			leave();
		}
		if (this.#stopping.aborted) throw new ServiceError("unavailable", "The service is stopping");
	}

	async *#follow(
		request: WatchRequest<Entry, Response>,
		follower: Follower,
		signal: AbortSignal,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const range = await this.recent.join(follower);
		let cursor = startOf(request.start, range.newest);
		follower.through = cursor;
		const key = keyOf(request);
		// A watch from the beginning covers the entries that are stored now, so earlier pruning is no error.
		const { conversationId, owner } = request;
		const reader = { conversationId, owner, afterRemoval: cursor === 0n ? range.lastRemoval : undefined };
		let caughtUp = false;
		let quietSince = performance.now();
		while (!signal.aborted) {
			follower.check(cursor);
			if (cursor < this.recent.newest) {
				const { restarts } = this.recent;
				const respond = request.responder();
				const page = await this.recent.read(cursor, reader);
				if (signal.aborted) return;
				// What was read may have another owner now, or be lost.
				if (restarts !== this.recent.restarts) continue;
				const responses = await this.#batch(request, key, page, cursor, respond);
				if (signal.aborted) return;
				cursor = page.through;
				if (responses.length > 0) {
					yield responses;
					quietSince = performance.now();
				}
				// The watcher has resumed the iteration, so it has received these responses.
				follower.through = cursor;
			}
			const isNewest = cursor >= this.recent.newest;
			const left = quietSince + this.#heartbeat - performance.now();
			if (left <= 0 || (isNewest && !caughtUp)) {
				caughtUp ||= isNewest;
				yield [this.#heartbeatAt(cursor)];
				quietSince = performance.now();
			} else if (isNewest && !signal.aborted) {
				follower.check(cursor);
				await follower.wait(left);
			}
		}
	}

	/** Returns the responses for a page after a sequence. Equal requests share those for the newest entries. */
	#batch(
		request: WatchRequest<Entry, Response>,
		requestKey: string,
		page: EntryPage<Entry>,
		after: bigint,
		respond: Respond<Entry, Response>,
	): Promise<WatchBatch<Response>> {
		// Those of history are not kept, because they can be many and large.
		if (!this.recent.covers(after)) return this.#select(request, page.entries, respond);
		const key = `${this.recent.restarts} ${after} ${page.through} ${requestKey}`;
		const known = this.#shared.get(key);
		if (known !== undefined) return known;
		const batch = this.#select(request, page.entries, respond);
		this.#shared.set(key, batch);
		batch.catch(() => this.#shared.delete(key));
		return batch;
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

	#heartbeatAt(sequence: bigint): SharedResponse<Response> {
		const { newest } = this.recent;
		const latestSequence = newest > sequence ? newest : sequence;
		return this.#toHeartbeat(sequence, { case: "heartbeat", value: { latestSequence } });
	}
}

/** Returns a key that is equal for watchers that receive the same messages. */
function keyOf<Entry extends LogEntry, Response extends DescMessage>({
	conversationId,
	owner,
	variant,
}: WatchRequest<Entry, Response>): string {
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

/** A message for many watchers. It is made, and encoded once for all of them, when it is first needed. */
export class SharedResponse<Response extends DescMessage> {
	readonly #schema: Response;
	readonly #make: () => MessageShape<Response>;
	readonly #entryJson: (() => string) | undefined;
	/** Undefined when the message is encoded, because a decoded record takes several times the memory. */
	#message: MessageShape<Response> | undefined;
	#bytes: Uint8Array | undefined;
	#json: Uint8Array | undefined;
	#event: Uint8Array | undefined;
	/** Sequence through which a watcher has received everything once it has the message. */
	readonly sequence: bigint;

	/**
	 * @param make makes the message, which must not be changed afterwards
	 * @param entryJson makes the JSON text of the entry of the message; undefined for a heartbeat
	 */
	constructor(schema: Response, sequence: bigint, make: () => MessageShape<Response>, entryJson?: () => string) {
		this.#schema = schema;
		this.sequence = sequence;
		this.#make = make;
		this.#entryJson = entryJson;
	}

	/** The message. It is decoded each time after the encoded form was needed. */
	get message(): MessageShape<Response> {
		if (this.#bytes !== undefined) return fromBinary(this.#schema, this.#bytes);
		this.#message ??= this.#make();
		return this.#message;
	}

	get bytes(): Uint8Array {
		this.#bytes ??= toBinary(this.#schema, this.message);
		this.#message = undefined;
		return this.#bytes;
	}

	/** The message as ProtoJSON in UTF-8. */
	get json(): Uint8Array {
		this.#json ??= Buffer.from(toJsonString(this.#schema, this.message));
		return this.#json;
	}

	/**
	 * The entry of the message as an event of a `text/event-stream` (HTML Standard, section 9.2.5), in UTF-8. Undefined for
	 * a heartbeat.
	 */
	get event(): Uint8Array | undefined {
		if (this.#entryJson === undefined) return undefined;
		// A line break would end the data. In JSON it stands only between tokens, where a space is the same.
		this.#event ??= Buffer.from(`id: ${this.sequence}\ndata: ${this.#entryJson().replaceAll(/[\r\n]+/g, " ")}\n\n`);
		return this.#event;
	}
}
