import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type BudgetSchema, BudgetState } from "../../gen/conversations/v1/budget_service_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { BudgetRow } from "../store/budgets.ts";
import type { Store } from "../store/store.ts";
import { settingsOf } from "./budgets.ts";
import { foundBy, ruleOf } from "./rules.ts";
import {
	isReached,
	limitOf,
	type Settings,
	type Span,
	type Spent,
	spanAt,
	spentOf,
	type UsageReads,
} from "./spending.ts";

/** Number of conversations that are shown. */
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
	const made = {
		...{ name: row.name, owner: row.owner, createdAt: fromMicroseconds(row.createdAt), createdBy: row.createdBy },
	};
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
			? largest(await spentOf(reads, settings, { ...within, byConversation: true, top: CANDIDATES }))
			: [];
	const all = eachConversation ? spenders : await spentOf(reads, settings, { ...within, byConversation: false });
	const spent = all[0]?.spent ?? 0;
	return {
		...settings,
		...made,
		...{ spent, state: stateOf(settings, spent) },
		...(span === undefined
			? {}
			: {
					forecast: forecastOf(spent, span, now),
					periodStart: timestampFromMs(span.start),
					periodEnd: timestampFromMs(span.end),
				}),
		spenders: spenders.slice(0, SPENDERS).map(({ conversationId, spent: of }) => ({ conversationId, spent: of })),
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

function largest(spent: readonly Spent[]): readonly Spent[] {
	return spent.toSorted((a, b) => b.spent - a.spent);
}
