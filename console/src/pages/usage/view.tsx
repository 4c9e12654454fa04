import "./style.css";
import { useSignal } from "@preact/signals";
import type { UsageTotals } from "../../../../gen/conversations/v1/conversation_report_service_pb.js";
import { Chart } from "../../parts/chart.tsx";
import { Choice, nameOf, RangeChoice } from "../../parts/choices.tsx";
import { BEFORE, RANGES, type Range } from "../../parts/days.ts";
import type { Series } from "../../parts/drawn-chart.tsx";
import { cost, full, share, short } from "../../parts/format.ts";
import { Notice } from "../../parts/notice.tsx";
import { type ChartStep, dayName, periodName } from "../../parts/time-names.ts";
import { addressOf, query, setQuery } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { ReportPage, useReport } from "./report.tsx";
import { GROUPS, type Spender, STEPS, tokensOf, UsageReport } from "./state.ts";

/** Cost and tokens over time: a chart and a table with the same numbers. */
export default function UsagePage() {
	useTitle("Usage");
	const page = useReport((parameters) => new UsageReport(parameters));
	const { report, of } = page;
	const { measure } = of;
	const loaded = of.loaded.value;
	const tags = of.tagKeys.value.map((key) => [`tag:${key}`, `tag ${key}`] as const);
	const groups = new Map([...GROUPS, ...tags]);
	const groupWords = groups.get(of.groupBy) ?? of.groupBy;
	const format = (value: number): string => (measure === "cost" ? cost(value) : short(value));
	const choose = (start: number | undefined, name: string | undefined): void =>
		setQuery((next) => {
			for (const parameter of ["at", "of"]) next.delete(parameter);
			if (start !== undefined) next.set("at", new Date(start * 1000).toISOString());
			if (start !== undefined && name !== undefined) next.set("of", name);
		});
	const isTwo = (loaded?.ranges.length ?? 0) > 1;
	const most = Math.max(0, ...(loaded?.ranges ?? []).map(({ times, series }) => largestSum(times.length, series)));
	return (
		<ReportPage
			{...page}
			title="Usage"
			choices={
				<>
					<RangeChoice name="range" label="Range" value={report.range} offered={RANGES} />
					<RangeChoice name="compare" label="Beside" value={report.compare} offered={["", BEFORE, ...RANGES]} />
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
				</>
			}
		>
			{loaded?.groups.length === 0 && (
				<Notice title="No usage in this range">
					<span>Usage appears with the first call of a model that an agent server reports.</span>
				</Notice>
			)}
			{loaded !== undefined && loaded.groups.length > 0 && (
				<>
					<div class={isTwo ? "beside" : ""}>
						{loaded.ranges.map(({ range, total, notReported, times, series }, index) => (
							<section key={index} class="card">
								<h2>
									{isTwo ? (
										`${spanWords(range)} · ${measure === "cost" ? cost(total.cost) : short(tokensOf(total))}`
									) : (
										<>
											{measure === "cost" ? "Cost" : "Tokens"} by {groupWords} and {of.step} ·{" "}
											{full(total.conversations)} conversations
										</>
									)}
								</h2>
								{notReported > 0n && (
									<p class="small muted">
										{full(notReported)} {notReported === 1n ? "conversation reports" : "conversations report"} no{" "}
										{measure}
									</p>
								)}
								<Chart
									times={times}
									series={series}
									kind="bars"
									height={220}
									format={format}
									step={of.step}
									most={isTwo ? most : undefined}
									label={`${measure} over time; the tables below have the numbers`}
									{...(index === 0 && {
										onChoose: (time, group) => {
											const chosen = loaded.groups[group];
											choose(times[time], chosen === undefined || chosen.key === "rest" ? undefined : chosen.name);
										},
									})}
								/>
							</section>
						))}
					</div>
					<div class="scroll" role="region" aria-label="Numbers" tabIndex={0}>
						<table class="numbers card">
							<thead>
								<tr>
									<th scope="col">{groupWords}</th>
									{(isTwo ? COMPARED : COLUMNS).map(({ title }) => (
										<th key={title} scope="col" class="number">
											{title}
										</th>
									))}
								</tr>
							</thead>
							<tbody>
								{loaded.groups.map(({ key, name, color, usages }) => (
									<tr key={key}>
										<th scope="row">
											<span class="swatch" style={{ background: `var(${color})` }} /> {nameOf(name)}
										</th>
										<Numbers usages={usages} totals={loaded.ranges.map(({ total }) => total)} />
									</tr>
								))}
							</tbody>
							<tfoot>
								<tr>
									<th scope="row">All</th>
									<Numbers
										usages={loaded.ranges.map(({ total }) => total)}
										totals={loaded.ranges.map(({ total }) => total)}
									/>
								</tr>
							</tfoot>
						</table>
					</div>
					<Spenders report={of} spenders={loaded.spenders} onAll={() => choose(undefined, undefined)} />
					{loaded.ranges.slice(0, 1).map(({ times, series }) => (
						<Periods
							key="periods"
							times={times}
							series={series}
							step={of.step}
							format={format}
							addressAt={(start, name) => {
								const next = new URLSearchParams(query.value);
								for (const parameter of ["at", "of"]) next.delete(parameter);
								next.set("at", new Date(start * 1000).toISOString());
								if (name !== undefined) next.set("of", name);
								return addressOf(["usage"], next);
							}}
						/>
					))}
					{loaded.ranges.some(({ total }) => total.limited) && (
						<p class="problem-text small">A sum is beyond the range of its type and ends at the limit.</p>
					)}
				</>
			)}
		</ReportPage>
	);
}

/** Returns the largest sum of a period. */
function largestSum(count: number, series: readonly Series[]): number {
	const sums = Array.from({ length: count }, (_, index) =>
		series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0),
	);
	return Math.max(0, ...sums);
}

/** Writes a range by its days, such as 17 Nov to 23 Nov. */
function spanWords({ from, to }: Range): string {
	const last = to === undefined ? "now" : dayName(new Date(Math.min(to.getTime() - 1, Date.now())));
	const first = from === undefined ? "" : dayName(from);
	return first === last ? first : `${first} to ${last}`;
}

/** The conversations that cost most in the range or in the chosen bar, with what they cost in it. */
function Spenders(props: {
	readonly report: UsageReport;
	readonly spenders: readonly Spender[];
	readonly onAll: () => void;
}) {
	const { report, spenders, onAll } = props;
	const ids = spenders.flatMap(({ id, label }) => (label === undefined ? [] : id));
	const list = new URLSearchParams(ids.map((id) => ["id", id]));
	return (
		<section class="card spenders" aria-labelledby="spenders-title">
			<div class="row">
				<h2 id="spenders-title">
					Conversations that cost most in{" "}
					{report.at === undefined
						? "this range"
						: `${periodName(report.at / 1000, report.step)}${report.of === undefined ? "" : ` · ${nameOf(report.of)}`}`}
				</h2>
				{report.at !== undefined && (
					<button type="button" onClick={onAll}>
						Show those of the whole range
					</button>
				)}
				{ids.length > 0 && (
					<a class="button" href={addressOf(["conversations"], list)}>
						Open as a list
					</a>
				)}
			</div>
			{spenders.length === 0 ? (
				<p class="muted">None: there is no usage in it.</p>
			) : (
				<table>
					<thead>
						<tr>
							<th scope="col">Conversation</th>
							{["Cost in it", "Calls", "Tokens"].map((title) => (
								<th key={title} scope="col" class="number">
									{title}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{spenders.map(({ id, label, usage }) => (
							<tr key={id}>
								<td class="name">
									{label === undefined ? (
										<span class="muted">{id === "" ? "erased conversations" : `${id}, which is no longer there`}</span>
									) : (
										<a href={addressOf(["conversations", id])}>{label}</a>
									)}
								</td>
								<td class="number">{cost(usage.cost)}</td>
								<td class="number">{full(usage.calls)}</td>
								<td class="number">{short(tokensOf(usage))}</td>
							</tr>
						))}
					</tbody>
				</table>
			)}
		</section>
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
	/** Returns the address of the conversations of a period, or of one of its groups. */
	readonly addressAt: (start: number, group: string | undefined) => string;
}) {
	const { times, series, step, format, addressAt } = props;
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
							const start = times[index] ?? 0;
							const link = (value: number, name: string | undefined) =>
								value === 0 ? format(value) : <a href={addressAt(start, name)}>{format(value)}</a>;
							return (
								<tr key={times[index]}>
									<th scope="row">{periodName(times[index] ?? 0, step)}</th>
									{values.map((value, of) => (
										<td key={series[of]?.color} class={`number${value === 0 ? " muted" : ""}`}>
											{link(value, series[of]?.color === "--series-rest" ? undefined : series[of]?.label)}
										</td>
									))}
									<td class="number">
										{link(
											values.reduce((sum, value) => sum + value, 0),
											undefined,
										)}
									</td>
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

/** The columns of two ranges: the numbers of both, and how the cost has changed. */
const COMPARED: readonly {
	readonly title: string;
	readonly text: (first: UsageTotals, second: UsageTotals) => string;
}[] = [
	{ title: "Cost", text: (first) => cost(first.cost) },
	{ title: "Cost beside", text: (_, second) => cost(second.cost) },
	{
		title: "Change",
		text: ({ cost: first }, { cost: second }) => {
			if (first === second) return "–";
			const part = second === 0 ? "" : ` (${first > second ? "+" : "−"}${share(Math.abs(first / second - 1))})`;
			return `${first > second ? "+" : "−"}${cost(Math.abs(first - second))}${part}`;
		},
	},
	{ title: "Calls", text: (first) => full(first.calls) },
	{ title: "Calls beside", text: (_, second) => full(second.calls) },
	{ title: "Tokens", text: (first) => short(tokensOf(first)) },
	{ title: "Tokens beside", text: (_, second) => short(tokensOf(second)) },
];

interface NumbersProps {
	/** For each range. */
	readonly usages: readonly UsageTotals[];
	readonly totals: readonly UsageTotals[];
}

function Numbers({ usages: [first, second], totals: [total] }: NumbersProps) {
	if (first === undefined || total === undefined) return null;
	const cells =
		second === undefined
			? COLUMNS.map(({ title, text }) => ({ title, text: text(first, total) }))
			: COMPARED.map(({ title, text }) => ({ title, text: text(first, second) }));
	return (
		<>
			{cells.map(({ title, text }) => (
				<td key={title} class="number">
					{text}
				</td>
			))}
		</>
	);
}
