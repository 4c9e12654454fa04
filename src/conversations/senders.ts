import { create } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { type Sender, SenderSchema } from "../../gen/conversations/v1/conversation_sender_service_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { Poster } from "../store/owners.ts";
import {
	CountedPosts,
	type Refusals,
	type RunningConversations,
	type SenderFigures,
	type SenderName,
	type StoredSender,
} from "../store/senders.ts";
import type { Store } from "../store/store.ts";

const MINUTE = 60_000_000n;
const HOUR = 60n * MINUTE;
const DAY = 24n * HOUR;
/** Number of posts from which on a sender has an interval that is usual. */
const REGULAR_POSTS = 20n;
/** How many of its usual intervals a sender may be silent, at least for {@link MIN_SILENCE}. */
const INTERVALS = 10n;
const MIN_SILENCE = 10n * MINUTE;
/** From then on, a sender is no longer expected to post. */
const MAX_SILENCE = 7n * DAY;

/** Returns the senders by name. `now` is milliseconds of Unix time. */
export async function listSenders(
	store: Pick<Store, "listSenders">,
	clocks: Pick<ClockSkews, "of">,
	now = Date.now(),
): Promise<Sender[]> {
	const listed = await store.listSenders();
	const { senders, refusals, running } = listed;
	const names = new Map<string, SenderName>([...senders, ...refusals, ...running].map((one) => [keyOf(one), one]));
	return [...names.values()]
		.map((name) => senderOf(name, listed, clocks.of(name.sender), BigInt(now) * 1000n))
		.sort((a, b) => compare(a.name, b.name) || compare(a.owner, b.owner));
}

function senderOf(
	{ sender: name, owner }: SenderName,
	{ senders, refusals, running }: SenderFigures,
	skew: bigint | undefined,
	now: bigint,
): Sender {
	const isIts = (one: SenderName) => one.sender === name && one.owner === owner;
	const totals = senders.find(isIts);
	const ownRefusals = refusals.filter(isIts);
	const runningConversations = running.find(isIts)?.count ?? 0n;
	const expected = runningConversations + (owner === "" ? elsewhere(name, senders, running) : 0n);
	return create(SenderSchema, {
		name,
		owner,
		refusalsLastHour: byKind(ownRefusals, now - HOUR),
		refusalsLastDay: byKind(ownRefusals, now - DAY),
		runningConversations,
		...(skew === undefined ? {} : { clockSkew: create(DurationSchema, { seconds: skew / 1_000_000n }) }),
		...(totals === undefined
			? {}
			: {
					firstPostAt: fromMicroseconds(totals.firstPostAt),
					lastPostAt: fromMicroseconds(totals.lastPostAt),
					records: totals.records,
					events: totals.events,
					silent: isSilent(totals, expected, now),
				}),
	});
}

/**
 * Returns whether a sender with running conversations has been silent for longer than it usually is.
 *
 * @param now microseconds since the Unix epoch
 */
export function isSilent(
	{ posts, lastPostAt, usualInterval }: Pick<StoredSender, "posts" | "lastPostAt" | "usualInterval">,
	runningConversations: bigint,
	now: bigint,
): boolean {
	if (runningConversations === 0n || posts < REGULAR_POSTS) return false;
	const silence = now - lastPostAt;
	return silence > MIN_SILENCE && silence > INTERVALS * usualInterval && silence < MAX_SILENCE;
}

/**
 * Returns the number of running conversations that a sender posted and that belong to owners for whom it has not posted:
 * they were assigned to these owners, and the sender's key still has none.
 */
function elsewhere(name: string, senders: readonly StoredSender[], running: readonly RunningConversations[]): bigint {
	return running
		.filter((one) => one.sender === name && one.owner !== "" && !senders.some((sender) => keyOf(sender) === keyOf(one)))
		.reduce((sum, { count }) => sum + count, 0n);
}

function byKind(refusals: readonly Refusals[], since: bigint): Record<string, bigint> {
	const counts = new Map<string, bigint>();
	for (const { kind, count, since: begin } of refusals)
		if (begin >= since) counts.set(kind, (counts.get(kind) ?? 0n) + count);
	return Object.fromEntries(counts);
}

function keyOf({ sender, owner }: SenderName): string {
	return JSON.stringify([owner, sender]);
}

function compare(a: string, b: string): number {
	if (a === b) return 0;
	return a < b ? -1 : 1;
}

/** Length of a period in which refusals are counted, in microseconds. */
const PERIOD = 300_000_000n;
/** How long the numbers are kept, in microseconds: a day, and an hour more. */
const KEPT = 25n * 3_600_000_000n;
const FLUSH_INTERVAL = 10_000;

/**
 * Counts the refused and the repeated posts of senders in memory, and adds them to those of the store every ten seconds
 * and when it is disposed. So the numbers of several replicas add up. Posts that store something are counted with it.
 */
export class PostCounts implements AsyncDisposable {
	readonly #store: Pick<Store, "addRefusals">;
	readonly #onError: (error: unknown) => void;
	readonly #timer: NodeJS.Timeout;
	#counts = new Map<string, { readonly sender: string; owner: string; since: bigint; kind: string; count: bigint }>();
	#repeats = new CountedPosts();
	#flushing: Promise<void> = Promise.resolve();

	/** @param onError called when the numbers could not be stored; they are stored later */
	constructor(store: Pick<Store, "addRefusals">, onError: (error: unknown) => void) {
		this.#store = store;
		this.#onError = onError;
		this.#timer = setInterval(() => void this.flush(), FLUSH_INTERVAL).unref();
	}

	add({ sender, owner = "" }: Poster, kind: string, now = Date.now()): void {
		const since = ((BigInt(now) * 1000n) / PERIOD) * PERIOD;
		const key = JSON.stringify([owner, sender, kind, String(since)]);
		const counted = this.#counts.getOrInsertComputed(key, () => ({ sender, owner, since, kind, count: 0n }));
		counted.count += 1n;
	}

	/** Counts a post that repeats what is stored. `at` is when it arrived, in microseconds of Unix time. */
	addRepeat({ sender, owner = "" }: Poster, at: bigint): void {
		this.#repeats.add({ sender, owner }, at, {});
	}

	async flush(now = Date.now()): Promise<void> {
		this.#flushing = this.#flushing.then(() => this.#storeCounts(now));
		await this.#flushing;
	}

	async #storeCounts(now: number): Promise<void> {
		const [counts, repeats] = [this.#counts, this.#repeats.all()];
		if (counts.size === 0 && repeats.length === 0) return;
		this.#counts = new Map();
		this.#repeats = new CountedPosts();
		try {
			const keptSince = BigInt(now) * 1000n - KEPT;
			await this.#store.addRefusals({ refusals: [...counts.values()], repeats, keptSince });
		} catch (error) {
			for (const [key, counted] of counts) {
				const later = this.#counts.get(key);
				this.#counts.set(key, { ...counted, count: counted.count + (later?.count ?? 0n) });
			}
			for (const one of repeats) this.#repeats.merge(one);
			this.#onError(error);
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		clearInterval(this.#timer);
		await this.flush();
	}
}

/**
 * Judges the clocks of senders by the delays of their batches of events: the time from a batch's newest event, as its
 * sender wrote it, to its arrival. A batch that waited or was sent again has a long delay, so only the least one counts.
 * All times are microseconds.
 */

/** Time zones differ by multiples of this. */
const STEP = 15n * MINUTE;
/** Maximum distance from a multiple of {@link STEP}: the usual delay, and what a clock may be wrong. */
const TOLERANCE = 2n * MINUTE;
/** Number of batches from which on a clock is judged. */
export const MIN_BATCHES = 20;
/** Number of the latest batches by which a clock is judged. */
const MAX_BATCHES = 100;

/** The delays of the latest batches of each sender, since the service started. */
export class ClockSkews {
	readonly #delays = new Map<string, number[]>();
	/** By the names of senders: the skew that was reported last. */
	readonly #reported = new Map<string, bigint>();
	readonly #onSkew: (sender: string, skew: bigint) => void;

	/** @param onSkew called once when a sender's clock has a skew, and again when it has another one */
	constructor(onSkew: (sender: string, skew: bigint) => void) {
		this.#onSkew = onSkew;
	}

	add(sender: string, delay: bigint): void {
		const delays = this.#delays.getOrInsertComputed(sender, () => []);
		delays.push(Number(delay));
		if (delays.length > MAX_BATCHES) delays.shift();
		const skew = clockSkew(delays);
		if (skew === undefined || skew === 0n || skew === this.#reported.get(sender)) return;
		this.#reported.set(sender, skew);
		this.#onSkew(sender, skew);
	}

	of(sender: string): bigint | undefined {
		return clockSkew(this.#delays.get(sender) ?? []);
	}
}

/**
 * Returns by how much the times of events lie before their arrival, beyond the usual delay: a multiple of 15 minutes,
 * negative if they lie after it.
 *
 * @param delays those of the sender's latest batches
 * @returns 0 when the least delay is not close to another multiple; undefined for fewer than {@link MIN_BATCHES}
 */
export function clockSkew(delays: readonly number[]): bigint | undefined {
	if (delays.length < MIN_BATCHES) return undefined;
	const least = Math.min(...delays);
	const nearest = Math.round(least / Number(STEP));
	return Math.abs(least - nearest * Number(STEP)) <= Number(TOLERANCE) ? BigInt(nearest) * STEP : 0n;
}
