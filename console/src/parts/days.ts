import { signal } from "@preact/signals";

/** Days and times in the zone that the address names: that of the viewer, or UTC. */
export const zone = signal<"local" | "utc">("local");

/** Returns the name of the zone in the time zone database. */
export function zoneName(): string {
	return zone.value === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** Returns a function that writes times in the zone, in the viewer's language. */
export function writer(options: Intl.DateTimeFormatOptions): (time: Date | number) => string {
	const local = new Intl.DateTimeFormat(undefined, options);
	const utc = new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" });
	return (time) => (zone.value === "utc" ? utc : local).format(time);
}

/** A span of time. Without a start or an end it is open there. */
export interface Range {
	readonly from: Date | undefined;
	/** Exclusive. */
	readonly to: Date | undefined;
}

/** Ranges that are offered, as the address has them. */
export const COMMON_RANGES: readonly string[] = [
	"today",
	"yesterday",
	"last_7_days",
	"last_14_days",
	"last_30_days",
	"this_month",
	"last_month",
];

/** Ranges of days that reports offer. */
export const RANGES: readonly string[] = [...COMMON_RANGES, "last_90_days", "last_365_days"];
/** Value of a second range that is as long as the first one and ends where it begins. */
export const BEFORE = "before";

/** Returns the start of a day such as 2026-11-23; undefined for a text that is none. */
export function startOfDay(text: string): Date | undefined {
	const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text) ?? [];
	if (year === undefined) return undefined;
	const start = dayOf(Number(year), Number(month) - 1, Number(day));
	// The 30th of February would be a day of March.
	return dayText(start) === text ? start : undefined;
}

/** Writes the day of a time as the address has it, such as 2026-11-23. */
export function dayText(time: Date): string {
	const { year, month, day } = partsOf(time);
	return [year, month + 1, day].map((part) => String(part).padStart(2, "0")).join("-");
}

/** Whether two times are on the same day. */
export function isSameDay(a: Date, b: Date): boolean {
	return dayText(a) === dayText(b);
}

/**
 * Returns the range that a text denotes: `today`, `yesterday`, `this_week`, `last_week` (from Monday), `this_month`,
 * `last_month`, `last_7_days` (with today), `last_24_hours`, a day, or days such as `2026-11-20..2026-11-23`, with both of
 * them or open at one end. Words may have spaces between them.
 *
 * @returns undefined for another text, and for days of which the last one is before the first one
 */
export function rangeOf(text: string, now = new Date()): Range | undefined {
	const words = text.trim().toLowerCase().replaceAll(/\s+/g, "_");
	const { year, month, day } = partsOf(now);
	const days = (from: number, to: number): Range => ({
		from: dayOf(year, month, day + from),
		to: dayOf(year, month, day + to),
	});
	const months = (from: number, to: number): Range => ({
		from: dayOf(year, month + from, 1),
		to: dayOf(year, month + to, 1),
	});
	const sinceMonday = (dayOf(year, month, day, "utc").getUTCDay() + 6) % 7;
	switch (words) {
		case "today":
			return days(0, 1);
		case "yesterday":
			return days(-1, 0);
		case "this_week":
			return days(-sinceMonday, 7 - sinceMonday);
		case "last_week":
			return days(-sinceMonday - 7, -sinceMonday);
		case "this_month":
			return months(0, 1);
		case "last_month":
			return months(-1, 0);
	}
	const [, count = "", unit] = /^last_(\d{1,4})_(day|hour)s?$/.exec(words) ?? [];
	if (unit === "day") return days(1 - Math.max(1, Number(count)), 1);
	if (unit === "hour") return { from: new Date(now.getTime() - Number(count) * 3_600_000), to: undefined };
	return daysOf(words);
}

/** Returns the range of a day, or of days from the first to the last one. */
function daysOf(text: string): Range | undefined {
	const [first = "", last = first, ...more] = text.split("..");
	const [from, end] = [startOfDay(first), startOfDay(last)];
	if (more.length > 0 || (first !== "" && from === undefined) || (last !== "" && end === undefined)) return undefined;
	if ((from === undefined && end === undefined) || (from !== undefined && end !== undefined && end < from))
		return undefined;
	return { from, to: end && nextDay(end, 1) };
}

/** Returns the range of the same length before another one: the month before a month, as many days before days. */
export function rangeBefore({ from, to }: Range, now = new Date()): Range | undefined {
	if (from === undefined) return undefined;
	const end = to ?? now;
	const [a, b] = [partsOf(from), partsOf(end)];
	const isMonths = a.day === 1 && b.day === 1 && isStart(from) && isStart(end);
	if (isMonths) {
		const months = (b.year - a.year) * 12 + b.month - a.month;
		return { from: dayOf(a.year, a.month - months, 1), to: from };
	}
	if (isStart(from) && isStart(end)) return { from: nextDay(from, -daysBetween(from, end)), to: from };
	return { from: new Date(2 * from.getTime() - end.getTime()), to: from };
}

/** Returns a range in the words of a person, such as last 7 days. */
export function rangeWords(text: string): string {
	return text.replaceAll("_", " ").replace(/^\.\./, "until ").replace(/\.\.$/, " until now").replace("..", " to ");
}

function isStart(time: Date): boolean {
	return time.getTime() === startOfDay(dayText(time))?.getTime();
}

/** Days are up to an hour longer or shorter where the clock changes. */
function daysBetween(from: Date, to: Date): number {
	return Math.round((to.getTime() - from.getTime()) / 86_400_000);
}

function nextDay(time: Date, by: number): Date {
	const { year, month, day } = partsOf(time);
	return dayOf(year, month, day + by);
}

/** Returns the start of a day. Months count from 0; days beyond the month are those of the next or the one before. */
function dayOf(year: number, month: number, day: number, of = zone.value): Date {
	return of === "utc" ? new Date(Date.UTC(year, month, day)) : new Date(year, month, day);
}

function partsOf(time: Date): { readonly year: number; readonly month: number; readonly day: number } {
	return zone.value === "utc"
		? { year: time.getUTCFullYear(), month: time.getUTCMonth(), day: time.getUTCDate() }
		: { year: time.getFullYear(), month: time.getMonth(), day: time.getDate() };
}
