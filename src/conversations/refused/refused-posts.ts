import type { KeyObject } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
import { SealedBytes } from "../../record/secrets/sealed-bytes.ts";
import type { Poster } from "../../store/owners.ts";
import {
	idsFrom,
	type PostForm,
	type RefusedAge,
	type RefusedPostRow,
	type RefusedRoom,
} from "../../store/refused-posts.ts";
import type { Store } from "../../store/store.ts";
import { kindOf, packReasons } from "./reasons.ts";

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
export interface RefusedOptions {
	/** Keys that encrypt bodies: see {@link SealedBytes}. Without one, no body is kept. */
	readonly keys: readonly KeyObject[];
	/** Maximum bytes of all refused posts that are stored. */
	readonly maxBytes: number;
	/** Called with each failure to store posts. These posts are counted as dropped. */
	readonly onError: (error: unknown) => void;
}

/** Number of refused posts since the start. */
export interface RefusedCounts {
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
const MICROSECONDS_PER_DAY = 86_400_000_000;
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
	const before = (age: number) => now - BigInt(Math.round(age * MICROSECONDS_PER_DAY));
	return {
		keptSince: before(Math.min(MAX_DAYS, days ?? MAX_DAYS, eventDays ?? MAX_DAYS)),
		acceptedSince: eventDays === undefined ? undefined : before(eventDays),
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
