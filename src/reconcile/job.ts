import { setTimeout as delay } from "node:timers/promises";
import type { Store } from "../store/store.ts";
import type { Reconciler, ReconcileTarget } from "./reconciler.ts";
import { newVerified } from "./verified.ts";

/** Milliseconds between two looks for new gaps. */
const GAP_CHECK = 30_000;

/** What the job needs. */
export interface ReconcileJob {
	readonly reconciler: Pick<Reconciler, "run">;
	readonly store: Pick<Store, "countConversations" | "claim">;
	/** Identifies this process among others with the same database. */
	readonly holder: string;
	/** Milliseconds between two runs. */
	readonly interval: number;
	/** Milliseconds between two looks for new gaps. Default: {@link GAP_CHECK}. */
	readonly gapCheck?: number;
	readonly onError: (error: unknown) => void;
	readonly stopping: AbortSignal;
}

/**
 * Compares an agent server with the store every so often, and sooner when there are new gaps, until the signal fires. Of
 * several processes with one database, only one does it.
 *
 * @param sender name under which the agent server posts
 */
export async function reconcileUntilStopped(job: ReconcileJob, sender: string, target: ReconcileTarget): Promise<void> {
	const { reconciler, store, holder, interval, gapCheck = GAP_CHECK, onError, stopping } = job;
	const verified = newVerified();
	while (!stopping.aborted) {
		let left = 0;
		try {
			const now = Date.now();
			const until = BigInt(now + interval) * 1000n;
			if (await store.claim(`reconcile job ${sender}`, holder, BigInt(now) * 1000n, until))
				await reconciler.run(target, () => undefined, verified);
			left = await countGaps(store, sender);
		} catch (error) {
			if (!stopping.aborted) onError(error);
		}
		await waitForGaps();

		async function waitForGaps(): Promise<void> {
			const due = performance.now() + interval;
			let before = left;
			while (!stopping.aborted && performance.now() < due) {
				await delay(Math.min(gapCheck, interval), undefined, { signal: stopping }).catch(() => undefined);
				const gaps = await countGaps(store, sender).catch(() => left);
				// A gap that closes at once was none: a record often arrives before the events of the same moment.
				if (gaps > left && before > left) return;
				left = Math.min(left, gaps);
				before = gaps;
			}
		}
	}
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
