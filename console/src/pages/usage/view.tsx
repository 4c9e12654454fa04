import "./style.css";
import { useEffect, useMemo } from "preact/hooks";
import type { UsageTotals } from "../../../../gen/conversations/v1/conversation_report_service_pb.js";
import { Chart } from "../../parts/chart.tsx";
import { cost, full, short } from "../../parts/format.ts";
import { Notice, ProblemNotice } from "../../parts/notice.tsx";
import { useShortcuts } from "../../shell/keys.ts";
import { query, setQuery } from "../../shell/route.ts";
import { GROUPS, RANGES, STEPS, UsageReport } from "./state.ts";

/** Cost and tokens over time: a chart and a table with the same numbers. */
export default function UsagePage() {
	const parameters = query.value.toString();
	const report = useMemo(() => new UsageReport(new URLSearchParams(parameters)), [parameters]);
	useEffect(() => () => report.close(), [report]);
	useShortcuts([{ key: "c", meaning: "download as CSV", run: () => void report.download() }]);
	const problem = report.problem.value;
	const { measure } = report;
	const loaded = report.loaded.value;
	return (
		<>
			<h1 class="visually-hidden">Usage</h1>
			<div class="row filters">
				<Choice name="range" label="Range" value={report.range} options={RANGES} />
				<Choice name="step" label="Step" value={report.step} options={STEPS} />
				<Choice name="group_by" label="By" value={report.groupBy} options={GROUPS} />
				<Choice
					name="measure"
					label="Shows"
					value={measure}
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
			{problem !== undefined ? (
				<ProblemNotice problem={problem} retry={() => report.load()} />
			) : loaded === undefined ? (
				<Notice title="Loading…" />
			) : loaded.groups.length === 0 ? (
				<Notice title="No usage in this range">
					<span>Usage appears with the first call of a model that an agent server reports.</span>
				</Notice>
			) : (
				<>
					<section class="card">
						<h2>
							{measure === "cost" ? "Cost" : "Tokens"} by {GROUPS.get(report.groupBy) ?? report.groupBy}
							{report.step === "none" ? "" : ` and ${report.step}`} · {full(loaded.total.conversations)} conversations
						</h2>
						<Chart
							times={loaded.times}
							series={loaded.series}
							kind="bars"
							height={220}
							format={(value) => (measure === "cost" ? cost(value) : short(value))}
							label={`${measure} over time; the table below has the numbers`}
						/>
					</section>
					<div class="scroll" role="region" aria-label="Numbers" tabIndex={0}>
						<table class="numbers card">
							<thead>
								<tr>
									<th scope="col">{GROUPS.get(report.groupBy) ?? report.groupBy}</th>
									{COLUMNS.map(({ title }) => (
										<th key={title} scope="col" class="number">
											{title}
										</th>
									))}
								</tr>
							</thead>
							<tbody>
								{loaded.groups.map(({ name, color, usage }) => (
									<tr key={name}>
										<th scope="row">
											<span class="swatch" style={{ background: `var(${color})` }} /> {name === "" ? "(none)" : name}
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
					{loaded.total.limited && (
						<p class="problem-text small">A sum is beyond the range of its type and ends at the limit.</p>
					)}
				</>
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
		text: (usage, total) => (total.cost === 0 ? "–" : `${Math.round((100 * usage.cost) / total.cost)} %`),
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
