import "./style.css";
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { UsageTotals } from "../../../../gen/conversations/v1/conversation_report_service_pb.js";
import { Chart, type Series } from "../../parts/chart.tsx";
import { dayText } from "../../parts/days.ts";
import { cost, full, short } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { type ChartStep, periodName } from "../../parts/time-names.ts";
import { useShortcuts } from "../../shell/keys.ts";
import { query, replaceQuery, setQuery } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { withoutFilters } from "../conversations/filter.ts";
import { Filters } from "../conversations/view.tsx";
import { GROUPS, OWN_PARAMETERS, RANGES, STEPS, UsageReport } from "./state.ts";

/** Milliseconds between two reads of the report. */
const INTERVAL = 60_000;

/** Cost and tokens over time: a chart and a table with the same numbers. */
export default function UsagePage() {
	useTitle("Usage");
	const parameters = query.value.toString();
	const report = useMemo(() => new UsageReport(new URLSearchParams(parameters)), [parameters]);
	useEffect(() => {
		const timer = setInterval(() => {
			if (!document.hidden) report.load();
		}, INTERVAL);
		return () => {
			clearInterval(timer);
			report.close();
		};
	}, [report]);
	const filter = useRef<HTMLInputElement>(null);
	useShortcuts([
		{ key: "c", meaning: "download as CSV", run: () => void report.download() },
		{ key: "f", meaning: "filter", run: () => filter.current?.focus() },
		{
			key: "Escape",
			meaning: "remove all filters",
			run: () => {
				filter.current?.blur();
				replaceQuery(withoutFilters(query.value, OWN_PARAMETERS));
			},
		},
	]);
	const problem = report.problem.value;
	// Until a report is there, the one before it stays.
	const before = useRef(report);
	if (report.loaded.value !== undefined) before.current = report;
	const of = before.current;
	const { measure } = of;
	const loaded = of.loaded.value;
	const tags = of.tagKeys.value.map((key) => [`tag:${key}`, `tag ${key}`] as const);
	const groups = new Map([...GROUPS, ...tags]);
	const groupWords = groups.get(of.groupBy) ?? of.groupBy;
	const format = (value: number): string => (measure === "cost" ? cost(value) : short(value));
	const { from, to } = report.days();
	const chosenEnd = query.value.get("to") ?? "";
	return (
		<>
			<h1 class="visually-hidden">Usage</h1>
			<div class="row filters">
				<Choice name="range" label="Range" value={report.range} options={RANGES} />
				{report.range === "days" && (
					<>
						<Day name="from" label="from" value={query.value.get("from") ?? dayText(from)} />
						<Day name="to" label="to" value={chosenEnd} />
						{chosenEnd !== "" && to === undefined && (
							<span class="problem-text small">The last day is before the first one; the range ends now.</span>
						)}
					</>
				)}
				<Choice
					name="step"
					label="Step"
					value={report.step}
					options={new Map([...STEPS.keys()].map((step) => [step, step]))}
				/>
				<Choice name="group_by" label="By" value={report.groupBy} options={groups} />
				<Choice
					name="measure"
					label="Shows"
					value={report.measure}
					options={
						new Map([
							["cost", "cost"],
							["tokens", "tokens"],
						])
					}
				/>
				<button type="button" onClick={() => void report.download()}>
					CSV <kbd>c</kbd>
				</button>
			</div>
			<Filters input={filter} isShownElsewhere={(name) => OWN_PARAMETERS.includes(name)} />
			{problem !== undefined ? (
				<ProblemNotice problem={problem} retry={() => report.load()} />
			) : loaded === undefined ? (
				<Notice title="Loading…" />
			) : loaded.groups.length === 0 ? (
				<Notice title="No usage in this range">
					<span>Usage appears with the first call of a model that an agent server reports.</span>
				</Notice>
			) : (
				<div class={of === report ? "" : "stale"} aria-busy={of !== report}>
					<section class="card">
						<h2>
							{measure === "cost" ? "Cost" : "Tokens"} by {groupWords} and {of.step} ·{" "}
							{full(loaded.total.conversations)} conversations
						</h2>
						<Chart
							times={loaded.times}
							series={loaded.series}
							kind="bars"
							height={220}
							format={format}
							step={of.step}
							label={`${measure} over time; the tables below have the numbers`}
						/>
					</section>
					<div class="scroll" role="region" aria-label="Numbers" tabIndex={0}>
						<table class="numbers card">
							<thead>
								<tr>
									<th scope="col">{groupWords}</th>
									{COLUMNS.map(({ title }) => (
										<th key={title} scope="col" class="number">
											{title}
										</th>
									))}
								</tr>
							</thead>
							<tbody>
								{loaded.groups.map(({ key, name, color, usage }) => (
									<tr key={key}>
										<th scope="row">
											<span class="swatch" style={{ background: `var(${color})` }} /> {nameOf(name)}
										</th>
										<Numbers usage={usage} total={loaded.total} />
									</tr>
								))}
							</tbody>
							<tfoot>
								<tr>
									<th scope="row">All</th>
									<Numbers usage={loaded.total} total={loaded.total} />
								</tr>
							</tfoot>
						</table>
					</div>
					<Periods times={loaded.times} series={loaded.series} step={of.step} format={format} />
					{loaded.total.limited && (
						<p class="problem-text small">A sum is beyond the range of its type and ends at the limit.</p>
					)}
				</div>
			)}
		</>
	);
}

/** Number of periods that the table shows at first. */
const SHOWN = 62;

/** The numbers of the chart: a row for each period, the newest first, and a column for each group. */
function Periods(props: {
	readonly times: readonly number[];
	readonly series: readonly Series[];
	readonly step: ChartStep;
	readonly format: (value: number) => string;
}) {
	const { times, series, step, format } = props;
	const all = useSignal(false);
	const newest = times.map((_, index) => times.length - 1 - index);
	const shown = all.value ? newest : newest.slice(0, SHOWN);
	return (
		<>
			<div class="scroll" role="region" aria-label={`Numbers by ${step}`} tabIndex={0}>
				<table class="numbers card">
					<thead>
						<tr>
							<th scope="col">{step}</th>
							{series.map(({ label, color }) => (
								<th key={color} scope="col" class="number">
									<span class="swatch" style={{ background: `var(${color})` }} /> {nameOf(label)}
								</th>
							))}
							<th scope="col" class="number">
								All
							</th>
						</tr>
					</thead>
					<tbody>
						{shown.map((index) => {
							const values = series.map(({ values: of }) => of[index] ?? 0);
							return (
								<tr key={times[index]}>
									<th scope="row">{periodName(times[index] ?? 0, step)}</th>
									{values.map((value, of) => (
										<td key={series[of]?.color} class={`number${value === 0 ? " muted" : ""}`}>
											{format(value)}
										</td>
									))}
									<td class="number">{format(values.reduce((sum, value) => sum + value, 0))}</td>
								</tr>
							);
						})}
					</tbody>
				</table>
			</div>
			{!all.value && times.length > SHOWN && (
				<button
					type="button"
					class="more"
					onClick={() => {
						all.value = true;
					}}
				>
					Show all {full(times.length)}
				</button>
			)}
		</>
	);
}

function nameOf(group: string): string {
	return group === "" ? "(none)" : group;
}

/** Writes a part of the whole, such as 49 %. */
function share(part: number): string {
	return part > 0 && part < 0.005 ? "< 1 %" : `${Math.round(100 * part)} %`;
}

interface Column {
	readonly title: string;
	readonly text: (usage: UsageTotals, total: UsageTotals) => string;
}

const COLUMNS: readonly Column[] = [
	{ title: "Cost", text: (usage) => cost(usage.cost) },
	{
		title: "Share",
		text: (usage, total) => (total.cost === 0 ? "–" : share(usage.cost / total.cost)),
	},
	{ title: "Calls", text: (usage) => full(usage.calls) },
	{ title: "Prompt", text: (usage) => short(usage.tokens?.promptTokens ?? 0n) },
	{ title: "Cached", text: (usage) => short(usage.tokens?.cacheReadTokens ?? 0n) },
	{ title: "Completion", text: (usage) => short(usage.tokens?.completionTokens ?? 0n) },
	{ title: "Reasoning", text: (usage) => short(usage.tokens?.reasoningTokens ?? 0n) },
	{ title: "Conversations", text: (usage) => full(usage.conversations) },
];

function Numbers({ usage, total }: { readonly usage: UsageTotals; readonly total: UsageTotals }) {
	return (
		<>
			{COLUMNS.map(({ title, text }) => (
				<td key={title} class="number">
					{text(usage, total)}
				</td>
			))}
		</>
	);
}

/** Earliest day that can be chosen. */
const FIRST_DAY = "1970-01-01";

/** Chooses a day of the range. */
function Day({ name, label, value }: { readonly name: string; readonly label: string; readonly value: string }) {
	// What is typed stays while the page is drawn anew.
	const typed = useSignal<string | undefined>(undefined);
	return (
		<label class="row small muted">
			{label}
			<input
				type="date"
				value={typed.value ?? value}
				onChange={(event) => {
					const chosen = event.currentTarget.value;
					typed.value = chosen;
					// While a year is typed, the value has one of its digits, then two, or none.
					if (chosen === "" ? name === "from" : chosen < FIRST_DAY) return;
					setQuery((next) => {
						if (chosen === "") next.delete(name);
						else next.set(name, chosen);
					});
				}}
				onBlur={() => {
					typed.value = undefined;
				}}
			/>
		</label>
	);
}

function Choice(props: {
	readonly name: string;
	readonly label: string;
	readonly value: string;
	readonly options: ReadonlyMap<string, string>;
}) {
	const { name, label, value, options } = props;
	return (
		<label class="row small muted">
			{label}
			<select
				value={value}
				onChange={(event) => {
					const chosen = event.currentTarget.value;
					setQuery((next) => next.set(name, chosen));
				}}
			>
				{[...options].map(([option, words]) => (
					<option key={option} value={option}>
						{words}
					</option>
				))}
				{!options.has(value) && <option value={value}>{value}</option>}
			</select>
		</label>
	);
}
