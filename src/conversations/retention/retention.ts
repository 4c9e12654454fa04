import { setTimeout as delay } from "node:timers/promises";
import type { Store } from "../../store/store.ts";

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
	/** Milliseconds between two steps. */
	readonly pause: number;
	/** Milliseconds between two rounds. */
	readonly interval: number;
}

const PACE: RetentionPace = { step: 200, pause: 20, interval: 60_000 };
const MICROSECONDS_PER_DAY = 86_400_000_000;

/**
 * Prunes history and events that the policy no longer keeps, until the signal fires. Does nothing when the policy keeps
 * all. After a failure it goes on in the next round.
 *
 * @param onError told of each failure
 * @param now the current time in milliseconds since the Unix epoch
 */
export async function retain(
	store: Pick<Store, "prune" | "pruneEvents">,
	{ days, updatesPerConversation, eventDays }: RetentionPolicy,
	signal: AbortSignal,
	onError: (error: unknown) => void,
	pace: RetentionPace = PACE,
	now: () => number = Date.now,
): Promise<void> {
	const before = (age: number) => BigInt(now()) * 1000n - BigInt(Math.round(age * MICROSECONDS_PER_DAY));
	const steps: (() => Promise<number>)[] = [];
	if (days !== undefined || updatesPerConversation !== undefined)
		steps.push(() => {
			const receivedBefore = days === undefined ? undefined : before(days);
			return store.prune({ receivedBefore, updatesPerConversation, limit: pace.step });
		});
	if (eventDays !== undefined) steps.push(() => store.pruneEvents(before(eventDays), pace.step));
	while (steps.length > 0 && !signal.aborted) {
		let removed = 0;
		for (const step of steps) {
			try {
				removed += await step();
			} catch (error) {
				onError(error);
			}
		}
		await wait(removed > 0 ? pace.pause : pace.interval, signal);
	}
}

/** Waits, or returns at once when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
