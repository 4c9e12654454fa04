import type { KeyObject } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
import type { CallSignal } from "../../call-signal.ts";
import { formatPath, ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import { SealedBytes } from "../../record/secrets/cipher.ts";
import type { Poster } from "../../store/owners.ts";
import {
	idsFrom,
	type PostForm,
	type RefusedAge,
	type RefusedPostRow,
	type RefusedRoom,
} from "../../store/refused-posts.ts";
import type { Store } from "../../store/store.ts";
import { echoable } from "../../userinfo.ts";
import { conversationIdIn, type EventIngest, type IngestedEvents } from "../ingest/event-ingest.ts";
import { daysBefore } from "../retention.ts";

/** A post that was refused. */
export interface Refusal {
	/** Undefined when the request had no valid key. */
	readonly poster: Poster | undefined;
	/** Address and port of the client. */
	readonly peer: string | undefined;
	/** Path of the route or RPC. */
	readonly route: string;
	readonly form: PostForm;
	readonly error: unknown;
	/** UUID; undefined when it is not known. */
	readonly conversationId: string | undefined;
	/** Bytes of the body; undefined when it was not read. */
	readonly size: number | undefined;
	/** The body. Undefined when it was not read, or its memory has been released. */
	readonly body: Uint8Array | undefined;
}

/** Settings of {@link RefusedPosts}. */
interface RefusedOptions {
	/** Keys that encrypt bodies: see {@link SealedBytes}. Without one, no body is kept. */
	readonly keys: readonly KeyObject[];
	/** Maximum bytes of all refused posts that are stored. */
	readonly maxBytes: number;
	/** Called with each failure to store posts. These posts are counted as dropped. */
	readonly onError: (error: unknown) => void;
}

/** Number of refused posts since the start. */
interface RefusedCounts {
	readonly kept: number;
	/** Those that were not kept: because too many waited, or because they could not be stored. */
	readonly dropped: number;
	/** Those that were removed again to make room, or because of their age. */
	readonly removed: number;
}

/** Maximum numbers of posts that wait, and of bytes of their bodies. */
const MAX_WAITING = 1_000;
const MAX_WAITING_BYTES = 16 * 2 ** 20;
/** Maximum numbers of posts, and of bytes of their bodies, that are stored together. A single body may exceed it. */
const MAX_STORED = 100;
const MAX_STORED_BYTES = 2 ** 20;
/** Milliseconds between two writes, so that a flood of refusals leaves the disk to accepted posts. */
const WRITE_INTERVAL = 250;
/** Part of all room that the body of one post may take. The reasons of a larger one are kept without it. */
const MAX_SHARE = 1 / 4;
/** Maximum number of clients without a valid key, in memory and in the store. */
const MAX_PEERS = 1_000;
/** Length of the period in which the requests of such a client are added up, in microseconds. */
const PEER_PERIOD = 3_600_000_000n;
/** Maximum time in milliseconds for which a read waits until earlier refusals are stored. */
const MAX_WAIT = 2_000;
/** Days for which refused posts are kept at most. */
const MAX_DAYS = 30;

const COMPRESSION = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };
const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** A post that waits to be stored. */
interface Waiting {
	readonly post: Omit<RefusedPostRow, "body">;
	/** In memory of its own. */
	readonly body: Uint8Array | undefined;
}

/** Requests of one client without a valid key that wait to be stored. */
interface WaitingPeer {
	readonly post: Omit<RefusedPostRow, "body" | "lastAt" | "requests">;
	lastAt: bigint;
	requests: bigint;
}

/**
 * Keeps posts that were refused. They are stored off the way of other posts: they wait in limited memory, and are written
 * at a limited rate. What exceeds these limits is only counted.
 */
export class RefusedPosts implements AsyncDisposable {
	readonly #store: Pick<Store, "refusedPosts">;
	readonly #options: RefusedOptions;
	readonly #sealed: SealedBytes;
	readonly #closing = new AbortController();
	#waiting: Waiting[] = [];
	#waitingBytes = 0;
	/** Clients of the present period, by address, route and reason. */
	readonly #peers = new Map<string, WaitingPeer>();
	#period = 0n;
	#lastId = 0n;
	#lastWrite = Number.NEGATIVE_INFINITY;
	/** Undefined while nothing waits. */
	#writing: Promise<void> | undefined;
	#counts = { kept: 0, dropped: 0, removed: 0 };

	constructor(store: Pick<Store, "refusedPosts">, options: RefusedOptions) {
		this.#store = store;
		this.#options = options;
		this.#sealed = new SealedBytes(options.keys);
	}

	get counts(): RefusedCounts {
		return this.#counts;
	}

	/**
	 * Keeps a refused post, soon after the call. Failures that pass by themselves are not kept.
	 *
	 * @param now milliseconds of Unix time
	 */
	add(refusal: Refusal, now = Date.now()): void {
		const kind = kindOf(refusal.error);
		if (kind === "unauthenticated") this.#addPeer(refusal, now);
		else if (refusal.poster !== undefined && kind !== "unavailable" && kind !== "rate_limited")
			this.#addPost(refusal, now);
	}

	#addPost(refusal: Refusal, now: number): void {
		const { body } = refusal;
		const isBodyKept = body !== undefined && this.#keepsBody(body);
		const bytes = isBodyKept ? body.byteLength : 0;
		const hasRoom = this.#waitingBytes === 0 || this.#waitingBytes + bytes <= MAX_WAITING_BYTES;
		if (this.#waiting.length >= MAX_WAITING || !hasRoom) {
			this.#counts.dropped += 1;
			return;
		}
		// A copy, because the body is often a part of a larger buffer, and its memory may be released.
		this.#waiting.push({ post: this.#postOf(refusal, now), body: isBodyKept ? new Uint8Array(body) : undefined });
		this.#waitingBytes += bytes;
		this.#wake();
	}

	/**
	 * Stores a refused batch of events that is answered with success, and opens a gap of its conversation. Resolves when
	 * both are on disk.
	 *
	 * @param now milliseconds of Unix time
	 * @returns false when there is no room, or no key to encrypt the body with: nothing was stored
	 */
	async accept(batch: Refusal & { readonly conversationId: string }, now = Date.now()): Promise<boolean> {
		const { conversationId, body } = batch;
		if (body === undefined || !this.#sealed.canSeal) return false;
		const post = this.#postOf(batch, now);
		const accepted = { ...post, conversationId, accepted: true, body: await this.#seal(post, body) };
		const removed = await this.#store.refusedPosts.accept(accepted, this.#room);
		if (removed === undefined) return false;
		this.#counts.kept += 1;
		this.#counts.removed += removed;
		return true;
	}

	/** Resolves when the posts that were refused before are stored, or after two seconds. */
	async written(): Promise<void> {
		if (this.#writing === undefined) return;
		await Promise.race([this.#writing, delay(MAX_WAIT, undefined, { ref: false })]);
	}

	/**
	 * Returns the body of a stored post; undefined when it is not stored.
	 *
	 * @throws ServiceError `data_loss` when it cannot be decrypted
	 */
	async bodyOf({ id, size, body }: RefusedPostRow): Promise<Buffer | undefined> {
		if (body === undefined) return undefined;
		return await decompress(this.#sealed.open(body, purposeOf(id)), { maxOutputLength: Math.max(size, 1) });
	}

	/** Removes posts that are too old. Returns their number. */
	async expire(age: RefusedAge): Promise<number> {
		const removed = await this.#store.refusedPosts.expire(age);
		this.#counts.removed += removed;
		return removed;
	}

	get #room(): RefusedRoom {
		return { maxBytes: this.#options.maxBytes, maxPeers: MAX_PEERS };
	}

	#keepsBody(body: Uint8Array): boolean {
		return this.#sealed.canSeal && body.byteLength > 0 && body.byteLength <= this.#options.maxBytes * MAX_SHARE;
	}

	#postOf({ poster, route, form, error, conversationId, size = 0 }: Refusal, now: number): Waiting["post"] {
		const receivedAt = BigInt(now) * 1000n;
		// Larger than all before of the same millisecond.
		const isSameTime = this.#lastId / IDS_OF_MILLISECOND === idsFrom(receivedAt) / IDS_OF_MILLISECOND;
		this.#lastId = isSameTime ? this.#lastId + 1n : idsFrom(receivedAt) + randomPart();
		return {
			...{ id: this.#lastId, receivedAt, lastAt: receivedAt, requests: 1n },
			...{ sender: poster?.sender, owner: poster?.owner, peer: undefined, route, form },
			...{ kind: kindOf(error), reasons: packReasons(error, form), conversationId, size },
			...{ accepted: false, retriedAt: undefined },
		};
	}

	#addPeer(refusal: Refusal, now: number): void {
		const receivedAt = BigInt(now) * 1000n;
		const period = receivedAt / PEER_PERIOD;
		// Those of the period before that have not been written yet stay.
		if (period !== this.#period)
			for (const [key, { requests }] of this.#peers) if (requests === 0n) this.#peers.delete(key);
		this.#period = period;
		const peer = addressOf(refusal.peer);
		const key = JSON.stringify([String(period), peer, refusal.route, packReasons(refusal.error, refusal.form)]);
		let known = this.#peers.get(key);
		if (known === undefined) {
			if (this.#peers.size >= MAX_PEERS) {
				this.#counts.dropped += 1;
				return;
			}
			// Of several conversations and sizes.
			const ofMany = { ...refusal, poster: undefined, conversationId: undefined, size: 0 };
			const { lastAt, requests: _, ...post } = this.#postOf(ofMany, now);
			known = { post: { ...post, peer }, lastAt, requests: 0n };
			this.#peers.set(key, known);
		}
		known.requests += 1n;
		known.lastAt = receivedAt;
		this.#wake();
	}

	#wake(): void {
		this.#writing ??= this.#writeAll().finally(() => {
			this.#writing = undefined;
		});
	}

	/** Stores what waits, until nothing waits any more. Never rejects. */
	async #writeAll(): Promise<void> {
		const { signal } = this.#closing;
		do {
			const wait = this.#lastWrite + WRITE_INTERVAL - performance.now();
			if (wait > 0 && !signal.aborted) await delay(wait, undefined, { signal, ref: false }).catch(() => undefined);
			await this.#writeSome();
			this.#lastWrite = performance.now();
		} while (this.#waiting.length > 0 || [...this.#peers.values()].some(({ requests }) => requests > 0n));
	}

	async #writeSome(): Promise<void> {
		const taken = this.#take();
		const peers: RefusedPostRow[] = [];
		for (const peer of this.#peers.values()) {
			if (peer.requests === 0n) continue;
			peers.push({ ...peer.post, lastAt: peer.lastAt, requests: peer.requests, body: undefined });
			peer.requests = 0n;
		}
		try {
			const posts = await Promise.all(
				taken.map(async ({ post, body }) => ({ ...post, body: await this.#seal(post, body) })),
			);
			const removed = await this.#store.refusedPosts.add([...posts, ...peers], this.#room);
			this.#counts.removed += removed;
			this.#counts.kept += posts.length;
		} catch (error) {
			this.#counts.dropped += taken.length;
			this.#options.onError(error);
		}
	}

	/** Takes the posts that are stored next. */
	#take(): readonly Waiting[] {
		let bytes = 0;
		let count = 0;
		for (const { body } of this.#waiting) {
			const more = bytes + (body?.byteLength ?? 0);
			if (count === MAX_STORED || (count > 0 && more > MAX_STORED_BYTES)) break;
			bytes = more;
			count += 1;
		}
		this.#waitingBytes -= bytes;
		return this.#waiting.splice(0, count);
	}

	async #seal({ id }: Pick<RefusedPostRow, "id">, body: Uint8Array | undefined): Promise<Uint8Array | undefined> {
		if (body === undefined) return undefined;
		return this.#sealed.seal(await compress(body, COMPRESSION), purposeOf(id));
	}

	/** Stores what waits. */
	async [Symbol.asyncDispose](): Promise<void> {
		this.#closing.abort();
		await this.#writing;
	}
}

/**
 * Returns which posts are too old: after 30 days, or when records or events of their age are removed. A batch that was
 * accepted is kept as events are.
 *
 * @param now microseconds since the Unix epoch
 */
export function refusedAge(
	now: bigint,
	{ days, eventDays }: { readonly days: number | undefined; readonly eventDays: number | undefined },
): RefusedAge {
	return {
		keptSince: daysBefore(now, Math.min(MAX_DAYS, days ?? MAX_DAYS, eventDays ?? MAX_DAYS)),
		acceptedSince: eventDays === undefined ? undefined : daysBefore(now, eventDays),
	};
}

/** Returns an address without its port. */
function addressOf(peer: string | undefined): string {
	return (peer ?? "").replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
}

function purposeOf(id: bigint): string {
	return `body of the refused post ${id}`;
}

/** Number of ids for each millisecond. */
const IDS_OF_MILLISECOND = idsFrom(1000n);

/** Returns where the ids of a millisecond begin, so that those of several processes differ. */
function randomPart(): bigint {
	return BigInt(Math.floor((Math.random() * Number(IDS_OF_MILLISECOND)) / 2));
}

/** Why a post was refused. None of its texts has a secret: see `ServiceError`. */
interface RefusalReason {
	/** Place of the mistake in the request, such as `body.max_iterations`; empty for the request as a whole. */
	readonly place: string;
	/** Kind of the broken rule, such as `missing`, or of the refusal. */
	readonly type: string;
	/** Description for a person. */
	readonly message: string;
}

/** Maximum number of characters of a place or a message. A client controls the lengths of some places. */
const MAX_TEXT = 500;
/** Maximum number of characters of all reasons of a post. */
const MAX_ALL = 16_384;

/** Returns the kind of a refusal. */
export function kindOf(error: unknown): ServiceError["kind"] {
	return error instanceof ServiceError ? error.kind : "internal";
}

/** What the places of mistakes begin with, by the form of the post. */
const ROOTS: Readonly<Record<PostForm, string>> = {
	record_json: "body",
	events_json: "body",
	record_message: "conversation",
	events_message: "events",
};

/** Returns the reasons of a refusal as JSON text, as many as have room. Of an unexpected error it says only its kind. */
export function packReasons(error: unknown, form: PostForm): string {
	const kept: RefusalReason[] = [];
	let length = 0;
	for (const reason of reasonsOf(error, ROOTS[form])) {
		length += reason.place.length + reason.type.length + reason.message.length;
		if (kept.length > 0 && length > MAX_ALL) break;
		kept.push(reason);
	}
	return JSON.stringify(kept);
}

function reasonsOf(error: unknown, root: string): readonly RefusalReason[] {
	if (!(error instanceof ServiceError)) return [{ place: "", type: "internal", message: "internal error" }];
	const { kind, message, violations } = error;
	if (violations.length === 0) return [{ place: "", type: kind, message: shorten(message) }];
	return violations.map(({ path, part = root, type, message: mistake }) => ({
		place: shorten(part + formatPath(path)),
		type,
		message: shorten(mistake),
	}));
}

function shorten(text: string): string {
	const shown = echoable(text);
	return shown.length > MAX_TEXT ? `${shown.slice(0, MAX_TEXT)}…` : shown;
}

/**
 * Reads stored reasons.
 *
 * @throws SyntaxError or TypeError when the text is not the result of {@link packReasons}
 */
export function unpackReasons(stored: string): readonly RefusalReason[] {
	const reasons: unknown = JSON.parse(stored);
	if (!Array.isArray(reasons)) throw new TypeError("the stored reasons are no list");
	return reasons.map((reason: Readonly<Record<keyof RefusalReason, unknown>>) => ({
		place: String(reason.place),
		type: String(reason.type),
		message: String(reason.message),
	}));
}

/** Forms of batches of events. */
type BatchForm = Extract<PostForm, "events_json" | "events_message">;

/** A refused batch that is answered with success. */
type AcceptedBatch = Refusal & { readonly poster: Poster; readonly conversationId: string };

/** Settings of {@link AcceptingEvents}. */
interface AcceptingOptions {
	/** Paths of the routes and RPCs by which batches arrive. */
	readonly routes: Readonly<Record<BatchForm, string>>;
	/** Called with each batch that was accepted. */
	readonly onAccepted: (batch: AcceptedBatch) => void;
	/** Called when a batch could not be stored. Its sender gets the refusal. */
	readonly onError: (error: unknown) => void;
}

/**
 * Takes batches of events, and accepts those that are refused for their contents: their bodies are kept until they can be
 * taken in. So the sender goes on with the next batch, which would have to wait for this one for ever.
 */
export class AcceptingEvents implements Pick<EventIngest, "json" | "request"> {
	readonly #ingest: Pick<EventIngest, "json" | "request">;
	readonly #kept: Pick<RefusedPosts, "accept">;
	readonly #options: AcceptingOptions;

	constructor(
		ingest: Pick<EventIngest, "json" | "request">,
		kept: Pick<RefusedPosts, "accept">,
		options: AcceptingOptions,
	) {
		this.#ingest = ingest;
		this.#kept = kept;
		this.#options = options;
	}

	/**
	 * As `EventIngest.json`. Resolves also when the batch is refused, its body is on disk, and the conversation has a gap.
	 *
	 * @throws ServiceError as `EventIngest.json` does, also when there is no room for the body
	 */
	async json(conversationId: string, body: Buffer, poster: Poster, signal: CallSignal): Promise<IngestedEvents> {
		try {
			return await this.#ingest.json(conversationId, body, poster, signal);
		} catch (error) {
			return await this.#accept("events_json", conversationId, body, poster, error);
		}
	}

	/** As `EventIngest.request`, in the way of {@link json}. */
	async request(request: Uint8Array, poster: Poster, signal: CallSignal): Promise<IngestedEvents> {
		try {
			return await this.#ingest.request(request, poster, signal);
		} catch (error) {
			return await this.#accept("events_message", conversationIdIn(request), request, poster, error);
		}
	}

	async #accept(
		form: BatchForm,
		namedConversation: string,
		body: Uint8Array,
		poster: Poster,
		error: unknown,
	): Promise<IngestedEvents> {
		const kind = kindOf(error);
		const conversationId = parseUuid(namedConversation);
		// Every other kind says that the sender may not post this, or that the post would succeed later.
		if ((kind !== "invalid_record" && kind !== "internal") || conversationId === undefined) throw error;
		const route = this.#options.routes[form];
		const batch = { poster, peer: undefined, route, form, error, conversationId, size: body.byteLength, body };
		const isKept = await this.#kept.accept(batch).catch((failure: unknown) => {
			this.#options.onError(failure);
			return false;
		});
		if (!isKept) throw error;
		this.#options.onAccepted(batch);
		return { stored: 0, updateSequence: undefined };
	}
}
