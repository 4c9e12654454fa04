import { create } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { type Sender, SenderSchema } from "../../../gen/conversations/v1/conversation_sender_service_pb.js";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import type { Refusals, RunningConversations, SenderName, StoredSender } from "../../store/senders.ts";
import type { Store } from "../../store/store.ts";
import type { ClockSkews } from "./clock-skew.ts";

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

/** Lists the senders. */
export class ListSenders {
	readonly #store: Pick<Store, "listSenders">;
	readonly #clocks: Pick<ClockSkews, "of">;

	constructor(store: Pick<Store, "listSenders">, clocks: Pick<ClockSkews, "of">) {
		this.#store = store;
		this.#clocks = clocks;
	}

	/**
	 * Returns the senders by name.
	 *
	 * @param now milliseconds of Unix time
	 */
	async list(now = Date.now()): Promise<Sender[]> {
		const { senders, refusals, running } = await this.#store.listSenders();
		const at = BigInt(now) * 1000n;
		const totals = new Map(senders.map((sender) => [keyOf(sender), sender]));
		const names = new Map<string, SenderName>([...senders, ...refusals, ...running].map((one) => [keyOf(one), one]));
		return [...names]
			.map(([, name]) => this.#senderOf(name, totals, refusals, running, at))
			.sort((a, b) => compare(a.name, b.name) || compare(a.owner, b.owner));
	}

	#senderOf(
		{ sender: name, owner }: SenderName,
		senders: ReadonlyMap<string, StoredSender>,
		refusals: readonly Refusals[],
		running: readonly RunningConversations[],
		now: bigint,
	): Sender {
		const isIts = (one: SenderName) => one.sender === name && one.owner === owner;
		const totals = senders.get(keyOf({ sender: name, owner }));
		const ownRefusals = refusals.filter(isIts);
		const runningConversations = running.find(isIts)?.count ?? 0n;
		const skew = this.#clocks.of(name);
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
						firstPostAt: fromMicroseconds(totals.firstAt),
						lastPostAt: fromMicroseconds(totals.lastAt),
						records: totals.records,
						events: totals.events,
						silent: isSilent(
							totals,
							runningConversations + (owner === "" ? elsewhere(name, senders, running) : 0n),
							now,
						),
					}),
		});
	}
}

/**
 * Returns whether a sender with running conversations has been silent for longer than it usually is.
 *
 * @param now microseconds since the Unix epoch
 */
export function isSilent(
	{ posts, lastAt, usualInterval }: Pick<StoredSender, "posts" | "lastAt" | "usualInterval">,
	runningConversations: bigint,
	now: bigint,
): boolean {
	if (runningConversations === 0n || posts < REGULAR_POSTS) return false;
	const silence = now - lastAt;
	return silence > MIN_SILENCE && silence > INTERVALS * usualInterval && silence < MAX_SILENCE;
}

/**
 * Returns the number of running conversations that a sender posted and that belong to owners for whom it has not posted:
 * they were assigned to these owners, and the sender's key still has none.
 */
function elsewhere(
	name: string,
	senders: ReadonlyMap<string, StoredSender>,
	running: readonly RunningConversations[],
): bigint {
	return running
		.filter((one) => one.sender === name && one.owner !== "" && !senders.has(keyOf(one)))
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
