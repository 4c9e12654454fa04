import { afterEach, expect, test } from "vitest";
import {
	dayText,
	isSameDay,
	rangeBefore,
	rangeOf,
	rangeWords,
	startOfDay,
	zone,
	zoneName,
} from "../../console/src/parts/days.ts";
import { timeOfDay } from "../../console/src/parts/format.ts";

afterEach(() => {
	zone.value = "local";
});

/** A Wednesday, shortly before midnight in UTC. */
const NOW = new Date("2026-11-25T23:30:00Z");

/** Writes a range by its first and last moments in UTC. */
function inUtc(text: string): readonly (string | undefined)[] | undefined {
	zone.value = "utc";
	const range = rangeOf(text, NOW);
	return range && [range.from?.toISOString().slice(0, 16), range.to?.toISOString().slice(0, 16)];
}

test.each([
	["today", "2026-11-25T00:00", "2026-11-26T00:00"],
	["Yesterday", "2026-11-24T00:00", "2026-11-25T00:00"],
	["last 7 days", "2026-11-19T00:00", "2026-11-26T00:00"],
	["last_1_day", "2026-11-25T00:00", "2026-11-26T00:00"],
	["last 24 hours", "2026-11-24T23:30", undefined],
	["this week", "2026-11-23T00:00", "2026-11-30T00:00"],
	["last_week", "2026-11-16T00:00", "2026-11-23T00:00"],
	["this_month", "2026-11-01T00:00", "2026-12-01T00:00"],
	["last month", "2026-10-01T00:00", "2026-11-01T00:00"],
	["2026-11-23", "2026-11-23T00:00", "2026-11-24T00:00"],
	["2026-11-20..2026-11-23", "2026-11-20T00:00", "2026-11-24T00:00"],
	["2026-11-20..", "2026-11-20T00:00", undefined],
	["..2026-11-23", undefined, "2026-11-24T00:00"],
])("%s is from %s to before %s in UTC", (text, from, to) => {
	expect(inUtc(text)).toEqual([from, to]);
});

test.each([
	"",
	"..",
	"tomorrow",
	"last days",
	"last 99999 days",
	"2026-02-30",
	"2026-11-23..2026-11-20",
	"2026-11-20..x",
	"a..b..c",
])("%j is no range", (text) => {
	expect(inUtc(text)).toBe(undefined);
});

test("days are those of the viewer, or of UTC", () => {
	const local = new Date(2026, 10, 23);
	expect([startOfDay("2026-11-23"), dayText(local), isSameDay(local, new Date(2026, 10, 23, 23, 59))]).toEqual([
		local,
		"2026-11-23",
		true,
	]);
	zone.value = "utc";
	expect(startOfDay("2026-11-23")).toEqual(new Date("2026-11-23T00:00:00Z"));
	expect(dayText(new Date("2026-11-23T23:59:59Z"))).toBe("2026-11-23");
	expect(timeOfDay(NOW)).toContain("30");
	expect(timeOfDay(NOW)).toMatch(/^(23|11)/);
	expect(zoneName()).toBe("UTC");
});

test.each([
	["last_7_days", "2026-11-12T00:00", "2026-11-19T00:00"],
	["yesterday", "2026-11-23T00:00", "2026-11-24T00:00"],
	["this_month", "2026-10-01T00:00", "2026-11-01T00:00"],
	["2026-03-01..2026-04-30", "2026-01-01T00:00", "2026-03-01T00:00"],
	["last_24_hours", "2026-11-23T23:30", "2026-11-24T23:30"],
])("before %s are as many days, or months", (text, from, to) => {
	zone.value = "utc";
	const range = rangeOf(text, NOW);
	const before = range && rangeBefore(range, NOW);
	expect([before?.from, before?.to].map((time) => time?.toISOString().slice(0, 16))).toEqual([from, to]);
});

test.each([
	["last_7_days", "last 7 days"],
	["2026-11-20..2026-11-23", "2026-11-20 to 2026-11-23"],
	["2026-11-20..", "2026-11-20 until now"],
	["..2026-11-23", "until 2026-11-23"],
])("%s is said as %s", (text, words) => {
	expect(rangeWords(text)).toBe(words);
});
