import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { signal } from "@preact/signals";
import {
	type ReportUsageResponse,
	UsageStep,
	type UsageTotals,
	UsageTotalsSchema,
} from "../../../../gen/conversations/v1/conversation_report_service_pb.js";
import { periodsOf, timeZone } from "../../../../src/usage/periods.ts";
import type { Series } from "../../parts/chart.tsx";
import { startOfDay } from "../../parts/days.ts";
import type { ChartStep } from "../../parts/time-names.ts";
import { BASE_URL, KEY_REFUSED, type Problem, problemOf, reports } from "../../service/service.ts";
import { accessKey, signOut } from "../../service/session.ts";
import { apiParametersOf, filterOf } from "../conversations/filter.ts";

export const RANGES: ReadonlyMap<string, string> = new Map([
	["1", "today"],
	["7", "7 days"],
	["14", "14 days"],
	["30", "30 days"],
	["month", "this month"],
	["last_month", "last month"],
	["90", "90 days"],
	["365", "a year"],
	["days", "chosen days"],
]);
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
const REST = "others";
/** Number of periods that the service limits a report to. */
const MOST_PERIODS = 10_000;
/** Milliseconds of the quarters of an hour in which the service keeps usage. */
const QUARTER = 900_000;
/** Parameters of the address that are no filter. */
export const OWN_PARAMETERS: readonly string[] = ["range", "from", "to", "step", "group_by", "measure"];

/** A group of the report, over the whole range. */
interface Group {
	readonly key: string;
	readonly name: string;
	readonly color: string;
	readonly usage: UsageTotals;
}

/** A report as the page shows it. */
interface Loaded {
	readonly groups: readonly Group[];
	readonly total: UsageTotals;
	/** Starts of all periods of the range in seconds of Unix time, also of those without usage. */
	readonly times: readonly number[];
	/** The chosen measure of each group, for each period. */
	readonly series: readonly Series[];
}

/** The report of an address. */
export class UsageReport {
	readonly loaded = signal<Loaded | undefined>(undefined);
	readonly problem = signal<Problem | undefined>(undefined);
	/** Keys of tags, by whose values usage can be grouped. */
	readonly tagKeys = signal<readonly string[]>([]);
	readonly range: string;
	readonly step: ChartStep;
	readonly groupBy: string;
	readonly measure: "cost" | "tokens";
	readonly #query: URLSearchParams;
	readonly #timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
	#closed = false;

	constructor(query: URLSearchParams) {
		this.#query = query;
		this.range = query.get("range") ?? "7";
		this.step = [...STEPS.keys()].find((step) => step === query.get("step")) ?? "day";
		this.groupBy = query.get("group_by") ?? "model";
		this.measure = query.get("measure") === "tokens" ? "tokens" : "cost";
		this.load();
	}

	load(): void {
		void this.#load().catch((error: unknown) => {
			const problem = problemOf(error);
			if (problem.kind === "key") signOut(KEY_REFUSED);
			if (!this.#closed) this.problem.value = problem;
		});
	}

	close(): void {
		this.#closed = true;
	}

	async #load(): Promise<void> {
		const { from, to } = this.days();
		const range = {
			from: timestampFromDate(from),
			...(to && { to: timestampFromDate(to) }),
			timeZone: this.#timeZone,
			groupBy: [this.groupBy],
			filter: filterOf(this.#query, Date.now()),
			top: TOP,
		};
		const [whole, periods, tags] = await Promise.all([
			reports.reportUsage(range),
			reports.reportUsage({ ...range, step: STEPS.get(this.step) ?? UsageStep.DAY }),
			reports.countConversations({ groupBy: "tag_key" }),
		]);
		if (this.#closed) return;
		this.problem.value = undefined;
		this.tagKeys.value = tags.counts.map(({ value }) => value);
		this.loaded.value = shown(whole, periods, this.#starts(), this.measure);
	}

	/** Returns the starts of all periods of the range in seconds, as the service computes them. */
	#starts(): readonly number[] {
		const offsetAt = timeZone(this.#timeZone) ?? (() => 0);
		const { from, to } = this.days();
		const range = {
			first: Math.floor(from.getTime() / QUARTER),
			beyond: Math.floor(Math.min(Date.now(), (to?.getTime() ?? Infinity) - 1) / QUARTER) + 1,
		};
		const periods = periodsOf(this.step, offsetAt, [range], MOST_PERIODS) ?? [];
		return periods.flatMap(({ start }) => (start === undefined ? [] : start / 1000));
	}

	/** Returns the start of the first day of the range and of the day after the last one, in the viewer's zone. */
	days(): { readonly from: Date; readonly to: Date | undefined } {
		const now = new Date();
		const [year, month, day] = [now.getFullYear(), now.getMonth(), now.getDate()];
		switch (this.range) {
			case "month":
				return { from: new Date(year, month, 1), to: undefined };
			case "last_month":
				return { from: new Date(year, month - 1, 1), to: new Date(year, month, 1) };
			case "days": {
				const from = startOfDay(this.#query.get("from") ?? "") ?? new Date(year, month, day - 6);
				const last = startOfDay(this.#query.get("to") ?? "");
				// A day that ends before the first one is no end.
				const to = last && last >= from ? new Date(last.getFullYear(), last.getMonth(), last.getDate() + 1) : undefined;
				return { from, to };
			}
			default:
				return { from: new Date(year, month, day - (Number(this.range) || 7) + 1), to: undefined };
		}
	}

	/** Downloads the rows of the report as CSV, as the service writes them. */
	async download(): Promise<void> {
		const { from, to } = this.days();
		const parameters = new URLSearchParams({
			from: from.toISOString(),
			...(to && { to: to.toISOString() }),
			step: this.step,
			time_zone: this.#timeZone,
			group_by: this.groupBy,
		});
		for (const [name, value] of apiParametersOf(this.#query, Date.now()))
			if (!OWN_PARAMETERS.includes(name)) parameters.append(name, value);
		const response = await fetch(`${BASE_URL}/api/v1/usage?${parameters}`, {
			headers: { Accept: "text/csv", ...(accessKey.value === undefined ? {} : { "X-Access-Token": accessKey.value }) },
		});
		if (!response.ok) {
			this.problem.value = { kind: "other", text: `The service answered with ${response.status}.` };
			return;
		}
		const link = document.createElement("a");
		link.href = URL.createObjectURL(await response.blob());
		link.download = `usage-by-${this.groupBy}-and-${this.step}.csv`;
		link.click();
		URL.revokeObjectURL(link.href);
	}
}

function shown(
	whole: ReportUsageResponse,
	periods: ReportUsageResponse,
	starts: readonly number[],
	measure: "cost" | "tokens",
): Loaded {
	// The rest comes last, also when it is larger than others, and takes no color of theirs.
	const rows = [...whole.rows].sort((a, b) => Number(a.isRest) - Number(b.isRest));
	const groups = rows.map(({ group, isRest, usage }, index) => ({
		key: keyOf(group, isRest),
		name: isRest ? REST : (group[0] ?? ""),
		color: isRest ? "--series-rest" : `--series-${(index % TOP) + 1}`,
		usage: usage ?? create(UsageTotalsSchema),
	}));
	// Usage of calls whose time is in the future comes after the last period so far.
	const later = periods.rows.flatMap(({ start }) => (start === undefined ? [] : seconds(start)));
	const times = [...new Set([...starts, ...later])].sort((a, b) => a - b);
	const indexes = new Map(times.map((time, index) => [time, index]));
	const values = new Map(groups.map(({ key }) => [key, times.map(() => 0)]));
	for (const { start, group, isRest, usage } of periods.rows) {
		const index = start && indexes.get(seconds(start));
		const of = values.get(keyOf(group, isRest));
		if (index === undefined || usage === undefined || of === undefined) continue;
		const tokens = Number((usage.tokens?.promptTokens ?? 0n) + (usage.tokens?.completionTokens ?? 0n));
		of[index] = measure === "cost" ? usage.cost : tokens;
	}
	const series = groups.map(({ key, name, color }) => ({ label: name, color, values: values.get(key) ?? [] }));
	return { groups, total: whole.total ?? create(UsageTotalsSchema), times, series };
}

/** Returns a key that differs for all groups, also for one with the name of the rest. */
function keyOf(group: readonly string[], isRest: boolean): string {
	return isRest ? "rest" : `group ${group[0] ?? ""}`;
}

function seconds(time: NonNullable<ReportUsageResponse["rows"][number]["start"]>): number {
	return timestampDate(time).getTime() / 1000;
}
