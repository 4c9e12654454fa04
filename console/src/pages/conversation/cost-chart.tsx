import { useMemo } from "preact/hooks";
import { Chart } from "../../parts/chart.tsx";
import { cost } from "../../parts/format.ts";
import type { Json } from "./steps.ts";

/** A call of a model, as the record lists it. */
interface Call {
	readonly usageId: string;
	/** Seconds of Unix time. */
	readonly time: number;
	readonly cost: number;
}

/** The cost of a conversation over time, from the calls that its record lists. */
export function CostChart({ record, total }: { readonly record: Json | undefined; readonly total: number }) {
	const calls = useMemo(() => callsOf(record), [record]);
	const times = calls.map(({ time }) => time);
	let sum = 0;
	const values = calls.map((call) => {
		sum += call.cost;
		return sum;
	});
	const byUsage = new Map<string, number>();
	for (const call of calls) byUsage.set(call.usageId, (byUsage.get(call.usageId) ?? 0) + call.cost);
	return (
		<>
			<p>
				<strong>{cost(total)}</strong>{" "}
				<span class="small muted">{[...byUsage].map(([usage, value]) => `${usage} ${cost(value)}`).join(" · ")}</span>
			</p>
			{calls.length > 1 && (
				<Chart
					times={times}
					series={[{ label: "cost", color: "--accent", values }]}
					kind="lines"
					height={110}
					format={cost}
					label={`Cost over time, from ${cost(values[0] ?? 0)} to ${cost(sum)}`}
				/>
			)}
		</>
	);
}

/** Returns the calls with a cost that a record lists, in order of time. */
export function callsOf(record: Json | undefined): readonly Call[] {
	const usages = memberOf(memberOf(record, "stats"), "usage_to_metrics");
	return Object.entries(isObject(usages) ? usages : {})
		.flatMap(([usageId, metrics]) => {
			const costs = memberOf(metrics, "costs");
			return (Array.isArray(costs) ? costs : []).map((one: unknown) => ({
				usageId,
				time: Number(memberOf(one, "timestamp") ?? 0),
				cost: Number(memberOf(one, "cost") ?? 0),
			}));
		})
		.sort((a, b) => a.time - b.time);
}

function memberOf(value: unknown, name: string): unknown {
	return isObject(value) ? value[name] : undefined;
}

function isObject(value: unknown): value is Json {
	return typeof value === "object" && value !== null;
}
