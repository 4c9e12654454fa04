import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { Store } from "../../store/store.ts";

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
 * Prunes history that the policy no longer keeps, until the signal fires. Does nothing when the policy keeps all.
 *
 * A store that cannot be written is tried again in the next round; it logs its own failures.
 *
 * @param now the current time in milliseconds since the Unix epoch
 * @throws whatever is not the store's own failure
 */
export async function retain(
	store: Pick<Store, "prune">,
	{ days, updatesPerConversation }: RetentionPolicy,
	signal: AbortSignal,
	pace: RetentionPace = PACE,
	now: () => number = Date.now,
): Promise<void> {
	if (days === undefined && updatesPerConversation === undefined) return;
	while (!signal.aborted) {
		const receivedBefore =
			days === undefined ? undefined : BigInt(now()) * 1000n - BigInt(Math.round(days * MICROSECONDS_PER_DAY));
		const removed = await store.prune({ receivedBefore, updatesPerConversation, limit: pace.step }).catch(unlessStore);
		await wait(removed > 0 ? pace.pause : pace.interval, signal);
	}
}

function unlessStore(error: unknown): number {
	if (error instanceof ServiceError && error.kind === "unavailable") return 0;
	throw error;
}

/** Waits, or returns at once when the signal fires. */
async function wait(milliseconds: number, signal: AbortSignal): Promise<void> {
	await delay(milliseconds, undefined, { signal, ref: false }).catch(() => undefined);
}
