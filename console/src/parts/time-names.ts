/** Length of the periods of a chart. */
export type ChartStep = "hour" | "day" | "week" | "month";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const dayOfMonth = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const month = new Intl.DateTimeFormat(undefined, { month: "short" });
const year = new Intl.DateTimeFormat(undefined, { year: "numeric" });

/**
 * Returns how an axis names times, in the viewer's zone. A second line says what the first one leaves open, where it
 * begins or changes: the date below a time of day, the year below a date.
 *
 * @param seconds Unix times, growing
 * @param step length of the periods that begin at them; undefined for points in time
 */
export function timeNames(seconds: readonly number[], step: ChartStep | undefined): string[] {
	const [first, second] = namesOf(seconds, step);
	let last = "";
	return seconds.map((time) => {
		const at = time * 1000;
		const below = second.format(at);
		const name = below === last ? first.format(at) : `${first.format(at)}\n${below}`;
		last = below;
		return name;
	});
}

/** Writes a period that begins at a time, in full. */
export function periodName(start: number, step: ChartStep): string {
	const at = start * 1000;
	switch (step) {
		case "hour":
			return `${date.format(at)}, ${clock.format(at)}`;
		case "day":
			return date.format(at);
		case "week":
			return `week of ${dayOfMonth.format(at)}`;
		case "month":
			return `${month.format(at)} ${year.format(at)}`;
	}
}

function namesOf(seconds: readonly number[], step: ChartStep | undefined) {
	switch (step) {
		case "hour":
			return [clock, date] as const;
		case "day":
		case "week":
			return [dayOfMonth, year] as const;
		case "month":
			return [month, year] as const;
		case undefined: {
			const apart = (seconds[1] ?? 0) - (seconds[0] ?? 0);
			if (apart >= 80_000) return [dayOfMonth, year] as const;
			return [apart > 0 && apart < 60 ? clockWithSeconds : clock, dayOfMonth] as const;
		}
	}
}
