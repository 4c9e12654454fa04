import { setTimeout as delay } from "node:timers/promises";
import type { PrunePolicy, Store } from "../../store/store.ts";

/** What history is kept; undefined keeps all. */
export interface RetentionPolicy {
	readonly days: number | undefined;
	readonly updatesPerConversation: number | undefined;
}

/** How pruning goes about it. */
export interface RetentionPace {
	/** Updates that one step removes at most, so that ingest waits for a step and not for all of it. */
	readonly step: number;
	/** Milliseconds between two steps. */
	readonly pause: number;
	/** Milliseconds between two rounds. */
	readonly interval: number;
}

const PACE: RetentionPace = { step: 200, pause: 20, interval: 60_000 };
const MICROSECONDS_PER_DAY = 86_400_000_000;

/**
 * Prunes history that the policy no longer keeps, until the signal fires. Does nothing when the policy keeps all. After a
 * failure it goes on in the next round.
 *
 * @param onError told of each failure
 * @param now the current time in milliseconds since the Unix epoch
 */
export async function retain(
	store: Pick<Store, "prune">,
	{ days, updatesPerConversation }: RetentionPolicy,
	signal: AbortSignal,
	onError: (error: unknown) => void,
	pace: RetentionPace = PACE,
	now: () => number = Date.now,
): Promise<void> {
	if (days === undefined && updatesPerConversation === undefined) return;
	while (!signal.aborted) {
		const receivedBefore =
			days === undefined ? undefined : BigInt(now()) * 1000n - BigInt(Math.round(days * MICROSECONDS_PER_DAY));
		const removed = await prune(store, { receivedBefore, updatesPerConversation, limit: pace.step }, onError);
		await wait(removed > 0 ? pace.pause : pace.interval, signal);
	}
}

async function prune(
	store: Pick<Store, "prune">,
	policy: PrunePolicy,
	onError: (error: unknown) => void,
): Promise<number> {
	try {
		return await store.prune(policy);
	} catch (error) {
		onError(error);
		return 0;
	}
}

/** Waits, or returns at once when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
