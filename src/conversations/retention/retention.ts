import { setTimeout as delay } from "node:timers/promises";
import type { Store } from "../../store/store.ts";
import type { RetentionClock } from "./retention-clock.ts";

/** What is kept of updates and of events; undefined keeps all. */
export interface RetentionPolicy {
	readonly days: number | undefined;
	readonly updatesPerConversation: number | undefined;
	readonly eventDays: number | undefined;
}

/** How pruning goes about it. */
export interface RetentionPace {
	/** Updates, or events, that one step removes at most, so that ingest waits for a step and not for all of it. */
	readonly step: number;
	/** Least milliseconds between two steps. */
	readonly pause: number;
	/** The pause between two steps as a multiple of the time that the first one took, so that ingest has the machine. */
	readonly rest: number;
	/** Milliseconds between two rounds. */
	readonly interval: number;
}

const PACE: RetentionPace = { step: 200, pause: 20, rest: 2, interval: 60_000 };
const MICROSECONDS_PER_DAY = 86_400_000_000;

/**
 * Prunes history and events that the policy no longer keeps, until the signal fires. After a failure it goes on in the
 * next round. The clock is advanced also when the policy keeps all, so that a later policy finds it near the present.
 *
 * @param onError told of each failure
 */
export async function retain(
	store: Pick<Store, "prune" | "pruneEvents">,
	{ days, updatesPerConversation, eventDays }: RetentionPolicy,
	clock: Pick<RetentionClock, "advance">,
	signal: AbortSignal,
	onError: (error: unknown) => void,
	pace: RetentionPace = PACE,
): Promise<void> {
	const steps: ((now: bigint) => Promise<number>)[] = [];
	if (days !== undefined || updatesPerConversation !== undefined)
		steps.push((now) => {
			const receivedBefore = days === undefined ? undefined : before(now, days);
			return store.prune({ receivedBefore, updatesPerConversation, limit: pace.step });
		});
	if (eventDays !== undefined) steps.push((now) => store.pruneEvents(before(now, eventDays), pace.step));
	while (!signal.aborted) {
		let removed = 0;
		const began = performance.now();
		try {
			const now = await clock.advance();
			for (const step of steps) removed += await step(now).catch(failed);
		} catch (error) {
			onError(error);
		}
		const pause = Math.max(pace.pause, (performance.now() - began) * pace.rest);
		await wait(removed > 0 ? pause : pace.interval, signal);
	}

	function failed(error: unknown): number {
		onError(error);
		return 0;
	}
}

function before(now: bigint, days: number): bigint {
	return now - BigInt(Math.round(days * MICROSECONDS_PER_DAY));
}

/** Waits, or returns at once when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
