import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { signal } from "@preact/signals";
import {
	type ScoreRow,
	type ScoreTotals,
	ScoreTotalsSchema,
} from "../../../../gen/conversations/v1/score_service_pb.js";
import { dayText, type Range, rangeOf, startOfDay } from "../../parts/days.ts";
import type { Series } from "../../parts/drawn-chart.tsx";
import { THUMBS } from "../../parts/score.tsx";
import { problemOf, scores } from "../../service/service.ts";
import { filterOf } from "../conversations/filter.ts";
import { Report } from "../usage/report.tsx";

const FIRST_RANGE = "last_30_days";
/** What scores are grouped by, besides the tags of a key. */
export const GROUPS: ReadonlyMap<string, string> = new Map([
	["model", "model"],
	["agent_kind", "agent kind"],
	["sender", "sender"],
	["owner", "owner"],
	["day", "day"],
]);
/** Number of groups, or of categories, with a color of their own. */
const TOP = 7;
export const REST = "others";
/** Days of a chart at most. */
const MOST_DAYS = 10_000;
const HOUR = 3_600_000;
/** Parameters of the address that are no filter. */
export const OWN_PARAMETERS: readonly string[] = ["name", "range", "group_by", "measure", "zone"];

/** A report as the page shows it. */
interface Loaded {
	/** By falling count; by day if they are days. */
	readonly rows: readonly ScoreRow[];
	readonly total: ScoreTotals;
	/** What the chart shows; undefined if there are more groups and days than the service reports. */
	readonly chart: ScoreChart | undefined;
}

interface ScoreChart {
	readonly kind: "bars" | "lines";
	/** What the values are: parts of the whole, means, or numbers of scores. */
	readonly of: "share" | "mean" | "count";
	/** Whether the series are categories, and not groups. */
	readonly isByCategory: boolean;
	/** Starts of the days in seconds of Unix time. */
	readonly times: readonly number[];
	/** The groups with the most scores, or the categories. */
	readonly series: readonly Series[];
}

/** The report of an address. */
export class ScoreReport extends Report {
	readonly loaded = signal<Loaded | undefined>(undefined);
	readonly name: string;
	readonly range: string;
	readonly groupBy: string;
	readonly measure: "value" | "count";

	constructor(query: URLSearchParams) {
		super(query, OWN_PARAMETERS);
		this.name = query.get("name") ?? THUMBS;
		const range = query.get("range") ?? "";
		this.range = rangeOf(range) === undefined ? FIRST_RANGE : range;
		this.groupBy = query.get("group_by") ?? "model";
		this.measure = query.get("measure") === "count" ? "count" : "value";
		this.load();
	}

	async download(): Promise<void> {
		const { from, to } = this.#range();
		const asked = {
			name: this.name,
			...(from && { from: from.toISOString() }),
			...(to && { to: to.toISOString() }),
			group_by: this.groupBy,
		};
		await this.save("api/v1/scores/report", asked, `scores-${this.name}-by-${this.groupBy}`);
	}

	#range(): Range {
		return rangeOf(this.range) ?? { from: undefined, to: undefined };
	}

	protected async read(): Promise<() => void> {
		const range = this.#range();
		const { from, to } = range;
		const asked = {
			name: this.name,
			...(from && { from: timestampFromDate(from) }),
			...(to && { to: timestampFromDate(to) }),
			filter: filterOf(this.query, Date.now()),
		};
		const { groupBy } = this;
		const [whole, days] = await Promise.all([
			scores.reportScores({ ...asked, groupBy: [groupBy] }),
			scores.reportScores({ ...asked, groupBy: groupBy === "day" ? ["day"] : ["day", groupBy] }).catch(unlessTooMany),
		]);
		const total = whole.total ?? create(ScoreTotalsSchema);
		const names = groupBy === "day" ? [undefined] : whole.rows.slice(0, TOP).map(({ group: [name = ""] }) => name);
		const chart = days && chartOf(days.rows, { names, total, range, measure: this.measure });
		return () => {
			this.loaded.value = { rows: whole.rows, total, chart };
		};
	}
}

/** Returns nothing for a report with more rows than the service returns. */
function unlessTooMany(error: unknown): undefined {
	if (problemOf(error).kind !== "argument") throw error;
}

interface Charted {
	/** Names of the groups; undefined stands for all scores. */
	readonly names: readonly (string | undefined)[];
	readonly total: ScoreTotals;
	readonly range: Range;
	readonly measure: "value" | "count";
}

/** @param rows by day, and by group */
function chartOf(rows: readonly ScoreRow[], { names, total, range, measure }: Charted): ScoreChart {
	const days = daysOf(
		rows.map(({ group: [day = ""] }) => day),
		range,
	);
	const times = days.map((day) => (startOfDay(day)?.getTime() ?? 0) / 1000);
	const color = (index: number): string => `--series-${index + 1}`;
	const { categories } = total;
	const byDay = Map.groupBy(rows, ({ group: [day = ""] }) => day);
	if (measure === "value" && meanOf(total) === undefined) {
		const all = categoriesOf(categories).map(([category]) => category);
		const count = (day: string, of: readonly string[]): number =>
			(byDay.get(day) ?? [])
				.flatMap(({ scores: one }) => categoriesOf(one?.categories ?? {}))
				.reduce((sum, [category, value]) => sum + (of.includes(category) ? value : 0), 0);
		const series: Series[] = all.slice(0, TOP).map((category, index) => ({
			label: category,
			color: color(index),
			values: days.map((day) => count(day, [category])),
		}));
		const rest = all.slice(TOP);
		if (rest.length > 0)
			series.push({ label: REST, color: "--series-rest", values: days.map((day) => count(day, rest)) });
		return { kind: "bars", of: "count", isByCategory: true, times, series };
	}
	const isCount = measure === "count";
	const series = names.map((name, index) => ({
		label: name ?? "",
		color: color(index),
		values: days.map((day) => {
			const row = byDay.get(day)?.find(({ group: [, group] }) => name === undefined || group === name)?.scores;
			return isCount ? Number(row?.count ?? 0n) : ((row && meanOf(row)) ?? null);
		}),
	}));
	return {
		isByCategory: false,
		kind: isCount ? "bars" : "lines",
		of: isCount ? "count" : total.mean === undefined ? "share" : "mean",
		times,
		series,
	};
}

/** Returns the mean, or else the share of true; undefined for categories. */
function meanOf({ mean, shareTrue }: ScoreTotals): number | undefined {
	return mean ?? shareTrue;
}

/** Returns the numbers of the scores of each category, the most frequent first. */
export function categoriesOf(categories: ScoreTotals["categories"]): readonly (readonly [string, number])[] {
	return Object.entries(categories)
		.map(([category, count]) => [category, Number(count)] as const)
		.sort(([a, first], [b, second]) => second - first || (a < b ? -1 : 1));
}

/** Returns all days from the start of a range, or the first one, to the last one, also those without scores. */
function daysOf(present: readonly string[], { from }: Range): readonly string[] {
	const [first = "", last = first] = [present.at(0), present.at(-1)];
	const days = from !== undefined && dayText(from) < first ? [dayText(from)] : [first];
	while ((days.at(-1) ?? "") < last && days.length < MOST_DAYS) {
		// The middle of the next day, also where the clock changes.
		const next = (startOfDay(days.at(-1) ?? "")?.getTime() ?? 0) + 36 * HOUR;
		days.push(dayText(new Date(next)));
	}
	return days;
}
