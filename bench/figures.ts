/** The value that a figure should reach. */
export interface Target {
	readonly at: "least" | "most";
	readonly value: number;
}

/** A measured figure. */
export interface Figure {
	/** Name of the benchmark and of the variant. */
	readonly name: string;
	readonly value: number;
	/** Unit of the value; empty for a ratio. */
	readonly unit: string;
	/** Minimum and maximum of the measurements of which `value` is the median. */
	readonly spread?: readonly [number, number] | undefined;
	/** Undefined for a figure that is only printed. */
	readonly target?: Target | undefined;
	/** Additional information, such as rates and processor time. */
	readonly note: string;
}

/** Returns whether a figure reaches its target, or undefined if it has none. */
export function reached({ value, target }: Figure): boolean | undefined {
	if (target === undefined) return undefined;
	return target.at === "least" ? value >= target.value : value <= target.value;
}

/** Returns the median, which is the mean of the two middle values if their number is even. */
export function median(values: readonly number[]): number {
	const sorted = values.toSorted((a, b) => a - b);
	const middle = sorted.length >> 1;
	const upper = sorted[middle] ?? Number.NaN;
	return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2;
}

/** Returns the quantile for a share from 0 to 1, by the nearest-rank method. */
export function quantile(values: readonly number[], share: number): number {
	const sorted = values.toSorted((a, b) => a - b);
	return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

/** Makes a figure of the median of the ratios of pairs. */
export function ratioFigure(name: string, ratios: readonly number[], target: Target | undefined, note: string): Figure {
	return { name, value: median(ratios), unit: "", spread: [Math.min(...ratios), Math.max(...ratios)], target, note };
}

/** Formats the figures as a table for people. */
export function formatTable(figures: readonly Figure[]): string {
	const rows = figures.map((figure) => {
		const { name, value, unit, spread, target, note } = figure;
		const range = spread === undefined ? "" : `${round(spread[0])}–${round(spread[1])}`;
		const wanted = target === undefined ? "" : `at ${target.at} ${target.value}`;
		const outcome = { true: "reached", false: "MISSED", undefined: "" }[String(reached(figure))] ?? "";
		return [name, `${round(value)}${unit === "" ? "" : ` ${unit}`}`, range, wanted, outcome, note];
	});
	const table = [["figure", "value", "min–max", "target", "", "note"], ...rows];
	const widths = table.reduce<number[]>((most, row) => row.map((cell, i) => Math.max(most[i] ?? 0, cell.length)), []);
	return table
		.map((row) =>
			row
				.map((cell, i) => cell.padEnd(widths[i] ?? 0))
				.join("  ")
				.trimEnd(),
		)
		.join("\n");
}

/** Formats a number with no more digits than a measurement justifies. */
export function round(value: number): string {
	return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}
