import type { KeyObject } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
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

export interface Refusal {
	/** Undefined when the request had no valid key. */
	readonly poster: Poster | undefined;
	/** Address and port of the client. */
	readonly peer: string | undefined;
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

/** Maximum numbers of posts that are being stored, and of bytes of their bodies. A single body may exceed it. */
const MAX_WAITING = 100;
const MAX_WAITING_BYTES = 16 * 2 ** 20;
/** Milliseconds for which the requests of clients without a valid key are added up before they are stored. */
const PEER_INTERVAL = 250;
/** Part of all room that the body of one post may take. The reasons of a larger one are kept without it. */
const MAX_SHARE = 1 / 4;
/** Maximum number of clients without a valid key, in memory and in the store. */
const MAX_PEERS = 1_000;
/** Length of the period in which the requests of such a client are added up, in microseconds. */
const PEER_PERIOD = 3_600_000_000n;
/** Maximum time in milliseconds for which a read waits until earlier refusals are stored. */
const MAX_WAIT = 2_000;
const MAX_DAYS = 30;

const COMPRESSION = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };
const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

type Post = Omit<RefusedPostRow, "body">;

type RefusedPostStore = Pick<Store, "addRefusedPosts" | "acceptRefusedPost" | "expireRefusedPosts">;

/** Keeps posts that were refused. At most a limited number are being stored at a time; others are only counted. */
export class RefusedPosts implements AsyncDisposable {
	readonly #store: RefusedPostStore;
	readonly #options: RefusedOptions;
	readonly #sealed: SealedBytes;
	readonly #closing = new AbortController();
	readonly #writes = new Set<Promise<void>>();
	#waitingBytes = 0;
	/** Clients of the present period, by address, route and reason, with the requests that are not stored yet. */
	readonly #peers = new Map<string, Post>();
	#period = 0n;
	#storesPeers = false;
	#lastId = 0n;
	#counts = { kept: 0, dropped: 0, removed: 0 };

	constructor(store: RefusedPostStore, options: RefusedOptions) {
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
		if (this.#writes.size >= MAX_WAITING || !hasRoom) {
			this.#counts.dropped += 1;
			return;
		}
		this.#waitingBytes += bytes;
		// A copy, because the body is often a part of a larger buffer, and its memory may be released.
		const kept = isBodyKept ? new Uint8Array(body) : undefined;
		const post = this.#postOf(refusal, now);
		this.#track(async () => {
			try {
				await this.#write([{ ...post, body: kept && (await this.#seal(post, kept)) }]);
				this.#counts.kept += 1;
			} catch (error) {
				this.#counts.dropped += 1;
				this.#options.onError(error);
			} finally {
				this.#waitingBytes -= bytes;
			}
		});
	}

	#track(work: () => Promise<void>): void {
		const write = work().finally(() => this.#writes.delete(write));
		this.#writes.add(write);
	}

	async #write(posts: readonly RefusedPostRow[]): Promise<void> {
		this.#counts.removed += await this.#store.addRefusedPosts({ posts, room: this.#room });
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
		const removed = await this.#store.acceptRefusedPost({ post: accepted, room: this.#room });
		if (removed === undefined) return false;
		this.#counts.kept += 1;
		this.#counts.removed += removed;
		return true;
	}

	/** Resolves when the posts that were refused before are stored, or after two seconds. */
	async written(): Promise<void> {
		if (this.#writes.size === 0) return;
		await Promise.race([Promise.all(this.#writes), delay(MAX_WAIT, undefined, { ref: false })]);
	}

	/**
	 * Returns the body of a stored post; undefined when it is not stored. Throws `data_loss` when it cannot be decrypted.
	 */
	async bodyOf({ id, size, body }: RefusedPostRow): Promise<Buffer | undefined> {
		if (body === undefined) return undefined;
		return await decompress(this.#sealed.open(body, purposeOf(id)), { maxOutputLength: Math.max(size, 1) });
	}

	/** Removes posts that are too old. Returns their number. */
	async expire(age: RefusedAge): Promise<number> {
		const removed = await this.#store.expireRefusedPosts(age);
		this.#counts.removed += removed;
		return removed;
	}

	get #room(): RefusedRoom {
		return { maxBytes: this.#options.maxBytes, maxPeers: MAX_PEERS };
	}

	#keepsBody(body: Uint8Array): boolean {
		return this.#sealed.canSeal && body.byteLength > 0 && body.byteLength <= this.#options.maxBytes * MAX_SHARE;
	}

	#postOf({ poster, route, form, error, conversationId, size = 0 }: Refusal, now: number): Post {
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
		// Those of the period before that have not been stored yet stay.
		if (period !== this.#period)
			for (const [key, { requests }] of this.#peers) if (requests === 0n) this.#peers.delete(key);
		this.#period = period;
		const peer = addressOf(refusal.peer);
		const key = JSON.stringify([String(period), peer, refusal.route, packReasons(refusal.error, refusal.form)]);
		let known = this.#peers.get(key);
		if (known === undefined && this.#peers.size >= MAX_PEERS) {
			this.#counts.dropped += 1;
			return;
		}
		// Of several conversations and sizes.
		const ofMany = { ...refusal, poster: undefined, conversationId: undefined, size: 0 };
		known ??= { ...this.#postOf(ofMany, now), peer, requests: 0n };
		this.#peers.set(key, { ...known, requests: known.requests + 1n, lastAt: receivedAt });
		if (this.#storesPeers) return;
		this.#storesPeers = true;
		this.#track(() => this.#storePeers());
	}

	async #storePeers(): Promise<void> {
		await delay(PEER_INTERVAL, undefined, { signal: this.#closing.signal, ref: false }).catch(() => undefined);
		this.#storesPeers = false;
		const posts = [...this.#peers].filter(([, { requests }]) => requests > 0n);
		for (const [key, post] of posts) this.#peers.set(key, { ...post, requests: 0n });
		try {
			await this.#write(posts.map(([, post]) => ({ ...post, body: undefined })));
		} catch (error) {
			this.#options.onError(error);
		}
	}

	async #seal({ id }: Pick<RefusedPostRow, "id">, body: Uint8Array): Promise<Uint8Array> {
		return this.#sealed.seal(await compress(body, COMPRESSION), purposeOf(id));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#closing.abort();
		await Promise.all(this.#writes);
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
	readonly message: string;
}

/** Maximum number of characters of a place or a message. A client controls the lengths of some places. */
const MAX_TEXT = 500;
const MAX_ALL = 16_384;

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

export function unpackReasons(stored: string): RefusalReason[] {
	return JSON.parse(stored);
}

type AcceptedBatch = Refusal & { readonly poster: Poster; readonly conversationId: string };

interface AcceptingOptions {
	/** Paths of the routes and RPCs by which batches arrive. */
	readonly routes: Readonly<Record<"events_json" | "events_message", string>>;
	readonly onAccepted: (batch: AcceptedBatch) => void;
	/** Called when a batch could not be stored. Its sender gets the refusal. */
	readonly onError: (error: unknown) => void;
}

/**
 * Returns what takes batches of events, and accepts those that are refused for their contents: their bodies are kept until
 * they can be taken in. So the sender goes on with the next batch, which would have to wait for this one for ever. A batch
 * is refused nevertheless when there is no room for its body, or it cannot be stored.
 */
export function acceptingEvents(
	ingest: Pick<EventIngest, "json" | "request">,
	kept: Pick<RefusedPosts, "accept">,
	{ routes, onAccepted, onError }: AcceptingOptions,
): Pick<EventIngest, "json" | "request"> {
	async function accept(
		batch: Omit<AcceptedBatch, "conversationId" | "peer" | "route" | "size"> & {
			readonly form: keyof AcceptingOptions["routes"];
			readonly body: Uint8Array;
		},
		named: string,
	): Promise<IngestedEvents> {
		const { form, error, body } = batch;
		const kind = kindOf(error);
		const conversationId = parseUuid(named);
		// Every other kind says that the sender may not post this, or that the post would succeed later.
		if ((kind !== "invalid_record" && kind !== "internal") || conversationId === undefined) throw error;
		const accepted = { ...batch, conversationId, peer: undefined, route: routes[form], size: body.byteLength };
		const isKept = await kept.accept(accepted).catch((failure: unknown) => {
			onError(failure);
			return false;
		});
		if (!isKept) throw error;
		onAccepted(accepted);
		return { stored: 0, updateSequence: undefined };
	}
	return {
		json: (conversationId, body, poster, signal) =>
			ingest
				.json(conversationId, body, poster, signal)
				.catch((error: unknown) => accept({ form: "events_json", body, poster, error }, conversationId)),
		request: (body, poster, signal) =>
			ingest
				.request(body, poster, signal)
				.catch((error: unknown) => accept({ form: "events_message", body, poster, error }, conversationIdIn(body))),
	};
}
