import { writer } from "./days.ts";

/** Length of the periods of a chart. */
export type ChartStep = "hour" | "day" | "week" | "month";

const clock = writer({ hour: "2-digit", minute: "2-digit" });
const clockWithSeconds = writer({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const date = writer({ weekday: "short", day: "numeric", month: "short" });
const dayOfMonth = writer({ day: "numeric", month: "short" });
const month = writer({ month: "short" });
const year = writer({ year: "numeric" });

/**
 * Returns how an axis names times, in the zone of the address. A second line says what the first one leaves open, where it
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
		const below = second(at);
		const name = below === last ? first(at) : `${first(at)}\n${below}`;
		last = below;
		return name;
	});
}

/** Writes the day of a time, such as 23 Nov. */
export function dayName(time: Date): string {
	return dayOfMonth(time);
}

/** Writes a period that begins at a time, in full. */
export function periodName(start: number, step: ChartStep): string {
	const at = start * 1000;
	switch (step) {
		case "hour":
			return `${date(at)}, ${clock(at)}`;
		case "day":
			return date(at);
		case "week":
			return `week of ${dayOfMonth(at)}`;
		case "month":
			return `${month(at)} ${year(at)}`;
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
