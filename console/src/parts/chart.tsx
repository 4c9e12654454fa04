import { loadedLater } from "./loaded-later.tsx";
import type { ChartStep } from "./time-names.ts";

/** One series of a chart. */
export interface Series {
	readonly label: string;
	/** Name of a design token, such as --series-1. */
	readonly color: string;
	/** A value for each time. */
	readonly values: readonly number[];
}

export interface ChartProps {
	/** Seconds of Unix time, growing. */
	readonly times: readonly number[];
	readonly series: readonly Series[];
	/** Stacked bars, or lines that each start at zero. */
	readonly kind: "bars" | "lines";
	readonly height: number;
	readonly format: (value: number) => string;
	/** Length of the period that begins at each time, for the names of the times; undefined if they are points in time. */
	readonly step?: ChartStep | undefined;
	/** Value up to which the chart reaches at least, so that charts beside each other have one scale. */
	readonly most?: number | undefined;
	/** Called with the index of the bar that was clicked, and of the series; -1 above all of them. */
	readonly onChoose?: (time: number, series: number) => void;
	/** What the chart shows, for readers that cannot see it. Its numbers stand in a table beside it. */
	readonly label: string;
}

const Drawn = loadedLater<ChartProps>(() => import("./drawn-chart.tsx"), {
	waiting: null,
	failed: () => <span class="small muted">The chart cannot be loaded now. The table has its numbers.</span>,
});

/**
 * A chart, drawn by code that is loaded with the first one: what stands beside it does not wait for it. A table with the
 * same numbers has to be there.
 */
export function Chart(props: ChartProps) {
	return (
		<div style={{ minHeight: `${props.height}px` }}>
			<Drawn {...props} />
		</div>
	);
}
