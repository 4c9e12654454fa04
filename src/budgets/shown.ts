import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type BudgetSchema, BudgetState } from "../../gen/conversations/v1/budget_service_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Store } from "../store/store.ts";
import { settingsOf } from "./budgets.ts";
import {
	foundBy,
	isReached,
	limitOf,
	notReportedOf,
	ruleOf,
	type Settings,
	type Span,
	spanAt,
	spentOf,
	type UsageReads,
} from "./spending.ts";

const SPENDERS = 5;
/** Number of conversations of which those with the most tokens are chosen. */
const CANDIDATES = 1_000;
/** Least milliseconds by which a rate is judged. */
const MIN_ELAPSED = 900_000;

/**
 * Returns what callers see of a budget.
 *
 * @param withSpenders whether the conversations that spent the most are found, too
 * @param now milliseconds since the Unix epoch
 */
export async function shownBudget(
	store: Pick<Store, "listConversations" | "tables">,
	reads: UsageReads,
	row: BudgetRow,
	withSpenders: boolean,
	now: number,
): Promise<MessageInitShape<typeof BudgetSchema>> {
	const settings = settingsOf(row);
	const { name, owner, createdBy } = row;
	const made = { name, owner, createdAt: fromMicroseconds(row.createdAt), createdBy };
	const rule = ruleOf(settings);
	if (rule !== undefined) {
		const { length } = await foundBy(store, settings, rule, now);
		return { ...settings, ...made, spent: length, state: length > 0 ? BudgetState.EXCEEDED : BudgetState.OK };
	}
	const span = spanAt(settings, now);
	const within = { from: span?.start, to: span?.end };
	const { eachConversation } = settings;
	const spenders =
		withSpenders || eachConversation
			? await spentOf(reads, settings, { ...within, byConversation: true, top: CANDIDATES })
			: [];
	const largest = spenders.toSorted((a, b) => b.spent - a.spent);
	const all = eachConversation ? largest : await spentOf(reads, settings, { ...within, byConversation: false });
	const spent = all[0]?.spent ?? 0;
	return {
		...settings,
		...made,
		...{ spent, state: stateOf(settings, spent), conversationsNotReported: await notReportedOf(reads, settings, span) },
		...(span === undefined
			? {}
			: {
					forecast: forecastOf(spent, span, now),
					periodStart: timestampFromMs(span.start),
					periodEnd: timestampFromMs(span.end),
				}),
		spenders: largest.slice(0, SPENDERS).map(({ conversationId, spent: of }) => ({ conversationId, spent: of })),
	};
}

/** Returns what will be spent at the end of a period at the rate since its start. */
export function forecastOf(spent: number, { start, end }: NonNullable<Span>, now: number): number {
	return (spent * (end - start)) / Math.min(end - start, Math.max(now - start, MIN_ELAPSED));
}

function stateOf(settings: Settings, spent: number): BudgetState {
	const limit = limitOf(settings);
	if (isReached(spent, limit, 1)) return BudgetState.EXCEEDED;
	const [smallest = 1] = settings.thresholds;
	return isReached(spent, limit, smallest) ? BudgetState.WARNING : BudgetState.OK;
}

/** Number of budgets whose shares are told, those with the largest ones. */
const MAX_SHARES = 64;
/** Least milliseconds between two readings. */
const INTERVAL = 60_000;
/** A reading is followed by a pause of this multiple of its duration, so that it takes a small part of the machine. */
const PAUSE_FACTOR = 10;

/**
 * Returns a function that reads the largest shares of budgets with an amount, for metrics: 1 for all of it. They are as
 * they were at most some minutes ago.
 *
 * @param now returns milliseconds since the Unix epoch
 */
export function budgetShares(store: Pick<Store, "listConversations" | "tables">, reads: UsageReads, now: () => number) {
	let last: ReturnType<typeof read> | undefined;
	let next = 0;
	return async () => {
		if (last === undefined || now() >= next) {
			next = Number.POSITIVE_INFINITY;
			const began = performance.now();
			last = read().finally(() => {
				next = now() + Math.max(INTERVAL, (performance.now() - began) * PAUSE_FACTOR);
			});
			last.catch(() => {
				last = undefined;
			});
		}
		return await last;
	};

	async function read() {
		const rows = await store.tables.read.listBudgets({ owner: undefined });
		const shares: { readonly name: string; readonly owner: string; readonly share: number }[] = [];
		for (const row of rows) {
			const settings = settingsOf(row);
			if (ruleOf(settings) !== undefined) continue;
			const { spent = 0 } = await shownBudget(store, reads, row, false, now());
			// Costs are whole numbers of 10^-9.
			const share = Math.round(spent * 1e9) / Math.round(limitOf(settings) * 1e9);
			shares.push({ name: row.name, owner: row.owner, share });
		}
		return shares.toSorted((a, b) => b.share - a.share).slice(0, MAX_SHARES);
	}
}
