import "../usage/style.css";
import type { ComponentChildren } from "preact";
import type { ScoreTotals } from "../../../../gen/conversations/v1/score_service_pb.js";
import { Chart } from "../../parts/chart.tsx";
import { Choice, nameOf, RangeChoice } from "../../parts/choices.tsx";
import { RANGES } from "../../parts/days.ts";
import { cost, full, scoreNumber, share } from "../../parts/format.ts";
import { Notice } from "../../parts/notice.tsx";
import { ScoreNames } from "../../parts/score-names.tsx";
import { addressOf, query, setQuery } from "../../shell/route.ts";
import { useTitle } from "../../shell/title.ts";
import { ReportPage, useReport } from "../usage/report.tsx";
import { categoriesOf, GROUPS, OWN_PARAMETERS, REST, ScoreReport } from "./state.ts";

/** Number of groups that the table shows at most. */
const MOST_ROWS = 500;
const MEASURES = new Map([
	["value", "values"],
	["count", "number of scores"],
]);
/** How the values of a chart are written, and what they are. */
const FORMATS = {
	share: { format: share, words: "Share of true" },
	mean: { format: scoreNumber, words: "Mean" },
	count: { format: (value: number) => full(Math.round(value)), words: "Scores" },
} as const;

/** What the scores of a name add up to, beside what their conversations cost: a chart and a table. */
export default function ScoresPage() {
	useTitle("Scores");
	const page = useReport((parameters) => new ScoreReport(parameters));
	const { report, of } = page;
	const groups = new Map([...GROUPS, ...of.tagKeys.value.map((key) => [`tag:${key}`, `tag ${key}`] as const)]);
	const groupWords = groups.get(of.groupBy) ?? of.groupBy;
	return (
		<ReportPage
			{...page}
			title="Scores"
			choices={
				<>
					<ScoreNames
						label="Score"
						title="Score that is reported"
						names={[report.name]}
						most={1}
						onChange={([name]) =>
							setQuery((next) => (name === undefined ? next.delete("name") : next.set("name", name)))
						}
					/>
					<RangeChoice name="range" label="Given" value={report.range} offered={RANGES} />
					<Choice name="group_by" label="By" value={report.groupBy} options={groups} />
					<Choice name="measure" label="Chart" value={report.measure} options={MEASURES} />
				</>
			}
		>
			{of.loaded.value?.total.count === 0n ? (
				<Notice title={`No score “${of.name}” in this range`}>
					<span>People give thumbs at a conversation, and programs send scores of any name.</span>
				</Notice>
			) : (
				<>
					<ReportChart report={of} groupWords={groupWords} />
					<ReportTable report={of} groupWords={groupWords} />
				</>
			)}
		</ReportPage>
	);
}

interface ReportProps {
	readonly report: ScoreReport;
	/** What the rows are grouped by, in words. */
	readonly groupWords: string;
}

function ReportChart({ report, groupWords }: ReportProps) {
	const { chart, rows = [] } = report.loaded.value ?? {};
	if (chart === undefined)
		return <p class="card muted">There are too many groups and days for a chart. The table has the numbers.</p>;
	const { kind, times, series, of, isByCategory } = chart;
	const { format, words } = FORMATS[of];
	const isByGroup = report.groupBy !== "day" && !isByCategory;
	const per = isByCategory ? "category and " : isByGroup ? `${groupWords} and ` : "";
	return (
		<section class="card">
			<h2>
				{words} of {report.name} by {per}day (UTC)
				{isByGroup && rows.length > series.length && ` · the ${full(series.length)} groups with the most scores`}
			</h2>
			<Chart
				times={times}
				series={series}
				kind={kind}
				height={220}
				format={format}
				step="day"
				most={of === "share" ? 1 : undefined}
				label={`${words} of ${report.name} over time; the table below has the numbers`}
			/>
		</section>
	);
}

function ReportTable({ report, groupWords }: ReportProps) {
	const { rows = [], total, chart } = report.loaded.value ?? {};
	if (total === undefined) return null;
	const colors = new Map(chart?.series.map(({ label, color }) => [label, color]));
	const swatch = (name: string) => {
		const color = colors.get(name);
		return color && <span class="swatch" style={{ background: `var(${color})` }} />;
	};
	const isByCategory = chart?.isByCategory === true;
	const columns = columnsOf(total, (category) => isByCategory && swatch(colors.has(category) ? category : REST));
	const cells = (of: ScoreTotals) =>
		columns.map(({ title, show, isText }) => (
			<td key={title} class={isText ? "spread" : "number"}>
				{show(of)}
			</td>
		));
	return (
		<div class="scroll" role="region" aria-label="Numbers" tabIndex={0}>
			<table class="numbers card">
				<thead>
					<tr>
						<th scope="col">{groupWords}</th>
						{columns.map(({ title, isText }) => (
							<th key={title} scope="col" class={isText ? "" : "number"}>
								{title}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.slice(0, MOST_ROWS).map(({ group: [name = ""], scores }) => {
						const address = listOf(report, name);
						return (
							<tr key={name}>
								<th scope="row">
									{!isByCategory && swatch(name)}{" "}
									{address === undefined ? nameOf(name) : <a href={address}>{nameOf(name)}</a>}
								</th>
								{scores && cells(scores)}
							</tr>
						);
					})}
				</tbody>
				<tfoot>
					<tr>
						<th scope="row">All</th>
						{cells(total)}
					</tr>
				</tfoot>
			</table>
			{rows.length > MOST_ROWS && (
				<p class="small muted">
					These are the first {full(MOST_ROWS)} of {full(rows.length)}; the CSV has all.
				</p>
			)}
		</div>
	);
}

/** Returns the address of the conversations of a group with their scores; undefined if no filter selects them. */
function listOf({ groupBy, name: score }: ScoreReport, name: string): string | undefined {
	if (groupBy === "day" || name === "") return undefined;
	const next = new URLSearchParams(query.value);
	for (const parameter of OWN_PARAMETERS) next.delete(parameter);
	if (groupBy.startsWith("tag:")) next.append("tag", `${groupBy.slice("tag:".length)}:${name}`);
	else next.set(groupBy, name);
	next.append("score_name", score);
	return addressOf(["conversations"], next);
}

interface Column {
	readonly title: string;
	readonly isText?: boolean;
	readonly show: (of: ScoreTotals) => ComponentChildren;
}

/**
 * Returns the columns that scores of their kinds have.
 *
 * @param swatch shows the color that a category has in the chart
 */
function columnsOf(total: ScoreTotals, swatch: (category: string) => ComponentChildren): readonly Column[] {
	const known = (value: number | undefined, write: (value: number) => string): string =>
		value === undefined ? "–" : write(value);
	const columns: Column[] = [{ title: "Scores", show: ({ count }) => full(count) }];
	if (total.mean !== undefined) columns.push({ title: "Mean", show: ({ mean }) => known(mean, scoreNumber) });
	if (total.shareTrue !== undefined) columns.push({ title: "True", show: ({ shareTrue }) => known(shareTrue, share) });
	if (Object.keys(total.categories).length > 0)
		columns.push({
			title: "Spread",
			isText: true,
			show: ({ categories, count }) =>
				categoriesOf(categories).map(([category, of]) => (
					<span key={category} class="category">
						{swatch(category)} {category} {full(of)} <span class="muted">{share(of / Number(count))}</span>
					</span>
				)),
		});
	return [
		...columns,
		{ title: "Conversations", show: ({ conversations }) => full(conversations) },
		{
			title: "Cost",
			show: ({ cost: sum, conversationsWithoutCost: without }) => (
				<>
					{cost(sum)}
					{without > 0n && <div class="small muted">{full(without)} not reported</div>}
				</>
			),
		},
		{
			title: "Cost of one",
			show: ({ cost: sum, conversations, conversationsWithoutCost }) => {
				const number = Number(conversations - conversationsWithoutCost);
				return number === 0 ? "–" : cost(sum / number);
			},
		},
	];
}
