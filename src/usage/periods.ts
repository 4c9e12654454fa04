/**
 * The periods of a report in a time zone of the IANA time zone database. Times are milliseconds of Unix time.
 */

/** Length of a period; `none`: one period for the whole range. */
export type Step = "none" | "hour" | "day" | "week" | "month";

/** A period of a report. */
export interface Period {
	/** Start of the hour, day, week or month; undefined without a step. */
	readonly start: number | undefined;
	/** Quarters of an hour, numbered from the Unix epoch, from the first one to before the last one. */
	readonly first: number;
	readonly beyond: number;
}

const QUARTER = 900_000;
const HOUR = 3_600_000;
const DAY = 86_400_000;

/** Returns the offset of a time zone from UTC at a time. */
type OffsetAt = (time: number) => number;

/** Returns the offsets of a time zone; undefined if the name is not known. Empty: UTC. */
export function timeZone(name: string): OffsetAt | undefined {
	if (name === "" || name === "UTC") return () => 0;
	if (!/^[A-Za-z]/.test(name)) return undefined;
	let format: Intl.DateTimeFormat;
	try {
		format = new Intl.DateTimeFormat("en-US", { timeZone: name, timeZoneName: "longOffset" });
	} catch {
		return undefined;
	}
	return (time) => {
		const text = format.formatToParts(time).find(({ type }) => type === "timeZoneName")?.value ?? "";
		const [, sign, hours, minutes, seconds = "0"] = /^GMT([+-])(\d{2}):(\d{2})(?::(\d{2}))?$/.exec(text) ?? [];
		if (sign === undefined) return 0;
		const offset = Number(hours) * HOUR + Number(minutes) * 60_000 + Number(seconds) * 1_000;
		return sign === "-" ? -offset : offset;
	};
}

/** Returns the start and the end of the day, week or month that has a time. */
export function periodAt(
	step: "day" | "week" | "month",
	time: number,
	offsetAt: OffsetAt,
): { readonly start: number; readonly end: number } {
	const next = datesFrom(step, time, offsetAt);
	return { start: next(), end: next() };
}

/** Quarters of an hour from the first one to before the last one. */
export type Span = Omit<Period, "start">;

/**
 * Returns the periods that have quarters of spans, in order. Nothing before the first span, or after the last one, is in
 * the first and the last period.
 *
 * @param spans in order, without overlaps
 * @param limit maximum number of periods
 * @returns undefined if there are more
 */
export function periodsOf(step: Step, offsetAt: OffsetAt, spans: readonly Span[], limit: number): Period[] | undefined {
	const [first, beyond] = [spans.at(0)?.first ?? 0, spans.at(-1)?.beyond ?? 0];
	if (beyond <= first) return [];
	if (step === "none") return [{ start: undefined, first, beyond }];
	const periods: Period[] = [];
	for (const span of spans) {
		const from = Math.max(span.first, periods.at(-1)?.beyond ?? first);
		if (from >= span.beyond) continue;
		const next = step === "hour" ? hoursFrom(from * QUARTER, offsetAt) : datesFrom(step, from * QUARTER, offsetAt);
		for (let start = next(); start < span.beyond * QUARTER; ) {
			if (periods.length === limit) return undefined;
			const end = next();
			const own = {
				first: Math.max(periods.at(-1)?.beyond ?? first, quarterOf(start)),
				beyond: Math.min(beyond, quarterOf(end)),
			};
			if (own.beyond > own.first) periods.push({ start, ...own });
			start = end;
		}
	}
	return periods;
}

const quarterOf = (time: number): number => Math.floor(time / QUARTER);

/** Returns a function that returns the starts of the hours from that of a time on. */
function hoursFrom(time: number, offsetAt: OffsetAt): () => number {
	const startOf = (at: number) => at - modulo(at + offsetAt(at), HOUR);
	let next = startOf(time);
	return () => {
		const start = next;
		const candidate = startOf(start + HOUR);
		// Where the clocks change by half an hour, the hour begins or ends with the change.
		next = offsetAt(candidate) === offsetAt(start + HOUR) && candidate > start ? candidate : start + HOUR;
		return start;
	};
}

/** Returns a function that returns the starts of the days, weeks or months from that of a time on. */
function datesFrom(step: "day" | "week" | "month", time: number, offsetAt: OffsetAt): () => number {
	let day = Math.floor((time + offsetAt(time)) / DAY);
	// The Unix epoch was a Thursday.
	if (step === "week") day -= modulo(day + 3, 7);
	if (step === "month") day -= new Date(day * DAY).getUTCDate() - 1;
	return () => {
		const start = midnight(day, offsetAt);
		day += step === "day" ? 1 : step === "week" ? 7 : daysOfMonth(day);
		return start;
	};
}

/** Returns the number of days of the month that begins with a day. */
function daysOfMonth(day: number): number {
	const date = new Date(day * DAY);
	return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1) / DAY - day;
}

/**
 * Returns when a day begins: at midnight, or where the clocks are set forward over midnight, at that change.
 *
 * @param day days from 1970-01-01 in the time zone
 */
function midnight(day: number, offsetAt: OffsetAt): number {
	const local = day * DAY;
	const [before, after] = [offsetAt(local - DAY), offsetAt(local + DAY)];
	for (const offset of [before, after]) if (offsetAt(local - offset) === offset) return local - offset;
	// The change lies between the times at which the old and the new offset would have had midnight.
	let [from, to] = [local - Math.max(before, after), local - Math.min(before, after)];
	while (to - from > 1_000) {
		const middle = from + Math.floor((to - from) / 2_000) * 1_000;
		if (offsetAt(middle) === before) from = middle;
		else to = middle;
	}
	return to;
}

function modulo(value: number, by: number): number {
	return ((value % by) + by) % by;
}
