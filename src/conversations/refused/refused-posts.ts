import { type KeyObject, randomInt } from "node:crypto";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
import { formatPath, ServiceError } from "../../errors.ts";
import { parseUuid } from "../../record/json/scalars.ts";
import { SealedBytes } from "../../record/secrets/cipher.ts";
import type { Poster } from "../../store/owners.ts";
import { idsFrom, type PostForm, type RefusedPostRow } from "../../store/refused-posts.ts";
import type { Store } from "../../store/store.ts";
import { echoable } from "../../userinfo.ts";
import { conversationIdIn, type EventIngest, type IngestedEvents } from "../ingest/event-ingest.ts";
import { daysBefore, type RetentionPolicy } from "../retention.ts";

export interface Refusal {
	readonly poster: Poster;
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
	/** Called with each failure to store a post, which is counted as dropped. */
	readonly onError: (error: unknown) => void;
}

/** Maximum numbers of posts that are being stored, and of bytes of their bodies. A single body may exceed it. */
const MAX_WAITING = 100;
const MAX_WAITING_BYTES = 16 * 2 ** 20;
/** Part of all room that the body of one post may take. The reasons of a larger one are kept without it. */
const MAX_SHARE = 1 / 4;
const MAX_DAYS = 30;

const COMPRESSION = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };
const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

type RefusedPostStore = Pick<Store, "keepRefusedPost" | "expireRefusedPosts">;

/** Keeps posts that were refused. At most a limited number are being stored at a time; others are only counted. */
export class RefusedPosts implements AsyncDisposable {
	readonly #store: RefusedPostStore;
	readonly #options: RefusedOptions;
	readonly #sealed: SealedBytes;
	readonly #writes = new Set<Promise<void>>();
	#waitingBytes = 0;
	/** The part of ids that tells this process from others, and the number of the last post. */
	readonly #process = randomInt(1000);
	#number = 0;
	/**
	 * Numbers of posts since the start: those that were kept; those that were not, because too many waited, or they could not be
	 * stored; and those that were removed again to make room, or because of their age.
	 */
	readonly counts = { kept: 0, dropped: 0, removed: 0 };

	constructor(store: RefusedPostStore, options: RefusedOptions) {
		this.#store = store;
		this.#options = options;
		this.#sealed = new SealedBytes(options.keys);
	}

	/**
	 * Keeps a refused post, soon after the call. Failures that pass by themselves are not kept.
	 *
	 * @param now milliseconds of Unix time
	 */
	add(refusal: Refusal, now = Date.now()): void {
		const kind = kindOf(refusal.error);
		if (kind === "unavailable" || kind === "rate_limited") return;
		const body = this.#keepsBody(refusal.body) ? refusal.body : undefined;
		const bytes = body?.byteLength ?? 0;
		const hasRoom = this.#waitingBytes === 0 || this.#waitingBytes + bytes <= MAX_WAITING_BYTES;
		if (this.#writes.size >= MAX_WAITING || !hasRoom) {
			this.counts.dropped += 1;
			return;
		}
		this.#waitingBytes += bytes;
		// A copy, because the body is often a part of a larger buffer, and its memory may be released.
		const write = this.#keep(refusal, body && new Uint8Array(body), false, now)
			.then(
				() => undefined,
				(error: unknown) => {
					this.counts.dropped += 1;
					this.#options.onError(error);
				},
			)
			.finally(() => {
				this.#waitingBytes -= bytes;
				this.#writes.delete(write);
			});
		this.#writes.add(write);
	}

	/**
	 * Stores a refused batch of events that is answered with success, and opens a gap of its conversation. Resolves when
	 * both are on disk.
	 *
	 * @param now milliseconds of Unix time
	 * @returns false when there is no room, or no key to encrypt the body with: nothing was stored
	 */
	async accept(batch: AcceptedBatch, now = Date.now()): Promise<boolean> {
		const { body } = batch;
		return body !== undefined && this.#sealed.canSeal && (await this.#keep(batch, body, true, now));
	}

	/** Returns the body of a stored post; undefined when it is not stored. Throws `data_loss` when it cannot be decrypted. */
	async bodyOf({ id, size, body }: RefusedPostRow): Promise<Buffer | undefined> {
		if (body === undefined) return undefined;
		return await decompress(this.#sealed.open(body, purposeOf(id)), { maxOutputLength: Math.max(size, 1) });
	}

	/**
	 * Removes posts that are too old: after 30 days, or when records or events of their age are removed. A batch that was
	 * accepted is kept as events are.
	 *
	 * @param now microseconds since the Unix epoch
	 * @returns their number
	 */
	async expire(now: bigint, { days = MAX_DAYS, eventDays }: Pick<RetentionPolicy, "days" | "eventDays">) {
		const removed = await this.#store.expireRefusedPosts({
			keptSince: daysBefore(now, Math.min(MAX_DAYS, days, eventDays ?? MAX_DAYS)),
			acceptedSince: eventDays === undefined ? undefined : daysBefore(now, eventDays),
		});
		this.counts.removed += removed;
		return removed;
	}

	#keepsBody(body: Uint8Array | undefined): boolean {
		const size = body?.byteLength ?? 0;
		return this.#sealed.canSeal && size > 0 && size <= this.#options.maxBytes * MAX_SHARE;
	}

	/** Returns false when an accepted post has no room, or is one to a conversation of another owner. */
	async #keep(
		{ poster, route, form, error, conversationId, size = 0 }: Refusal,
		body: Uint8Array | undefined,
		accepted: boolean,
		now: number,
	): Promise<boolean> {
		const receivedAt = BigInt(now) * 1000n;
		this.#number = (this.#number + 1) % 1000;
		// Grows from post to post, and is none that another process gives.
		const id = idsFrom(receivedAt) + BigInt(this.#process * 1000 + this.#number);
		const post = {
			...{ id, receivedAt, ...poster, route, form, kind: kindOf(error), reasons: packReasons(error, form) },
			...{ conversationId, size, accepted, retriedAt: undefined },
			body: body && this.#sealed.seal(await compress(body, COMPRESSION), purposeOf(id)),
		};
		const removed = await this.#store.keepRefusedPost({ post, maxBytes: this.#options.maxBytes });
		if (removed === undefined) return false;
		this.counts.kept += 1;
		this.counts.removed += removed;
		return true;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await Promise.all(this.#writes);
	}
}

function purposeOf(id: bigint): string {
	return `body of the refused post ${id}`;
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

type AcceptedBatch = Refusal & { readonly conversationId: string };

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
		form: keyof AcceptingOptions["routes"],
		named: string,
		body: Uint8Array,
		poster: Poster,
		error: unknown,
	): Promise<IngestedEvents> {
		const kind = kindOf(error);
		const conversationId = parseUuid(named);
		// Every other kind says that the sender may not post this, or that the post would succeed later.
		if ((kind !== "invalid_record" && kind !== "internal") || conversationId === undefined) throw error;
		const batch = { form, body, poster, error, conversationId, route: routes[form], size: body.byteLength };
		const isKept = await kept.accept(batch).catch((failure: unknown) => {
			onError(failure);
			return false;
		});
		if (!isKept) throw error;
		onAccepted(batch);
		return { stored: 0, updateSequence: undefined };
	}
	return {
		json: (id, body, poster, signal) =>
			ingest.json(id, body, poster, signal).catch((error: unknown) => accept("events_json", id, body, poster, error)),
		request: (body, poster, signal) =>
			ingest
				.request(body, poster, signal)
				.catch((error: unknown) => accept("events_message", conversationIdIn(body), body, poster, error)),
	};
}
