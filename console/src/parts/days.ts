/** Days in the viewer's zone, as the address has them: 2026-11-23. */

/** Returns the start of a day; undefined for a text that is none. */
export function startOfDay(text: string): Date | undefined {
	const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text) ?? [];
	if (year === undefined) return undefined;
	const start = new Date(Number(year), Number(month) - 1, Number(day));
	// The 30th of February would be a day of March.
	return dayText(start) === text ? start : undefined;
}

/** Writes the day of a time. */
export function dayText(time: Date): string {
	return [time.getFullYear(), time.getMonth() + 1, time.getDate()]
		.map((part) => String(part).padStart(2, "0"))
		.join("-");
}
