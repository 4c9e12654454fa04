import { ServiceError } from "../../errors.ts";
import type { StoredConversation } from "../../store/conversation-lists.ts";
import type { Store } from "../../store/store.ts";
import type { LedgerRow, UsageLedger, UsageState } from "../../store/usage-plan.ts";
import { AMOUNTS, type Amounts, addAmounts, formatLedger, NO_LEDGER, negated, sumOf } from "../../usage/ledger.ts";
import { type ReplayedUsage, replayUsage } from "./replay-usage.ts";

/** Number of conversations of one step. */
const STEP = 50;
/** Maximum number of attempts to count a conversation whose usage changes while it is counted. */
const TRIES = 5;
/** Maximum number of differences that are kept. */
const MAX_DIFFERENCES = 1_000;

type UsageStore = Pick<
	Store,
	| "listConversations"
	| "updates"
	| "events"
	| "getOrigin"
	| "getUsage"
	| "correctUsage"
	| "listUsageDays"
	| "correctUsageSums"
>;

/** The usage of a conversation before and after it was corrected. */
export interface Difference {
	readonly conversationId: string;
	readonly before: Amounts;
	readonly after: Amounts;
}

/** What a run has done so far. */
export interface RebuiltUsage {
	/** Number of conversations that were counted anew. */
	readonly conversations: number;
	/** Number of those whose usage was corrected. */
	readonly corrected: number;
	/** The first ones of them. */
	readonly differences: readonly Difference[];
	/** Number of conversations with updates that cannot be read. Their usage stays as it is. */
	readonly unreadable: number;
	/** Number of days (UTC) whose sums over conversations were corrected. */
	readonly correctedDays: number;
}

/** A run that has done nothing yet. */
export const NOTHING_REBUILT: RebuiltUsage = {
	conversations: 0,
	corrected: 0,
	differences: [],
	unreadable: 0,
	correctedDays: 0,
};

/**
 * Counts the usage of all conversations anew from their stored updates and events, compares it with their ledgers, and
 * corrects what differs; then it corrects the sums over conversations. New posts can be counted meanwhile.
 *
 * If some of the history of a conversation was pruned, nobody can tell when its calls were. Its ledger then stays as it is
 * unless it does not add up to the stats of the current record. Usage of conversations that were removed, and of earlier
 * lives of such conversations, also stays.
 *
 * @throws ServiceError when the store cannot be read or written, and, once all others are done, when conversations changed
 *   each time they were counted
 */
export async function rebuildUsage(
	store: UsageStore,
	signal: AbortSignal,
	onProgress: (done: RebuiltUsage) => void,
): Promise<void> {
	let done = NOTHING_REBUILT;
	let last: StoredConversation | undefined;
	const changing = new Set<string>();
	const rebuild = async (conversationId: string) => {
		signal.throwIfAborted();
		const result = await rebuildOne(store, conversationId);
		if (result === "changing") changing.add(conversationId);
		else {
			changing.delete(conversationId);
			done = withResult(done, result);
		}
		onProgress(done);
	};
	do {
		// In an order that posts do not change, so that none is left out.
		const from = last === undefined ? {} : { before: last.sequence, beforeValue: last.orderValue };
		const query = { conditions: [], order: "created" as const, limit: STEP, withRecords: false };
		const found = await store.listConversations({ ...query, ...from });
		for (const { conversationId } of found) await rebuild(conversationId);
		last = found.at(-1);
	} while (last !== undefined);
	for (const conversationId of [...changing]) await rebuild(conversationId);
	for (const day of await store.listUsageDays()) {
		signal.throwIfAborted();
		if (await store.correctUsageSums(day)) done = { ...done, correctedDays: done.correctedDays + 1 };
		onProgress(done);
	}
	await store.correctUsageSums(undefined);
	if (changing.size > 0)
		throw new ServiceError(
			"unavailable",
			`${changing.size} conversations changed while they were counted: run it again`,
		);
}

function withResult(done: RebuiltUsage, result: Difference | "equal" | "unreadable"): RebuiltUsage {
	const conversations = done.conversations + 1;
	if (result === "equal") return { ...done, conversations };
	if (result === "unreadable") return { ...done, conversations, unreadable: done.unreadable + 1 };
	const differences = [...done.differences, result].slice(0, MAX_DIFFERENCES);
	return { ...done, conversations, corrected: done.corrected + 1, differences };
}

/** @returns `changing` if the usage could not be compared, because it changed each time */
async function rebuildOne(
	store: UsageStore,
	conversationId: string,
): Promise<Difference | "equal" | "unreadable" | "changing"> {
	for (let n = 0; n < TRIES; n++) {
		const prunedBefore = await prunedThrough(store, conversationId);
		const { ledger, responses } = await store.getUsage(conversationId);
		const replayed = await replayUsage(store, conversationId, responses);
		const pruned = await prunedThrough(store, conversationId);
		// What was removed meanwhile is missing in what was read.
		if (pruned !== prunedBefore) continue;
		if (!replayed.isReadable) return "unreadable";
		const wanted =
			ledger !== undefined && pruned > 0n
				? ofCurrentLife(ledger, replayed)
				: { state: replayed.state ?? without(ledger), rows: replayed.rows };
		const { state } = wanted;
		if (state === undefined) return "equal";
		const stored = rowsOf(ledger, conversationId);
		const rows = differenceOf(stored, wanted.rows);
		if (rows.length === 0 && ledger?.state.ledger === state.ledger) return "equal";
		// It fails when usage has been counted meanwhile, or the conversation has another owner now.
		if (await store.correctUsage({ conversationId, known: ledger?.state, state, rows }))
			return { conversationId, before: sumOf(stored), after: sumOf(wanted.rows) };
	}
	return "changing";
}

/** Returns a number that grows when something of a conversation is pruned; 0 when nothing was. */
async function prunedThrough(store: Pick<Store, "updates" | "events">, conversationId: string): Promise<bigint> {
	const [updates, events] = [
		await store.updates.range({ conversationId }),
		await store.events.range({ conversationId }),
	];
	return updates.prunedThrough + events.prunedThrough;
}

/** Returns the state of a conversation whose updates show no usage. */
function without(ledger: UsageLedger | undefined): UsageState | undefined {
	return ledger && { ...ledger.state, digest: 0n, ledger: formatLedger(NO_LEDGER) };
}

/** Returns the ledger as it is if its current life adds up to what the remaining updates show, else with that life anew. */
function ofCurrentLife(ledger: UsageLedger, { state, rows }: ReplayedUsage) {
	const { conversationId, state: known } = ledger;
	const stored = rowsOf(ledger, conversationId);
	const [current, earlier] = [
		stored.filter(({ life }) => life === known.life),
		stored.filter(({ life }) => life !== known.life),
	];
	const newest = rows.filter(({ life }) => life === state?.life);
	if (state === undefined || isNear(sumOf(current), sumOf(newest))) return { state: known, rows: stored };
	return {
		state: { ...state, life: known.life },
		rows: [...earlier, ...newest.map((row) => ({ ...row, life: known.life }))],
	};
}

/** Whether amounts are equal, up to the rounding of the cost of each call. */
function isNear(a: Amounts, b: Amounts): boolean {
	const rounding = a.calls + 2n;
	return AMOUNTS.every((name) => {
		const difference = a[name] - b[name];
		return name === "cost" ? difference <= rounding && -difference <= rounding : difference === 0n;
	});
}

function rowsOf(ledger: UsageLedger | undefined, conversationId: string): LedgerRow[] {
	if (ledger === undefined) return [];
	const { sender, owner } = ledger.state;
	return ledger.rows.map((row) => ({ ...row, conversationId, sender, owner }));
}

/** Returns what must be added to rows to get others. */
function differenceOf(before: readonly LedgerRow[], after: readonly LedgerRow[]): LedgerRow[] {
	const byKey = new Map<string, LedgerRow>();
	for (const row of [...before.map((one) => ({ ...one, ...negated(one) })), ...after]) {
		const { life, usageId, model, agentKind, quarter } = row;
		const key = JSON.stringify([life, usageId, model, agentKind, String(quarter)]);
		const known = byKey.get(key);
		byKey.set(key, known === undefined ? row : { ...row, ...addAmounts(known, row) });
	}
	return [...byKey.values()].filter((row) => AMOUNTS.some((name) => row[name] !== 0n));
}
