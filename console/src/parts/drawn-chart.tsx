import "uplot/dist/uPlot.min.css";
import "./browser-language.ts";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { theme } from "../shell/theme.ts";
import { type ChartStep, timeNames } from "./time-names.ts";

/** One series of a chart. */
export interface Series {
	readonly label: string;
	/** Name of a design token, such as --series-1. */
	readonly color: string;
	/** A value for each time. Lines go past times without one, which is null. */
	readonly values: readonly (number | null)[];
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

/** Half the length of a period in seconds. */
const HALF: Readonly<Record<ChartStep, number>> = { hour: 1_800, day: 43_200, week: 302_400, month: 1_296_000 };
/** Width in pixels that a name of a time needs. */
const NAME_WIDTH = 76;

/** Draws a chart. */
export default function DrawnChart(props: ChartProps) {
	const { times, series, kind, height, format, step, label, most = 0, onChoose } = props;
	const choose = useRef(onChoose);
	choose.current = onChoose;
	const box = useRef<HTMLDivElement>(null);
	const chosenTheme = theme.value;
	useEffect(() => {
		const element = box.current;
		if (element === null) return;
		void chosenTheme;
		const style = getComputedStyle(document.documentElement);
		const color = (name: string): string => resolved(style.getPropertyValue(name));
		const stacked = kind === "bars" ? stack(series) : series;
		// The largest sum is drawn first; the smaller ones cover its lower part.
		const drawn = kind === "bars" ? [...stacked].reverse() : stacked;
		const room = step === undefined ? 0 : HALF[step];
		const chart = new uPlot(
			{
				width: element.clientWidth,
				height,
				legend: { show: false },
				cursor: { show: false },
				scales: {
					// Bars need room on both sides.
					x: { time: true, range: () => [(times[0] ?? 0) - room, (times.at(-1) ?? 0) + room] },
					y: { range: (_, min, max) => [Math.min(0, min * 1.08), Math.max(max, most) * 1.08 || 1] },
				},
				axes: [
					{
						stroke: color("--muted"),
						grid: { show: false },
						ticks: { show: false },
						font: "11px sans-serif",
						size: 38,
						space: NAME_WIDTH,
						// Each bar that has a name has it below itself. Lines name their ends, because round times may lie beyond them.
						splits: ({ width }) => (step === undefined ? ends(times) : named(times, (width - 80) / NAME_WIDTH)),
						values: (_, seconds) => timeNames(seconds, step),
					},
					{
						stroke: color("--muted"),
						grid: { stroke: color("--line"), width: 1 },
						ticks: { show: false },
						font: "11px sans-serif",
						size: 64,
						values: (_, values) => values.map(format),
					},
				],
				series: [
					{},
					...drawn.map(({ label: name, color: token }) => ({
						label: name,
						stroke: color(token),
						width: kind === "bars" ? 0 : 2,
						spanGaps: true,
						points: { show: kind === "lines" && (times.length < 2 || step !== undefined), fill: color(token) },
						...(kind === "bars" && uPlot.paths.bars !== undefined
							? { fill: color(token), paths: uPlot.paths.bars({ size: [0.8, 60], align: 0 }) }
							: {}),
					})),
				],
			},
			[[...times], ...drawn.map(({ values }) => [...values])],
			element,
		);
		chart.over.addEventListener("click", ({ offsetX, offsetY }) => {
			const time = chart.posToIdx(offsetX);
			const value = chart.posToVal(offsetY, "y");
			const isAt = ({ values }: Series): boolean => (values[time] ?? 0) >= value;
			choose.current?.(time, stacked.findIndex(isAt));
		});
		const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
		observer.observe(element);
		return () => {
			observer.disconnect();
			chart.destroy();
		};
	}, [times, series, kind, height, chosenTheme, step, most]);
	return (
		<div
			ref={box}
			class={onChoose === undefined ? "chart" : "chart choosable"}
			role="img"
			aria-label={label}
			style={{ minHeight: `${height}px` }}
		/>
	);
}

/** Returns the first and the last of some times, once if they are equal. */
function ends(times: readonly number[]): number[] {
	return [...new Set([...times.slice(0, 1), ...times.slice(-1)])];
}

/** Returns evenly spread times, at most a number of them. */
function named(times: readonly number[], most: number): number[] {
	const every = Math.max(1, Math.ceil(times.length / Math.max(most, 1)));
	return times.filter((_, index) => index % every === 0);
}

/** Returns the series with each value added to those of the series before it. */
function stack(series: readonly Series[]): Series[] {
	let below: readonly number[] = [];
	return series.map((one) => {
		below = one.values.map((value, index) => (value ?? 0) + (below[index] ?? 0));
		return { ...one, values: below };
	});
}

/** Returns a color that a canvas understands, from the value of a design token. */
function resolved(token: string): string {
	const probe = document.createElement("span");
	probe.style.color = token;
	document.body.append(probe);
	const { color } = getComputedStyle(probe);
	probe.remove();
	return color;
}
