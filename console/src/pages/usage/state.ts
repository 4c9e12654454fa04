import { create } from "@bufbuild/protobuf";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { signal } from "@preact/signals";
import {
	type ReportUsageResponse,
	UsageStep,
	type UsageTotals,
	UsageTotalsSchema,
} from "../../../../gen/conversations/v1/conversation_report_service_pb.js";
import type { Series } from "../../parts/chart.tsx";
import { BASE_URL, KEY_REFUSED, type Problem, problemOf, reports } from "../../service/service.ts";
import { accessKey, signOut } from "../../service/session.ts";
import { filterOf } from "../conversations/filter.ts";

export const RANGES: ReadonlyMap<string, string> = new Map([
	["1", "today"],
	["7", "7 days"],
	["14", "14 days"],
	["30", "30 days"],
	["90", "90 days"],
	["365", "a year"],
]);
export const STEPS: ReadonlyMap<string, string> = new Map([
	["hour", "hour"],
	["day", "day"],
	["week", "week"],
	["month", "month"],
]);
export const GROUPS: ReadonlyMap<string, string> = new Map([
	["model", "model"],
	["usage_id", "usage id"],
	["agent_kind", "agent kind"],
	["sender", "sender"],
	["owner", "owner"],
]);
const STEP_VALUES: Readonly<Record<string, UsageStep>> = {
	hour: UsageStep.HOUR,
	day: UsageStep.DAY,
	week: UsageStep.WEEK,
	month: UsageStep.MONTH,
};
/** Number of groups with a color of their own. */
const TOP = 7;
const REST = "others";

/** A group of the report, over the whole range. */
interface Group {
	readonly name: string;
	readonly color: string;
	readonly usage: UsageTotals;
}

/** A report as the page shows it. */
interface Loaded {
	readonly groups: readonly Group[];
	readonly total: UsageTotals;
	/** Starts of the periods in seconds of Unix time. */
	readonly times: readonly number[];
	readonly series: readonly Series[];
}

/** The report of an address. */
export class UsageReport {
	readonly loaded = signal<Loaded | undefined>(undefined);
	readonly problem = signal<Problem | undefined>(undefined);
	readonly range: string;
	readonly step: string;
	readonly groupBy: string;
	readonly measure: "cost" | "tokens";
	readonly #query: URLSearchParams;
	readonly #timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
	#closed = false;

	constructor(query: URLSearchParams) {
		this.#query = query;
		this.range = query.get("range") ?? "7";
		this.step = query.get("step") ?? "day";
		this.groupBy = query.get("group_by") ?? "model";
		this.measure = query.get("measure") === "tokens" ? "tokens" : "cost";
		this.load();
	}

	load(): void {
		this.problem.value = undefined;
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
		const range = {
			from: timestampFromDate(this.#from()),
			timeZone: this.#timeZone,
			groupBy: [this.groupBy],
			filter: filterOf(this.#query, Date.now()),
		};
		const [whole, periods] = await Promise.all([
			reports.reportUsage({ ...range, top: TOP }),
			reports.reportUsage({ ...range, top: TOP, step: STEP_VALUES[this.step] ?? UsageStep.DAY }),
		]);
		if (!this.#closed) this.loaded.value = shown(whole, periods, this.measure);
	}

	/** Returns the start of the first day of the range, in the viewer's zone. */
	#from(): Date {
		const from = new Date();
		from.setHours(0, 0, 0, 0);
		from.setDate(from.getDate() - (Number(this.range) || 7) + 1);
		return from;
	}

	/** Downloads the rows of the report as CSV, as the service writes them. */
	async download(): Promise<void> {
		const parameters = new URLSearchParams({
			from: this.#from().toISOString(),
			step: this.step,
			time_zone: this.#timeZone,
			group_by: this.groupBy,
		});
		const response = await fetch(`${BASE_URL}/api/v1/usage?${parameters}`, {
			headers: { Accept: "text/csv", "X-Access-Token": accessKey.value ?? "" },
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

function shown(whole: ReportUsageResponse, periods: ReportUsageResponse, measure: "cost" | "tokens"): Loaded {
	const groups = whole.rows.map(({ group, isRest, usage }, index) => ({
		name: isRest ? REST : (group[0] ?? ""),
		color: isRest ? "--series-rest" : `--series-${(index % TOP) + 1}`,
		usage: usage ?? create(UsageTotalsSchema),
	}));
	const times = [...new Set(periods.rows.flatMap(({ start }) => (start === undefined ? [] : seconds(start))))].sort(
		(a, b) => a - b,
	);
	const series = groups.map(({ name, color }) => {
		const values = times.map(() => 0);
		for (const { start, group, isRest, usage } of periods.rows) {
			if (start === undefined || usage === undefined || (isRest ? REST : (group[0] ?? "")) !== name) continue;
			const tokens = Number((usage.tokens?.promptTokens ?? 0n) + (usage.tokens?.completionTokens ?? 0n));
			values[times.indexOf(seconds(start))] = measure === "cost" ? usage.cost : tokens;
		}
		return { label: name, color, values };
	});
	return { groups, total: whole.total ?? create(UsageTotalsSchema), times, series };
}

function seconds(time: NonNullable<ReportUsageResponse["rows"][number]["start"]>): number {
	return timestampDate(time).getTime() / 1000;
}
