import { setTimeout as delay } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { Store } from "../store/store.ts";
import { conditionsOf } from "./read/filter.ts";

/** Which updates and events are kept. An undefined limit keeps all. */
export interface RetentionPolicy {
	readonly days: number | undefined;
	readonly updatesPerConversation: number | undefined;
	readonly eventDays: number | undefined;
}

/** Further work of retention, for example on what is kept beside the logs. Returns what it removed. */
type RetentionStep = (now: bigint) => Promise<number>;

export interface RetentionPace {
	/** Maximum number of updates, or events, that one step removes, so that ingest waits only for one step. */
	readonly step: number;
	readonly pause: number;
	/** Minimum pause after a step as a multiple of its duration. It leaves the machine to ingest. */
	readonly pauseFactor: number;
	/** Milliseconds to wait after a step that removed nothing. */
	readonly interval: number;
}

const PACE: RetentionPace = { step: 200, pause: 20, pauseFactor: 2, interval: 60_000 };
const MICROSECONDS_PER_DAY = 86_400_000_000;

/**
 * Prunes updates and events that the policy no longer keeps, until the signal fires. It continues after a failure. It
 * advances the clock even when the policy keeps everything, so that a later policy finds it near the present.
 *
 * @param further done with each step; `now` is in microseconds since the Unix epoch
 */
export async function pruneUntilStopped(
	store: Pick<Store, "prune" | "pruneEvents">,
	{ days, updatesPerConversation, eventDays }: RetentionPolicy,
	clock: Pick<RetentionClock, "advance">,
	signal: AbortSignal,
	onError: (error: unknown) => void,
	pace: RetentionPace = PACE,
	further: readonly RetentionStep[] = [],
): Promise<void> {
	const steps: RetentionStep[] = [...further];
	if (days !== undefined || updatesPerConversation !== undefined)
		steps.push((now) => {
			const receivedBefore = days === undefined ? undefined : daysBefore(now, days);
			return store.prune({ receivedBefore, updatesPerConversation, limit: pace.step });
		});
	if (eventDays !== undefined) steps.push((now) => store.pruneEvents(daysBefore(now, eventDays), pace.step));
	while (!signal.aborted) {
		let removed = 0;
		const began = performance.now();
		try {
			const now = await clock.advance();
			for (const step of steps) removed += await step(now).catch(failed);
		} catch (error) {
			onError(error);
		}
		const pause = Math.max(pace.pause, (performance.now() - began) * pace.pauseFactor);
		const wait = removed > 0 ? pause : pace.interval;
		await delay(wait, undefined, { signal, ref: false }).catch(() => undefined);
	}

	function failed(error: unknown): number {
		onError(error);
		return 0;
	}
}

/** Returns a time some days before another one, in microseconds since the Unix epoch. */
export function daysBefore(now: bigint, days: number): bigint {
	return now - BigInt(Math.round(days * MICROSECONDS_PER_DAY));
}

/** Maximum number of updates and events that a step removes. */
const STEP = 200;

/** A rule by which conversations are removed as a whole. */
export interface RetentionRule {
	/** As it is written in the configuration, such as `tag:env=dev`. */
	readonly name: string;
	readonly filter: Pick<MessageInitShape<typeof ConversationFilterSchema>, "owner" | "tagKey" | "tags">;
	readonly days: number;
}

/** Returns the filter of the conversations that a rule removes at a time, in microseconds since the Unix epoch. */
export function dueBy({ filter, days }: RetentionRule, now: bigint): ConversationFilter {
	return create(ConversationFilterSchema, { ...filter, activityTo: fromMicroseconds(daysBefore(now, days)) });
}

export function stepsOf(
	store: Pick<Store, "pruneConversations">,
	rules: readonly RetentionRule[],
): readonly RetentionStep[] {
	return rules.map((rule) => (now) => store.pruneConversations(conditionsOf(dueBy(rule, now)), STEP));
}

/** The computer's clocks, in milliseconds. */
export interface Clocks {
	/** Since the Unix epoch. An operator can set it to any time. */
	readonly now: () => number;
	/** Since an arbitrary moment. Advances evenly while the process runs. */
	readonly elapsed: () => number;
}

/** Maximum speed at which the time of retention follows the clock, as a multiple of elapsed time. */
const MAX_SPEED = 2;
/** Difference of the clock from the time of retention above which it is reported, in microseconds. */
const TOLERANCE = 3_600_000_000n;
/** The start of 2026 in milliseconds since the Unix epoch. A clock with an earlier time was never set. */
const EARLIEST = Date.UTC(2026, 0, 1);
/** Minimum milliseconds between two writes of the time of retention to the store. */
const SAVE_INTERVAL = 30_000;

/** The clock and the time of retention, in microseconds since the Unix epoch. */
export interface ClockDifference {
	readonly clock: bigint;
	readonly retentionTime: bigint;
}

/**
 * The time by which retention determines the age of updates and events. While the service runs, it follows the clock at
 * no more than twice the speed of elapsed time, and the store keeps it across restarts. So a clock that jumps ahead
 * removes nothing before the service has run for half of the retention period.
 */
export class RetentionClock {
	readonly #store: Pick<Store, "getRetentionTime" | "saveRetentionTime">;
	readonly #onDoubt: (difference: ClockDifference | undefined) => void;
	readonly #clocks: Clocks;
	#last: { readonly time: bigint; readonly at: number } | undefined;
	#savedAt = Number.NEGATIVE_INFINITY;
	#isDoubted = false;

	constructor(
		store: Pick<Store, "getRetentionTime" | "saveRetentionTime">,
		onDoubt: (difference: ClockDifference | undefined) => void,
		clocks: Clocks = { now: Date.now, elapsed: () => performance.now() },
	) {
		this.#store = store;
		this.#onDoubt = onDoubt;
		this.#clocks = clocks;
	}

	/**
	 * Moves the time of retention towards the clock, and returns the earlier one of both in microseconds since the Unix epoch.
	 * The first call continues from the time in the store, or from the clock when the store has none. When it throws, the
	 * next call tries again.
	 */
	async advance(): Promise<bigint> {
		const clock = BigInt(Math.trunc(this.#clocks.now())) * 1000n;
		// Not stored, because the time of retention would need decades to catch up.
		if (this.#last === undefined && this.#clocks.now() < EARLIEST) return clock;
		const at = this.#clocks.elapsed();
		const last = this.#last ?? { time: (await this.#store.getRetentionTime()) ?? clock, at };
		const maxStep = BigInt(Math.trunc((at - last.at) * 1000 * MAX_SPEED));
		const time = clamp(clock, last.time - maxStep, last.time + maxStep);
		this.#last = { time, at };
		if (at - this.#savedAt >= SAVE_INTERVAL) {
			await this.#store.saveRetentionTime(time);
			this.#savedAt = at;
		}
		const distance = clock > time ? clock - time : time - clock;
		const isDoubted = distance > TOLERANCE;
		if (isDoubted !== this.#isDoubted) this.#onDoubt(isDoubted ? { clock, retentionTime: time } : undefined);
		this.#isDoubted = isDoubted;
		return time < clock ? time : clock;
	}
}

function clamp(value: bigint, min: bigint, max: bigint): bigint {
	if (value < min) return min;
	return value > max ? max : value;
}
