import { FIRST_TIME, type Microseconds, parseDateTime, toMicroseconds } from "../record/json/scalars.ts";

/** How the times of a sender's events are understood. */
export interface EventClock {
	/**
	 * Time zone of times that are written without an offset: `UTC` or a name of the IANA time zone database. The agent
	 * server writes the local time of its machine.
	 */
	readonly timeZone: string;
	/** When the events arrived. */
	readonly arrival: Microseconds;
	/** How far a time may lie ahead of the arrival, in microseconds. One further ahead counts as the arrival. */
	readonly maxAhead: Microseconds;
}

/**
 * Reads the time of an event.
 *
 * In the hour that a time zone repeats when summer time ends, a time stands for its first occurrence. One that is before
 * the year 1 in UTC counts as {@link FIRST_TIME}.
 *
 * @returns undefined when `text` is no date-time (ISO 8601, with or without an offset)
 */
export function eventTime(text: string, { timeZone, arrival, maxAhead }: EventClock): Microseconds | undefined {
	const parsed = parseDateTime(text);
	if (parsed === undefined) return undefined;
	const time =
		timeZone === "UTC" || hasOffset(text) ? toMicroseconds(parsed) : inTimeZone(toMicroseconds(parsed), timeZone);
	if (time < FIRST_TIME) return FIRST_TIME;
	return time > arrival + maxAhead ? arrival : time;
}

/** Whether a date-time says its offset from UTC. */
function hasOffset(text: string): boolean {
	return /(?:[Zz]|[+-]\d\d:?\d\d)$/.test(text.slice("YYYY-MM-DDTHH:MM".length));
}

/** The instant at which the clocks of `timeZone` show what those of UTC show at `micros`. */
function inTimeZone(micros: Microseconds, timeZone: string): Microseconds {
	const shown = Temporal.Instant.fromEpochNanoseconds(micros * 1000n)
		.toZonedDateTimeISO("UTC")
		.toPlainDateTime();
	return shown.toZonedDateTime(timeZone).epochNanoseconds / 1000n;
}
