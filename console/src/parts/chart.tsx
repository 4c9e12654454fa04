import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { theme } from "../shell/theme.ts";

/** One series of a chart. */
export interface Series {
	readonly label: string;
	/** Name of a design token, such as --series-1. */
	readonly color: string;
	/** A value for each time. */
	readonly values: readonly number[];
}

interface ChartProps {
	/** Seconds of Unix time, growing. */
	readonly times: readonly number[];
	readonly series: readonly Series[];
	/** Stacked bars, or lines that each start at zero. */
	readonly kind: "bars" | "lines";
	readonly height: number;
	readonly format: (value: number) => string;
	/** What the chart shows, for readers that cannot see it. Its numbers stand in a table beside it. */
	readonly label: string;
	/** Name of an IANA time zone for the axis; undefined for the viewer's. */
	readonly timeZone?: string | undefined;
}

/** Draws a chart. A table with the same numbers has to stand beside it. */
export function Chart({ times, series, kind, height, format, label, timeZone }: ChartProps) {
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
		const room = kind === "lines" ? 0 : times.length > 1 ? ((times[1] ?? 0) - (times[0] ?? 0)) / 2 : 3.5 * 86_400;
		const chart = new uPlot(
			{
				width: element.clientWidth,
				height,
				legend: { show: false },
				cursor: { show: false },
				...(timeZone === undefined
					? {}
					: { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), timeZone) }),
				scales: {
					// Bars need room on both sides; a single one stands in the middle of a week.
					x: { time: true, range: () => [(times[0] ?? 0) - room, (times.at(-1) ?? 0) + room] },
					y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] },
				},
				axes: [
					{
						stroke: color("--muted"),
						grid: { show: false },
						ticks: { show: false },
						font: "11px sans-serif",
						size: 24,
						values: (_, seconds) => seconds.map(axisTime(seconds, timeZone)),
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
						points: { show: kind === "lines" && times.length < 2 },
						...(kind === "bars" && uPlot.paths.bars !== undefined
							? { fill: color(token), paths: uPlot.paths.bars({ size: [0.8, 60], align: 0 }) }
							: {}),
					})),
				],
			},
			[[...times], ...drawn.map(({ values }) => [...values])],
			element,
		);
		const observer = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height }));
		observer.observe(element);
		return () => {
			observer.disconnect();
			chart.destroy();
		};
	}, [times, series, kind, height, chosenTheme, timeZone]);
	return <div ref={box} class="chart" role="img" aria-label={label} style={{ minHeight: `${height}px` }} />;
}

/** Returns how an axis names its times: days if they are days apart, otherwise times of day. */
function axisTime(seconds: readonly number[], timeZone: string | undefined): (time: number) => string {
	const step = (seconds[1] ?? 0) - (seconds[0] ?? 0);
	const format = new Intl.DateTimeFormat(undefined, {
		...(step >= 80_000 ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" }),
		...(step > 0 && step < 60 ? { second: "2-digit" } : {}),
		timeZone,
	});
	return (time) => format.format(time * 1000);
}

/** Returns the series with each value added to those of the series before it. */
function stack(series: readonly Series[]): Series[] {
	let below: readonly number[] = [];
	return series.map((one) => {
		below = one.values.map((value, index) => value + (below[index] ?? 0));
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
