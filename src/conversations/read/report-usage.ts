import { create } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import {
	type ReportUsageRequest,
	type ReportUsageResponse,
	ReportUsageResponseSchema,
	UsageStep,
	type UsageTotals,
	UsageTotalsSchema,
} from "../../../gen/conversations/v1/conversation_report_service_pb.js";
import { TokenTotalsSchema } from "../../../gen/conversations/v1/summary_pb.js";
import { invalid, ServiceError } from "../../errors.ts";
import { fromMicroseconds } from "../../record/json/scalars.ts";
import { COST_UNITS } from "../../record/stats.ts";
import type { Condition } from "../../store/condition.ts";
import type { Store } from "../../store/store.ts";
import { USED_LENGTHS, type UsageGroup, type UsageQuery } from "../../store/usage-report.ts";
import { max, min } from "../../store/values.ts";
import { type Amounts, isLimited, sumOf } from "../../usage/amounts.ts";
import { quarterOf } from "../../usage/ledger.ts";
import { type Period, periodsOf, type Span, type Step, timeZone } from "../../usage/periods.ts";
import { conditionsOf, timeBound, wellFormed } from "./filter.ts";

/** Maximum number of rows of a report, and of its periods. */
export const MAX_ROWS = 10_000;
/** Maximum number of groups in a report. */
export const MAX_GROUPS = 4;
/** Maximum number of groups that a report shows one by one. */
export const MAX_TOP = 1_000;
const MICROSECONDS = 1_000n;
/** Start of the year 1 in milliseconds of Unix time, before which no timestamp can be. A time zone's first day begins earlier. */
const FIRST_TIME = -62_135_596_800_000;

const STEPS: Readonly<Record<UsageStep, Step>> = {
	[UsageStep.UNSPECIFIED]: "none",
	[UsageStep.NONE]: "none",
	[UsageStep.HOUR]: "hour",
	[UsageStep.DAY]: "day",
	[UsageStep.WEEK]: "week",
	[UsageStep.MONTH]: "month",
};
/** What a report can be grouped by, besides the tags of a key. */
export const GROUPS = ["model", "usage_id", "agent_kind", "sender", "owner", "conversation", "root"] as const;

/** A request in the form of the RPC. */
type UsageRequest = Pick<ReportUsageRequest, "from" | "to" | "step" | "timeZone" | "groupBy" | "filter" | "top">;

type RangeOfConversations = Pick<UsageRequest, "from" | "to" | "filter">;
type UsageReportStore = Pick<Store, "reportUsage" | "getUsageRange" | "listUsedPeriods" | "countConversations">;

/** Sums up the cost, tokens and calls of models over time. */
export class ReportUsage {
	readonly #store: UsageReportStore;

	constructor(store: UsageReportStore) {
		this.#store = store;
	}

	/**
	 * Returns a report.
	 *
	 * @throws ServiceError `invalid_argument` that names the field, or says how to ask for fewer rows
	 */
	async report(request: UsageRequest): Promise<ReportUsageResponse> {
		const sums = await this.sums(request);
		const [conversationsWithoutCost, conversationsWithoutTokens] = await Promise.all([
			this.countWithout("cost", request),
			this.countWithout("tokens", request),
		]);
		return create(ReportUsageResponseSchema, { ...sums, conversationsWithoutCost, conversationsWithoutTokens });
	}

	/**
	 * Counts the conversations in a range that meet the filter and have no cost, or no tokens, reported. One is in the range
	 * if it was created before the end and its last activity is not before the start.
	 *
	 * @throws ServiceError `invalid_argument` that names the field
	 */
	async countWithout(of: "cost" | "tokens", request: RangeOfConversations): Promise<bigint> {
		const [from, to] = [bound(request.from, "from"), bound(request.to, "to")];
		const conditions: Condition[] = [
			...conditionsOf(request.filter),
			...(from === undefined ? [] : [{ kind: "time", field: "activityAt", from } as const]),
			...(to === undefined ? [] : [{ kind: "time", field: "createdAt", to } as const]),
			{ kind: "not_reported", of },
		];
		return BigInt((await this.#store.countConversations({ conditions, group: undefined, limit: 1 })).total);
	}

	/**
	 * Returns the rows of a report, and their sum.
	 *
	 * @throws ServiceError as {@link report} does
	 */
	async sums(request: UsageRequest): Promise<Pick<ReportUsageResponse, "rows" | "total">> {
		const { top } = request;
		if (top < 0 || top > MAX_TOP) throw invalid("top", `must be from 0 to ${MAX_TOP}`);
		const step = STEPS[request.step];
		if (step === undefined) throw invalid("step", "is not a known step");
		const groups: readonly UsageGroup[] = groupsOf(request.groupBy, GROUPS);
		const conditions = conditionsOf(request.filter);
		const periods = await this.#periods(request, step);
		const query: UsageQuery = {
			periods: periods.map(({ first, beyond }) => ({ first: BigInt(first), beyond: BigInt(beyond) })),
			groups,
			conditions,
			top,
			limit: MAX_ROWS,
		};
		const { rows, conversations } = await this.#store.reportUsage(query);
		if (rows.length > MAX_ROWS)
			throw tooMany("rows: ask for a shorter range, a longer step, fewer groups, or the largest ones with top");
		return create(ReportUsageResponseSchema, {
			rows: rows.map(({ period, group, isRest, amounts, conversations: of }) => {
				const start = periods[period]?.start;
				const time = start === undefined ? undefined : BigInt(Math.max(start, FIRST_TIME)) * MICROSECONDS;
				return {
					...(time === undefined ? {} : { start: fromMicroseconds(time) }),
					...{ group: isRest ? groups.map(() => "") : [...group], isRest, usage: totalsOf(amounts, of) },
				};
			}),
			total: totalsOf(sumOf(rows.map(({ amounts }) => amounts)), conversations),
		});
	}

	/** Returns the periods of a report. Without bounds, they are those in which there is usage. */
	async #periods(request: UsageRequest, step: Step): Promise<readonly Period[]> {
		const offsetAt = timeZone(request.timeZone);
		if (offsetAt === undefined) throw invalid("time_zone", "is not a name of the IANA time zone database");
		const [from, to] = [bound(request.from, "from"), bound(request.to, "to")];
		if (from !== undefined && to !== undefined && from > to) throw invalid("to", "must not be before from");
		const known = await this.#store.getUsageRange();
		if (known === undefined) return [];
		const first = from === undefined ? known.first : max(quarterOf(from), known.first);
		const beyond = to === undefined ? known.beyond : min(-quarterOf(-to), known.beyond);
		const range = { first: Number(first), beyond: Number(beyond) };
		const periods =
			periodsOf(step, offsetAt, [range], MAX_ROWS) ??
			periodsOf(step, offsetAt, await this.#used(range, step === "hour" ? "hour" : "day"), MAX_ROWS);
		if (periods === undefined) throw tooMany("periods with usage: ask for a shorter range, or a longer step");
		return periods;
	}

	/** Returns the hours or days (UTC) of a range that have usage: the first ones, one more than a report can have rows. */
	async #used({ first, beyond }: Span, unit: keyof typeof USED_LENGTHS): Promise<readonly Span[]> {
		const length = Number(USED_LENGTHS[unit]);
		const starts = await this.#store.listUsedPeriods({
			...{ length: USED_LENGTHS[unit], limit: MAX_ROWS + 1 },
			...{ first: BigInt(Math.floor(first / length) * length), beyond: BigInt(beyond) },
		});
		return starts
			.map(Number)
			.map((start) => ({ first: Math.max(first, start), beyond: Math.min(beyond, start + length) }));
	}
}

function bound(time: Timestamp | undefined, field: string): bigint | undefined {
	return time && timeBound(time, field);
}

/**
 * Returns the groups of a report.
 *
 * @param kinds what it can be grouped by, besides the tags of a key
 */
export function groupsOf<Kind extends string>(
	names: readonly string[],
	kinds: readonly Kind[],
): ({ readonly kind: Kind } | { readonly kind: "tag"; readonly key: string })[] {
	if (names.length > MAX_GROUPS) throw invalid("group_by", `must have at most ${MAX_GROUPS} entries`);
	if (new Set(names).size < names.length) throw invalid("group_by", "has an entry twice");
	return names.map((name) => {
		const kind = kinds.find((group) => group === name);
		if (kind !== undefined) return { kind };
		if (name.startsWith("tag:") && name.length > 4) return { kind: "tag", key: wellFormed(name.slice(4), "group_by") };
		throw invalid("group_by", `must be one of ${kinds.join(", ")} or tag:KEY`);
	});
}

function totalsOf(amounts: Amounts, conversations: number): UsageTotals {
	const { promptTokens, completionTokens, cacheReadTokens, cacheWriteTokens, reasoningTokens } = amounts;
	return create(UsageTotalsSchema, {
		cost: Number(amounts.cost) / COST_UNITS,
		tokens: create(TokenTotalsSchema, {
			promptTokens,
			completionTokens,
			cacheReadTokens,
			cacheWriteTokens,
			reasoningTokens,
		}),
		calls: amounts.calls,
		conversations: BigInt(conversations),
		limited: isLimited(amounts),
	});
}

/** @param what of which there are too many, and what helps */
export function tooMany(what: string): ServiceError {
	return new ServiceError("invalid_argument", `the report has more than ${MAX_ROWS} ${what}`);
}
