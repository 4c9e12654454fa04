import { expect, test } from "vitest";
import { eventTimes } from "../../src/events/event-parts.ts";
import { parseDateTime, toMicroseconds } from "../../src/record/json/scalars.ts";

function micros(text: string): bigint {
	const time = parseDateTime(text);
	if (time === undefined) throw new TypeError(`${text} is no date-time`);
	return toMicroseconds(time);
}

test.each([
	["2026-11-21T08:57:29.401699", "UTC", "2026-11-21T08:57:29.401699Z"],
	["2026-11-21T08:57:29.401699", "Europe/Berlin", "2026-11-21T07:57:29.401699Z"],
	["2026-07-21T08:57:29", "Europe/Berlin", "2026-07-21T06:57:29Z"],
	["2026-11-21T08:57:29", "America/New_York", "2026-11-21T13:57:29Z"],
	["2026-11-21T08:57:29Z", "Europe/Berlin", "2026-11-21T08:57:29Z"],
	["2026-11-21T08:57:29-05:00", "Europe/Berlin", "2026-11-21T13:57:29Z"],
	["2026-11-21T08:57:29+0530", "UTC", "2026-11-21T03:27:29Z"],
	// A local time that occurs twice, and one that is skipped, because of summer time.
	["2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00Z"],
	["2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00Z"],
	// google.protobuf.Timestamp has no time before the year 1.
	["0001-01-01T00:00:00", "Asia/Tokyo", "0001-01-01T00:00:00Z"],
	["0001-01-01T09:18:59.000001", "Asia/Tokyo", "0001-01-01T00:00:00.000001Z"],
])("the timestamp %s in the time zone %s is %s", (text, timeZone, utc) => {
	expect(eventTimes(text, timeZone)?.at).toBe(micros(utc));
});

test.each(["", "2026-11-21", "08:57:29", "2026-13-01T00:00:00", "1763715449", "2026-11-21 08:57:29", "now"])(
	"%j is not a timestamp",
	(text) => {
		expect(eventTimes(text, "UTC")).toBeUndefined();
	},
);

test.each([
	["nothing is known", {}, "2026-10-25T00:20:00Z"],
	["an earlier event has the first of the two", { after: "2026-10-25T00:55:00Z" }, "2026-10-25T01:20:00Z"],
	["an earlier event is before both", { after: "2026-10-25T00:10:00Z" }, "2026-10-25T00:20:00Z"],
	["it arrives about then", { receivedAt: "2026-10-25T01:20:30Z" }, "2026-10-25T01:20:00Z"],
	["it arrives an hour before", { receivedAt: "2026-10-25T00:20:30Z" }, "2026-10-25T00:20:00Z"],
	[
		"an earlier event has the first one, and the second is still to come",
		{ after: "2026-10-25T00:55:00Z", receivedAt: "2026-10-25T00:56:00Z" },
		"2026-10-25T00:20:00Z",
	],
	["it arrives a day later", { receivedAt: "2026-10-26T01:20:30Z" }, "2026-10-25T00:20:00Z"],
])("of a local time that occurs twice, when %s, the instant is this", (_, given, utc) => {
	const { after, receivedAt }: { after?: string; receivedAt?: string } = given;
	const timeOf = (text: string | undefined) => (text === undefined ? undefined : micros(text));
	const context = { after: timeOf(after), receivedAt: timeOf(receivedAt) };
	expect(eventTimes("2026-10-25T02:20:00", "Europe/Berlin", context)?.at).toBe(micros(utc));
	// A time that is skipped has one instant, whatever is known.
	expect(eventTimes("2026-03-29T02:30:00", "Europe/Berlin", context)?.at).toBe(micros("2026-03-29T01:30:00Z"));
});
