import type { Store } from "../store/store.ts";
import { AMOUNTS, type Amounts, sumOf } from "../usage/ledger.ts";

/** Maximum number of differences that are kept. */
const MAX_DIFFERENCES = 1_000;

/** The usage of a conversation before and after the view was derived anew. */
export interface Difference {
	readonly conversationId: string;
	readonly before: Amounts;
	readonly after: Amounts;
}

/** What a run has done so far. */
export interface RebuiltUsage {
	/** Number of conversations that were compared. */
	readonly conversations: number;
	/** Number of those whose usage is another one now. */
	readonly corrected: number;
	/** The first ones of them. */
	readonly differences: readonly Difference[];
}

/** A run that has done nothing yet. */
export const NOTHING_REBUILT: RebuiltUsage = { conversations: 0, corrected: 0, differences: [] };

type UsageStore = Pick<Store, "listUsageTotals" | "resetViews">;

/**
 * Empties the view of usage, which then follows the logs again, and compares the usage of each conversation with that
 * before. What is posted meanwhile counts as a difference. Reads of usage wait for the view, and fail while it is far behind.
 *
 * @throws ServiceError when the store cannot be read or written
 */
export async function rebuildUsage(
	store: UsageStore,
	signal: AbortSignal,
	onProgress: (done: RebuiltUsage) => void,
): Promise<void> {
	const before = new Map<string, Amounts>();
	for await (const { conversationId, amounts } of totals(store)) before.set(conversationId, amounts);
	await store.resetViews(["usage"]);
	signal.throwIfAborted();
	let done = NOTHING_REBUILT;
	const compare = (conversationId: string, after: Amounts) => {
		const known = before.get(conversationId) ?? sumOf([]);
		before.delete(conversationId);
		const isEqual = AMOUNTS.every((name) => known[name] === after[name]);
		const differences = [...done.differences, { conversationId, before: known, after }];
		done = isEqual
			? { ...done, conversations: done.conversations + 1 }
			: {
					conversations: done.conversations + 1,
					corrected: done.corrected + 1,
					differences: differences.slice(0, MAX_DIFFERENCES),
				};
		onProgress(done);
	};
	for await (const { conversationId, amounts } of totals(store)) compare(conversationId, amounts);
	for (const conversationId of [...before.keys()]) compare(conversationId, sumOf([]));
}

async function* totals(store: UsageStore) {
	for (let after = ""; ; ) {
		const page = await store.listUsageTotals(after);
		yield* page;
		const last = page.at(-1);
		if (last === undefined) return;
		after = last.conversationId;
	}
}
