import { FIRST_TIME, type Microseconds, parseDateTime, toMicroseconds } from "../record/json/scalars.ts";

/**
 * Parses the time of an event.
 *
 * In the hour that a time zone repeats when summer time ends, a time means its first occurrence. A time before the year
 * 1 in UTC counts as {@link FIRST_TIME}.
 *
 * @param timeZone time zone of times without an offset: `UTC` or a name of the IANA time zone database. The agent server
 *   writes the local time of its machine.
 * @returns undefined when `text` is no date-time (ISO 8601, with or without an offset)
 */
export function eventTime(text: string, timeZone: string): Microseconds | undefined {
	const parsed = parseDateTime(text);
	if (parsed === undefined) return undefined;
	const time =
		timeZone === "UTC" || hasOffset(text) ? toMicroseconds(parsed) : inTimeZone(toMicroseconds(parsed), timeZone);
	if (time < FIRST_TIME) return FIRST_TIME;
	return time;
}

/** Whether a date-time has an offset from UTC. */
function hasOffset(text: string): boolean {
	return /(?:[Zz]|[+-]\d\d:?\d\d)$/.test(text.slice("YYYY-MM-DDTHH:MM".length));
}

/** Returns the instant at which the local time in `timeZone` is the UTC time of `micros`. */
function inTimeZone(micros: Microseconds, timeZone: string): Microseconds {
	const shown = Temporal.Instant.fromEpochNanoseconds(micros * 1000n)
		.toZonedDateTimeISO("UTC")
		.toPlainDateTime();
	return shown.toZonedDateTime(timeZone).epochNanoseconds / 1000n;
}
