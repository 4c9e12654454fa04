import { setTimeout as delay } from "node:timers/promises";
import type { Store } from "../../store/store.ts";
import type { RetentionClock } from "./retention-clock.ts";

/** Which updates and events are kept. An undefined limit keeps all. */
export interface RetentionPolicy {
	readonly days: number | undefined;
	readonly updatesPerConversation: number | undefined;
	readonly eventDays: number | undefined;
}

/** Further work of retention, for example on what is kept beside the logs. Returns what it removed. */
export type RetentionStep = (now: bigint) => Promise<number>;

/** How fast pruning runs. */
export interface RetentionPace {
	/** Maximum number of updates, or events, that one step removes, so that ingest waits only for one step. */
	readonly step: number;
	/** Minimum milliseconds between two steps. */
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
 * @param onError called with each failure
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
		await wait(removed > 0 ? pause : pace.interval, signal);
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

/** Waits; returns early when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
