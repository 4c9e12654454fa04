import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { ConversationSummary } from "../../../../gen/conversations/v1/summary_pb.js";
import { sumOfCosts } from "../../../../src/record/stats.ts";
import { Chart } from "../../parts/chart.tsx";
import { cost, exactTime, full, short, timeOfDay } from "../../parts/format.ts";
import { Reported } from "../../parts/reported.tsx";
import type { Call } from "./calls.ts";

/** Number of calls that the table shows at first. */
const SHOWN = 50;

interface UsageChartsProps {
	readonly summary: ConversationSummary | undefined;
	readonly calls: readonly Call[];
	/** The conversations of sub-agents. */
	readonly relatives: readonly ConversationSummary[];
}

/** Cost, tokens and context of a conversation over time, from the calls that its record lists, and their table. */
export function UsageCharts({ summary, calls, relatives }: UsageChartsProps) {
	const byUsage = new Map<string, number>();
	for (const { usageId, cost: price = 0 } of calls)
		byUsage.set(usageId, sumOfCosts([byUsage.get(usageId) ?? 0, price]));
	const costs = [summary, ...relatives].flatMap((one) => one?.accumulatedCost ?? []);
	const tokens = summary?.tokens;
	const context = summary?.context;
	const of = context && context.contextWindow > 0n ? ` of ${short(context.contextWindow)}` : "";
	return (
		<>
			<section class="card">
				<h2>Cost</h2>
				<p class="figure">
					<Reported value={summary?.accumulatedCost} format={cost} />
				</p>
				{relatives.length > 0 && (
					<p class="small">
						<strong>
							<Reported value={costs.length === 0 ? undefined : sumOfCosts(costs)} format={cost} />
						</strong>{" "}
						with {relatives.length === 1 ? "its sub-agent" : `its ${full(relatives.length)} sub-agents`}
					</p>
				)}
				{byUsage.size > 1 && (
					<p class="small muted">{[...byUsage].map(([usage, value]) => `${usage} ${cost(value)}`).join(" · ")}</p>
				)}
				<Line
					calls={calls}
					what="Cost"
					value={({ cost: price }) => price}
					add={(a, b) => sumOfCosts([a, b])}
					format={cost}
				/>
			</section>
			<section class="card">
				<h2>Tokens</h2>
				<p class="figure">
					<Reported value={tokens && tokens.promptTokens + tokens.completionTokens} format={full} />
				</p>
				{tokens !== undefined && (
					<p class="small muted">
						{[
							`${short(tokens.promptTokens)} prompt`,
							`${short(tokens.cacheReadTokens)} of it cached`,
							`${short(tokens.completionTokens)} completion`,
						].join(" · ")}
					</p>
				)}
				<Line calls={calls} what="Tokens" value={({ tokens: count }) => count} add={(a, b) => a + b} format={short} />
			</section>
			<section class="card">
				<h2>Context</h2>
				<p class="figure">{context === undefined ? "–" : `${short(context.perTurnToken)}${of}`}</p>
				<Line calls={calls} what="Context" value={({ context: count }) => count} format={short} />
			</section>
			{calls.length > 0 && <Calls calls={calls} />}
		</>
	);
}

interface LineProps {
	readonly calls: readonly Call[];
	readonly what: string;
	readonly value: (call: Call) => number | undefined;
	/** Adds up the values over time; left out for values that stand for themselves. */
	readonly add?: (sum: number, value: number) => number;
	readonly format: (value: number) => string;
}

/** A value of the calls over time. It is left out while there are fewer than two. */
function Line({ calls, what, value, add, format }: LineProps) {
	const drawn = useMemo(() => {
		const times: number[] = [];
		const values: number[] = [];
		for (const call of calls) {
			const own = value(call);
			if (own === undefined) continue;
			times.push(call.time);
			values.push(add === undefined ? own : add(values.at(-1) ?? 0, own));
		}
		return { times, series: [{ label: what, color: "--accent", values }], last: values.at(-1) ?? 0 };
	}, [calls]);
	if (drawn.times.length < 2) return null;
	return (
		<Chart
			times={drawn.times}
			series={drawn.series}
			kind="lines"
			height={120}
			format={format}
			label={`${what} over time, up to ${format(drawn.last)}; the table of calls has the numbers`}
		/>
	);
}

/** The numbers of the charts: each call, the newest first. */
function Calls({ calls }: { readonly calls: readonly Call[] }) {
	const open = useSignal(false);
	const all = useSignal(false);
	const newest = [...calls].reverse();
	const shown = all.value ? newest : newest.slice(0, SHOWN);
	return (
		<section class="card">
			<button
				type="button"
				class="more"
				aria-expanded={open.value}
				onClick={() => {
					open.value = !open.value;
				}}
			>
				{open.value ? "hide the calls" : `show ${full(calls.length)} calls`}
			</button>
			{open.value && (
				<div class="scroll" role="region" aria-label="Calls" tabIndex={0}>
					<table class="calls">
						<thead>
							<tr>
								<th scope="col">Time</th>
								<th scope="col" class="number">
									Cost
								</th>
								<th scope="col" class="number">
									Tokens
								</th>
								<th scope="col" class="number">
									Context
								</th>
							</tr>
						</thead>
						<tbody>
							{shown.map((call, index) => {
								const time = new Date(call.time * 1000);
								return (
									<tr key={newest.length - index} title={`${call.usageId} · ${call.model}`}>
										<th scope="row">
											<time dateTime={time.toISOString()} title={exactTime(time)}>
												{timeOfDay(time)}
											</time>
										</th>
										<td class="number">{call.cost === undefined ? "–" : cost(call.cost)}</td>
										<td class="number">{call.tokens === undefined ? "–" : short(call.tokens)}</td>
										<td class="number">{call.context === undefined ? "–" : short(call.context)}</td>
									</tr>
								);
							})}
						</tbody>
					</table>
					{!all.value && calls.length > SHOWN && (
						<button
							type="button"
							class="more"
							onClick={() => {
								all.value = true;
							}}
						>
							show all
						</button>
					)}
				</div>
			)}
		</section>
	);
}
