import { create } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { type Budget, BudgetPeriod } from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import {
	ReportUsageRequestSchema,
	UsageStep,
	type UsageTotals,
} from "../../gen/conversations/v1/conversation_report_service_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { conditionsOf } from "../conversations/read/filter.ts";
import { decodeSummary } from "../conversations/read/records.ts";
import type { ReportUsage } from "../conversations/read/report-usage.ts";
import { type Condition, microsecondsOf } from "../store/condition.ts";
import type { Store } from "../store/store.ts";
import { nameOf } from "../usage/names.ts";
import { periodAt, timeZone } from "../usage/periods.ts";

/** The fields of which one says what a rule is about. */
export const RULES = ["silentMinutes", "waitingMinutes", "gapMinutes", "stalledEvents", "stuck"] as const;

/** The fields of a budget that a caller decides. */
export const FIELDS = [
	...(["amount", "tokens", "period", "timeZone", "filter", "model", "usageId", "thresholds"] as const),
	...(["eachConversation", "pause"] as const),
	...RULES,
] as const satisfies readonly (keyof Budget)[];
export type Field = (typeof FIELDS)[number];

/** What a caller decides about a budget, with its owner. */
export type Settings = Pick<Budget, "owner" | Field>;

/** Reports of usage, limited to what a caller may see. */
export interface UsageReads {
	readonly of: (caller: { readonly owner: string | undefined }) => {
		readonly usage: Pick<ReportUsage, "sums" | "countWithout">;
	};
}

/** A period of a budget, in milliseconds since the Unix epoch. Undefined for the life of conversations. */
export type Span = { readonly start: number; readonly end: number } | undefined;

/** What was spent in a period, by a conversation or by all. */
export interface Spent {
	/** Start of the period; undefined for the life of conversations. */
	readonly start: number | undefined;
	/** Empty for all, and for conversations that were erased. */
	readonly conversationId: string;
	readonly spent: number;
}

interface SpentQuery {
	/** Milliseconds since the Unix epoch. Undefined: without a bound. */
	readonly from: number | undefined;
	readonly to: number | undefined;
	readonly byConversation: boolean;
	/** Only these conversations; undefined for all. */
	readonly ids?: readonly string[];
	/** Number of conversations, those with the largest cost; 0 for all. */
	readonly top?: number;
}

const STEPS: ReadonlyMap<BudgetPeriod, keyof typeof USAGE_STEPS> = new Map([
	[BudgetPeriod.DAY, "day"],
	[BudgetPeriod.WEEK, "week"],
	[BudgetPeriod.MONTH, "month"],
]);
const USAGE_STEPS = { day: UsageStep.DAY, week: UsageStep.WEEK, month: UsageStep.MONTH } as const;

/** Returns the step of the periods of a budget; undefined for the life of conversations. */
export function stepOf({ period }: Pick<Settings, "period">) {
	return STEPS.get(period);
}

/** Returns the period of a budget that has a time. */
export function spanAt(settings: Pick<Settings, "period" | "timeZone">, time: number): Span {
	const step = stepOf(settings);
	const offsetAt = timeZone(settings.timeZone);
	return step === undefined || offsetAt === undefined ? undefined : periodAt(step, time, offsetAt);
}

/** Returns the amount of a budget: a cost or a number of tokens. */
export function limitOf({ amount, tokens }: Pick<Settings, "amount" | "tokens">): number {
	return amount ?? Number(tokens ?? 0n);
}

/** Whether a part of an amount is spent. Costs are whole numbers of 10^-9. */
export function isReached(spent: number, limit: number, threshold: number): boolean {
	return Math.round(spent * 1e9) >= Math.round(limit * threshold * 1e9);
}

/** Returns what was spent in each period that has usage: the numbers of `ReportUsage` for the same range and filter. */
export async function spentOf(
	reads: UsageReads,
	settings: Settings,
	{ from, to, byConversation, ids, top = 0 }: SpentQuery,
): Promise<readonly Spent[]> {
	const { owner, timeZone: zone, filter, model, usageId, tokens } = settings;
	const base = filter ?? create(ConversationFilterSchema);
	const of: ConversationFilter | undefined = ids === undefined ? filter : { ...base, ids: common(ids, base.ids) };
	if (ids !== undefined && of?.ids.length === 0) return [];
	const step = stepOf(settings);
	const groupBy = [
		...(byConversation ? ["conversation"] : []),
		...(model === "" ? [] : ["model"]),
		...(usageId === "" ? [] : ["usage_id"]),
	];
	const request = create(ReportUsageRequestSchema, {
		...(from === undefined ? {} : { from: timestampFromMs(from) }),
		...(to === undefined ? {} : { to: timestampFromMs(to) }),
		...{ step: step === undefined ? UsageStep.NONE : USAGE_STEPS[step], timeZone: zone, groupBy, top },
		...(of === undefined ? {} : { filter: of }),
	});
	const wanted = [...(model === "" ? [] : [nameOf(model)]), ...(usageId === "" ? [] : [nameOf(usageId)])];
	const { rows } = await reads.of({ owner: owner === "" ? undefined : owner }).usage.sums(request);
	return rows.flatMap(({ start, group, isRest, usage }) => {
		const [conversationId = "", ...others] = byConversation ? group : ["", ...group];
		if (isRest || others.some((name, n) => name !== wanted[n])) return [];
		const spent = amountOf(usage, tokens !== undefined);
		return [{ start: start === undefined ? undefined : timestampMs(start), conversationId, spent }];
	});
}

/** Returns the number of conversations in a period that report nothing of what a budget counts. */
export async function notReportedOf(reads: UsageReads, settings: Settings, span: Span): Promise<bigint> {
	const { owner, filter, tokens } = settings;
	const { usage } = reads.of({ owner: owner === "" ? undefined : owner });
	return await usage.countWithout(tokens === undefined ? "cost" : "tokens", {
		...(span === undefined ? {} : { from: timestampFromMs(span.start), to: timestampFromMs(span.end) }),
		...(filter === undefined ? {} : { filter }),
	});
}

function amountOf(usage: UsageTotals | undefined, countsTokens: boolean): number {
	if (!countsTokens) return usage?.cost ?? 0;
	return Number((usage?.tokens?.promptTokens ?? 0n) + (usage?.tokens?.completionTokens ?? 0n));
}

function common(ids: readonly string[], others: readonly string[]): string[] {
	const also = new Set(others);
	return ids.filter((id) => also.size === 0 || also.has(id));
}

/** Rules: what is told of a conversation without an amount. */

export type Rule = (typeof RULES)[number];

const MAX_FOUND = 1_000;
const MICROSECONDS_PER_MINUTE = 60_000_000;

export interface Found {
	readonly conversationId: string;
	/** The same while it goes on. */
	readonly occasion: string;
	/** What a chat is told: the end of a sentence about the conversation. */
	readonly text: string;
}

type RulesStore = Pick<Store, "listConversations" | "tables">;

/** Returns what a rule is about; undefined for a budget with an amount. */
export function ruleOf(settings: Settings): Rule | undefined {
	return RULES.find((rule) => settings[rule] !== undefined);
}

/**
 * Returns the conversations to which a rule applies.
 *
 * @param now milliseconds since the Unix epoch
 */
export async function foundBy(
	store: RulesStore,
	settings: Settings,
	rule: Rule,
	now: number,
): Promise<readonly Found[]> {
	const { owner, filter, silentMinutes = 0, waitingMinutes = 0, gapMinutes = 0, stalledEvents = 0n } = settings;
	const list = async (...more: readonly Condition[]) => {
		const ofOwner: Condition[] = owner === "" ? [] : [{ kind: "equal", field: "owner", value: owner }];
		const conditions = [...ofOwner, ...conditionsOf(filter), ...more];
		const found = await store.listConversations({ conditions, limit: MAX_FOUND, withRecords: false });
		return found.map(({ conversationId, summary }) => ({ conversationId, summary: decodeSummary(summary) }));
	};
	const status = (value: ConversationExecutionStatus): Condition => ({
		kind: "equal",
		field: "executionStatus",
		value,
	});
	const before = (minutes: number) => BigInt(Math.round(now * 1000 - minutes * MICROSECONDS_PER_MINUTE));
	const quietSince = (minutes: number): Condition => ({ kind: "time", field: "activityAt", to: before(minutes) });
	const told = (text: string, occasionOf: (summary: ConversationSummary) => bigint | undefined) => {
		return ({ conversationId, summary }: { conversationId: string; summary: ConversationSummary }): Found => {
			return { conversationId, text, occasion: String(occasionOf(summary) ?? "") };
		};
	};
	const lastActivity = ({ lastActivityAt, updatedAt }: ConversationSummary) =>
		microsecondsOf(lastActivityAt ?? updatedAt);
	switch (rule) {
		case "silentMinutes":
			return (await list(status(ConversationExecutionStatus.RUNNING), quietSince(silentMinutes))).map(
				told(`runs, and has been silent for more than ${silentMinutes} minutes`, lastActivity),
			);
		case "waitingMinutes":
			return (await list(status(ConversationExecutionStatus.WAITING_FOR_CONFIRMATION), quietSince(waitingMinutes))).map(
				told(`has waited for more than ${waitingMinutes} minutes`, lastActivity),
			);
		case "gapMinutes":
			return (await list({ kind: "gaps", value: true, before: before(gapMinutes) })).map(
				told(`has missed something for more than ${gapMinutes} minutes`, ({ gaps }) => microsecondsOf(gaps?.since)),
			);
		case "stuck":
			return (await list(status(ConversationExecutionStatus.STUCK))).map(
				told("is stuck", ({ runStartedAt }) => microsecondsOf(runStartedAt)),
			);
		case "stalledEvents": {
			const running = await list(status(ConversationExecutionStatus.RUNNING));
			const ids = running.map(({ conversationId }) => conversationId);
			const stalled = await store.tables.read.listStalled({ ids, events: Number(stalledEvents) });
			const text = `runs, and had more than ${stalledEvents} events without a new leaf`;
			return stalled.map(({ conversationId, leaf }) => ({ conversationId, text, occasion: leaf }));
		}
	}
}
