import type { Timestamp } from "@bufbuild/protobuf/wkt";

const UUID =
	/^(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{32}|\{[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}|urn:uuid:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})$/i;

/**
 * Parses a UUID in the forms that the sender's parser accepts: dashed, 32 hex digits, braced, or `urn:uuid:`
 * (lower-case prefix) before the dashed form. Accepts any version, and digits in either case.
 *
 * @returns the UUID in lower case with dashes (RFC 9562), or undefined when `text` is not a UUID
 */
export function parseUuid(text: string): string | undefined {
	if (text.length < 32 || text.length > 45 || !UUID.test(text)) return undefined;
	if (text.length === 45 && !text.startsWith("urn:uuid:")) return undefined;
	const lower = text.toLowerCase();
	switch (lower.length) {
		case 32:
			return `${lower.slice(0, 8)}-${lower.slice(8, 12)}-${lower.slice(12, 16)}-${lower.slice(16, 20)}-${lower.slice(20)}`;
		case 36:
			return lower;
		case 38:
			return lower.slice(1, 37);
		default:
			return lower.slice(9);
	}
}

const DATE_TIME =
	/^(?!0000)\d{4}-(?:0[1-9]|1[0-2])-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d(?::([0-5]\d)(?:[.,](\d+))?)?(?:[Zz]|([+-](?:[01]\d|2[0-3]):?[0-5]\d))?$/;
const MIN_MILLIS = new Date(0).setUTCFullYear(1, 0, 1);
const MAX_MILLIS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const MILLIS_IN_400_YEARS = Date.UTC(2370, 0, 1);

/** A date-time in microseconds since the Unix epoch. */
export type Microseconds = bigint;

/** The first instant that google.protobuf.Timestamp can represent: 0001-01-01T00:00:00Z. */
export const FIRST_TIME: Microseconds = BigInt(MIN_MILLIS) * 1000n;

/**
 * Parses an ISO 8601 date-time with `T` and optional seconds, fraction and offset. Without an offset it is UTC. Digits
 * beyond the microsecond are cut off. The years are 1 to 9999, the range of google.protobuf.Timestamp.
 *
 * @returns the instant, or undefined when `text` is not such a date-time
 */
export function parseDateTime(text: string): Timestamp | undefined {
	const match = DATE_TIME.exec(text);
	if (match === null) return undefined;
	const [, second = "00", fraction = "", zone = "+00:00"] = match;
	const day = digits(text, 8, 10);
	// Date.UTC adds 1900 to a year below 100, so it gets the same day of a later year: the calendar repeats.
	const date = Date.UTC(digits(text, 0, 4) + 400, digits(text, 5, 7) - 1, day) - MILLIS_IN_400_YEARS;
	// A day that the month does not have is one of the next month.
	if (new Date(date).getUTCDate() !== day) return undefined;
	const minutes = digits(text, 11, 13) * 60 + digits(text, 14, 16);
	const offset = digits(zone, 1, 3) * 60 + digits(zone, zone.length - 2, zone.length);
	const utcMinutes = zone.startsWith("-") ? minutes + offset : minutes - offset;
	const millis = date + utcMinutes * 60_000 + digits(second, 0, 2) * 1000;
	if (millis < MIN_MILLIS || millis > MAX_MILLIS) return undefined;
	return {
		$typeName: "google.protobuf.Timestamp",
		seconds: BigInt(millis / 1000),
		nanos: fraction === "" ? 0 : Number(fraction.slice(0, 6).padEnd(6, "0")) * 1000,
	};
}

/** Returns the number that the decimal digits from `start` to `end` denote, faster than a part of the text is made. */
function digits(text: string, start: number, end: number): number {
	let value = 0;
	for (let index = start; index < end; index++) value = value * 10 + text.charCodeAt(index) - 48;
	return value;
}

/**
 * Formats an instant as ISO 8601 in UTC with `Z`, with six fraction digits, or none when the microseconds are zero. An
 * instant outside the range of google.protobuf.Timestamp becomes text that {@link parseDateTime} refuses.
 */
export function formatDateTime(time: Timestamp): string {
	if (!isInRange(time)) return `${time.seconds}s ${time.nanos}ns`;
	const whole = new Date(Number(time.seconds) * 1000).toISOString().slice(0, 19);
	const micros = Math.floor(time.nanos / 1000);
	return micros === 0 ? `${whole}Z` : `${whole}.${String(micros).padStart(6, "0")}Z`;
}

function isInRange({ seconds, nanos }: Timestamp): boolean {
	const millis = Number(seconds) * 1000;
	return millis >= MIN_MILLIS && millis <= MAX_MILLIS && nanos >= 0 && nanos <= 999_999_999;
}

/** Converts an instant to microseconds since the Unix epoch, rounded down. */
export function toMicroseconds(time: Timestamp): Microseconds {
	return time.seconds * 1_000_000n + BigInt(Math.floor(time.nanos / 1000));
}

/** Converts microseconds since the Unix epoch to an instant. */
export function fromMicroseconds(micros: Microseconds): Timestamp {
	const remainder = ((micros % 1_000_000n) + 1_000_000n) % 1_000_000n;
	return {
		$typeName: "google.protobuf.Timestamp",
		seconds: (micros - remainder) / 1_000_000n,
		nanos: Number(remainder) * 1000,
	};
}
