import { setTimeout as delay } from "node:timers/promises";
import { claimFor } from "../store/claims.ts";
import type { Store } from "../store/store.ts";
import { newVerified } from "./reconcile.ts";
import type { Reconciler, ReconcileTarget } from "./reconciler.ts";

/** Milliseconds between two runs. */
const INTERVAL = 3_600_000;
/** Milliseconds between two looks for new gaps. */
const GAP_CHECK = 30_000;
/** Milliseconds after which a run begins again that ended early. */
const RETRY = 300_000;

/** What the job needs. */
interface ReconcileJob {
	readonly reconciler: Pick<Reconciler, "run">;
	readonly store: Pick<Store, "countConversations" | "claim">;
	/** Identifies this process among others with the same database. */
	readonly holder: string;
	/** Milliseconds between two runs. Default: {@link INTERVAL}. */
	readonly interval?: number;
	/** Milliseconds between two looks for new gaps. Default: {@link GAP_CHECK}. */
	readonly gapCheck?: number;
	readonly onError: (error: unknown) => void;
	readonly stopping: AbortSignal;
}

/**
 * Compares an agent server with the store every so often, and sooner when there are new gaps, until the signal fires. Of
 * several processes with one database, one does it; another one follows soon after that one has ended.
 *
 * @param sender name under which the agent server posts
 */
export async function reconcileUntilStopped(job: ReconcileJob, sender: string, target: ReconcileTarget): Promise<void> {
	const { reconciler, store, holder, interval = INTERVAL, gapCheck = GAP_CHECK, onError, stopping } = job;
	const verified = newVerified();
	// Also renewed during a run, which can take long.
	const claim = () => claimFor(store, `reconcile job ${sender}`, holder, 3 * gapCheck).catch(() => false);
	let isClaimed = claim();
	const renewing = setInterval(() => {
		isClaimed = claim();
	}, gapCheck);
	/** When the next run is due, by the monotonic clock. */
	let due = 0;
	/** Number of conversations with gaps after the last run, and at the last look. */
	let [left, before] = [0, 0];
	while (!stopping.aborted) {
		try {
			if (await isClaimed) {
				const gaps = await countGaps(store, sender);
				// A gap that closes at once was none: a record often arrives before the events of the same moment.
				const isNew = gaps > left && before > left;
				[left, before] = [Math.min(left, gaps), gaps];
				if (isNew || performance.now() >= due) {
					due = performance.now() + Math.min(interval, RETRY);
					const result = await reconciler.run(target, () => undefined, verified);
					if (result !== undefined && result.error === undefined) due = performance.now() + interval;
					// What the run could not close is no reason for another one; a gap that appeared meanwhile is.
					left = before = Math.min(gaps, await countGaps(store, sender));
				}
			}
		} catch (error) {
			if (!stopping.aborted) onError(error);
		}
		await delay(Math.min(gapCheck, interval), undefined, { signal: stopping }).catch(() => undefined);
	}
	clearInterval(renewing);
	await isClaimed;
}

async function countGaps(store: Pick<Store, "countConversations">, sender: string): Promise<number> {
	const { total } = await store.countConversations({
		conditions: [
			{ kind: "equal", field: "sender", value: sender },
			{ kind: "gaps", value: true },
		],
		group: undefined,
		limit: 1,
	});
	return total;
}
