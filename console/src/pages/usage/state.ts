import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { signal } from "@preact/signals";
import {
	type ReportUsageResponse,
	type UsageRow,
	UsageStep,
	type UsageTotals,
	UsageTotalsSchema,
} from "../../../../gen/conversations/v1/conversation_report_service_pb.js";
import type { TokenTotals } from "../../../../gen/conversations/v1/summary_pb.js";
import { sumOfCosts } from "../../../../src/record/stats.ts";
import { periodsOf, timeZone } from "../../../../src/usage/periods.ts";
import { BEFORE, type Range, rangeBefore, rangeOf, zoneName } from "../../parts/days.ts";
import type { Series } from "../../parts/drawn-chart.tsx";
import type { ChartStep } from "../../parts/time-names.ts";
import { conversations, reports } from "../../service/service.ts";
import { filterOf } from "../conversations/filter.ts";
import { labelOf } from "../conversations/state.ts";
import { Report } from "./report.tsx";

const FIRST_RANGE = "last_7_days";
export const STEPS: ReadonlyMap<ChartStep, UsageStep> = new Map([
	["hour", UsageStep.HOUR],
	["day", UsageStep.DAY],
	["week", UsageStep.WEEK],
	["month", UsageStep.MONTH],
]);
export const GROUPS: ReadonlyMap<string, string> = new Map([
	["model", "model"],
	["usage_id", "usage id"],
	["agent_kind", "agent kind"],
	["sender", "sender"],
	["owner", "owner"],
]);
/** Number of groups with a color of their own. */
const TOP = 7;
export const REST = "others";
/** Number of groups that two ranges are compared by at most, those with the largest cost. */
const MOST_GROUPS = 1_000;
/** Numbers of periods, and of rows, that the service limits a report to. */
const MOST_PERIODS = 10_000;
const MOST_ROWS = 10_000;
/** Number of conversations that are shown, those with the largest cost. */
const MOST_CONVERSATIONS = 20;
/** Milliseconds of the quarters of an hour in which the service keeps usage. */
const QUARTER = 900_000;
/** Parameters of the address that are no filter. */
const OWN_PARAMETERS: readonly string[] = ["range", "compare", "step", "group_by", "measure", "at", "of", "zone"];

/** A group of the report, over each of the ranges. */
export interface Group {
	readonly key: string;
	readonly name: string;
	readonly color: string;
	/** For each range; without usage in a range, zeros. */
	readonly usages: readonly UsageTotals[];
}

/** The usage of one of the ranges. */
export interface Shown {
	readonly range: Range;
	readonly total: UsageTotals;
	/** Number of conversations whose chosen measure was not reported. */
	readonly notReported: bigint;
	/** Starts of all periods of the range in seconds of Unix time, also of those without usage. */
	readonly times: readonly number[];
	/** The chosen measure of each group, for each period. */
	readonly series: readonly Series[];
}

/** A conversation with what it cost in a range or a period. */
export interface Spender {
	/** Empty for what was spent by erased conversations. */
	readonly id: string;
	/** Undefined for a conversation that is no longer there. */
	readonly label: string | undefined;
	readonly usage: UsageTotals;
}

/** A report as the page shows it. */
interface Loaded {
	readonly groups: readonly Group[];
	/** The range, and the one beside it if there is one. */
	readonly ranges: readonly Shown[];
	/** The dearest conversations of the chosen bar or of the range. */
	readonly spenders: readonly Spender[];
}

/** The report of an address. */
export class UsageReport extends Report {
	readonly loaded = signal<Loaded | undefined>(undefined);
	/** The range and the one beside it as the address has them; the second one is empty if there is none. */
	readonly range: string;
	readonly compare: string;
	readonly step: ChartStep;
	readonly groupBy: string;
	readonly measure: "cost" | "tokens";
	/** Start of the chosen bar in milliseconds, and its group; undefined if none is chosen. */
	readonly at: number | undefined;
	readonly of: string | undefined;
	readonly #timeZone = zoneName();

	constructor(query: URLSearchParams) {
		super(query, OWN_PARAMETERS);
		const range = query.get("range") ?? "";
		this.range = rangeOf(range) === undefined ? FIRST_RANGE : range;
		const compare = query.get("compare") ?? "";
		this.compare = compare === BEFORE || rangeOf(compare) !== undefined ? compare : "";
		this.step = [...STEPS.keys()].find((step) => step === query.get("step")) ?? "day";
		this.groupBy = query.get("group_by") ?? "model";
		this.measure = query.get("measure") === "tokens" ? "tokens" : "cost";
		const at = Date.parse(query.get("at") ?? "");
		this.at = Number.isNaN(at) ? undefined : at;
		this.of = query.get("of") ?? undefined;
		this.load();
	}

	/** Returns the range, and the one beside it if there is one. */
	ranges(): readonly Range[] {
		const now = new Date();
		const range = rangeOf(this.range, now) ?? { from: undefined, to: undefined };
		const beside = this.compare === BEFORE ? rangeBefore(range, now) : rangeOf(this.compare, now);
		return beside === undefined ? [range] : [range, beside];
	}

	protected async read(): Promise<() => void> {
		const ranges = this.ranges();
		const top = ranges.length === 1 ? TOP : MOST_GROUPS;
		const [answers, spenders] = await Promise.all([
			Promise.all(ranges.map((range) => this.#read(range, top))),
			this.#spenders(ranges[0]),
		]);
		return () => {
			this.loaded.value = { ...shown(answers, this.measure), spenders };
		};
	}

	async #read(range: Range, top: number): Promise<Answer> {
		const starts = this.#starts(range);
		const asked = { ...this.#asked(range), groupBy: [this.groupBy] };
		// As many groups in each period as the report may have rows.
		const inPeriods = Math.max(TOP, Math.min(top, Math.floor(MOST_ROWS / (starts.length + 1)) - 1));
		const [whole, periods] = await Promise.all([
			reports.reportUsage({ ...asked, top }),
			reports.reportUsage({ ...asked, step: STEPS.get(this.step) ?? UsageStep.DAY, top: inPeriods }),
		]);
		return { range, starts, whole, periods };
	}

	#asked({ from, to }: Range) {
		return {
			...(from && { from: timestampFromDate(from) }),
			...(to && { to: timestampFromDate(to) }),
			timeZone: this.#timeZone,
			filter: filterOf(this.query, Date.now()),
		};
	}

	/** Returns the range of the chosen bar; that of the report if none is chosen. */
	#chosen(range: Range): Range {
		const { at } = this;
		if (at === undefined) return range;
		const offsetAt = timeZone(this.#timeZone) ?? (() => 0);
		// The next period begins less than 32 days later, and is asked for to the quarter of an hour.
		const days = { first: at / QUARTER, beyond: at / QUARTER + 32 * 96 };
		const [, next] = periodsOf(this.step, offsetAt, [days], MOST_PERIODS) ?? [];
		const end = next?.start ?? Infinity;
		return {
			from: new Date(Math.max(at, range.from?.getTime() ?? at)),
			to: new Date(Math.min(end, range.to?.getTime() ?? end)),
		};
	}

	/** Returns the dearest conversations of the chosen bar, or of the range. */
	async #spenders(range: Range | undefined): Promise<readonly Spender[]> {
		if (range === undefined) return [];
		const { of } = this;
		const groupBy = of === undefined ? ["conversation"] : ["conversation", this.groupBy];
		const top = of === undefined ? MOST_CONVERSATIONS : MOST_GROUPS;
		const { rows } = await reports.reportUsage({ ...this.#asked(this.#chosen(range)), groupBy, top });
		const dearest = rows
			.filter(({ isRest, group }) => !isRest && (of === undefined || group[1] === of))
			.slice(0, MOST_CONVERSATIONS);
		const ids = dearest.flatMap(({ group }) => group[0] || []);
		const { conversations: found } =
			ids.length === 0
				? { conversations: [] }
				: await conversations.listConversations({ filter: { ids }, pageSize: 1_000 });
		const labels = new Map(found.flatMap(({ summary }) => (summary ? [[summary.id, labelOf(summary)] as const] : [])));
		return dearest.map(({ group: [id = ""], usage }) => ({
			id,
			label: labels.get(id),
			usage: usage ?? create(UsageTotalsSchema),
		}));
	}

	/** Returns the starts of all periods of a range in seconds, as the service computes them. */
	#starts({ from, to }: Range): readonly number[] {
		if (from === undefined) return [];
		const offsetAt = timeZone(this.#timeZone) ?? (() => 0);
		const range = {
			first: Math.floor(from.getTime() / QUARTER),
			beyond: Math.floor(Math.min(Date.now(), (to?.getTime() ?? Infinity) - 1) / QUARTER) + 1,
		};
		const periods = periodsOf(this.step, offsetAt, [range], MOST_PERIODS) ?? [];
		return periods.flatMap(({ start }) => (start === undefined ? [] : start / 1000));
	}

	async download(): Promise<void> {
		const [{ from, to } = { from: undefined, to: undefined }] = this.ranges();
		const asked = {
			...(from && { from: from.toISOString() }),
			...(to && { to: to.toISOString() }),
			step: this.step,
			time_zone: this.#timeZone,
			group_by: this.groupBy,
		};
		await this.save("api/v1/usage", asked, `usage-by-${this.groupBy}-and-${this.step}`);
	}
}

/** What the service answered for a range. */
interface Answer {
	readonly range: Range;
	readonly starts: readonly number[];
	readonly whole: ReportUsageResponse;
	readonly periods: ReportUsageResponse;
}

/** Returns the groups that the ranges show in common, and the usage of each range by them. */
function shown(reports: readonly Answer[], measure: "cost" | "tokens"): Omit<Loaded, "spenders"> {
	// The dearest of the first range, then those of the second one.
	const names = new Set<string>();
	for (const { whole } of reports)
		for (const { group, isRest } of whole.rows) if (!isRest && names.size < TOP) names.add(group[0] ?? "");
	const nameOf = ({ group, isRest }: UsageRow): string | undefined =>
		!isRest && names.has(group[0] ?? "") ? (group[0] ?? "") : undefined;
	const sumsOf = (name: string | undefined): UsageTotals[] =>
		reports.map(({ whole }) => sum(whole.rows.filter((row) => nameOf(row) === name)));
	const groups: Group[] = [...names].map((name, index) => ({
		key: `group ${name}`,
		name,
		color: `--series-${index + 1}`,
		usages: sumsOf(name),
	}));
	// The rest comes last, also when it is larger than others, and takes no color of theirs.
	if (reports.some(({ whole }) => whole.rows.some((row) => nameOf(row) === undefined)))
		groups.push({ key: "rest", name: REST, color: "--series-rest", usages: sumsOf(undefined) });
	const ranges = reports.map(({ range, starts, whole, periods }) => {
		// Usage of calls whose time is in the future comes after the last period so far.
		const later = periods.rows.flatMap(({ start }) => (start === undefined ? [] : seconds(start)));
		const times = [...new Set([...starts, ...later])].sort((a, b) => a - b);
		const indexes = new Map(times.map((time, index) => [time, index]));
		const values = new Map(groups.map(({ key }) => [key, times.map(() => 0)]));
		for (const row of periods.rows) {
			const index = row.start && indexes.get(seconds(row.start));
			const name = nameOf(row);
			const of = values.get(name === undefined ? "rest" : `group ${name}`);
			if (index === undefined || row.usage === undefined || of === undefined) continue;
			const before = of[index] ?? 0;
			of[index] = measure === "cost" ? sumOfCosts([before, row.usage.cost]) : before + tokensOf(row.usage);
		}
		const series = groups.map(({ key, name, color }) => ({ label: name, color, values: values.get(key) ?? [] }));
		const notReported = (measure === "cost" ? whole.conversationsWithoutCost : whole.conversationsWithoutTokens) ?? 0n;
		return { range, total: whole.total ?? create(UsageTotalsSchema), notReported, times, series };
	});
	return { groups, ranges };
}

/** Adds up usage. Conversations with usage in several rows count several times. */
function sum(rows: readonly UsageRow[]): UsageTotals {
	const all = rows.flatMap(({ usage }) => usage ?? []);
	const [only] = all;
	if (only !== undefined && all.length === 1) return only;
	const add = (of: (tokens: TokenTotals) => bigint): bigint =>
		all.reduce((total, { tokens }) => total + (tokens === undefined ? 0n : of(tokens)), 0n);
	return create(UsageTotalsSchema, {
		cost: sumOfCosts(all.map(({ cost }) => cost)),
		calls: all.reduce((total, { calls }) => total + calls, 0n),
		conversations: all.reduce((total, { conversations: of }) => total + of, 0n),
		limited: all.some(({ limited }) => limited),
		tokens: {
			promptTokens: add(({ promptTokens }) => promptTokens),
			completionTokens: add(({ completionTokens }) => completionTokens),
			cacheReadTokens: add(({ cacheReadTokens }) => cacheReadTokens),
			cacheWriteTokens: add(({ cacheWriteTokens }) => cacheWriteTokens),
			reasoningTokens: add(({ reasoningTokens }) => reasoningTokens),
		},
	});
}

/** Returns the tokens that a chart shows. */
export function tokensOf({ tokens }: UsageTotals): number {
	return Number((tokens?.promptTokens ?? 0n) + (tokens?.completionTokens ?? 0n));
}

function seconds(time: Timestamp): number {
	return timestampDate(time).getTime() / 1000;
}
