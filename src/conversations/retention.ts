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
 * Prunes updates and events that the policy no longer keeps, until the signal fires. It continues after a failure.
 *
 * @param further done with each step; `now` is in microseconds since the Unix epoch
 */
export async function pruneUntilStopped(
	store: Pick<Store, "prune" | "pruneEvents">,
	{ days, updatesPerConversation, eventDays }: RetentionPolicy,
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
		const now = BigInt(Date.now()) * 1000n;
		for (const step of steps) removed += await step(now).catch(failed);
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
	return rules.map((rule) => (now) => store.pruneConversations(conditionsOf(dueBy(rule, now)), PACE.step));
}
