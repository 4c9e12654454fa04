import { expect, test } from "vitest";
import { timeNames } from "../../console/src/parts/time-names.ts";

const at = (day: number, hour = 0, minute = 0, month = 4): number =>
	new Date(2026, month, day, hour, minute).getTime() / 1000;

/** Writes a local date as an axis does. */
const date = (day: number, month = 4): string =>
	new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }).format(new Date(2026, month, day));
const weekday = (day: number): string =>
	new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" }).format(
		new Date(2026, 4, day),
	);
const clock = (hour: number): string =>
	new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" }).format(new Date(2026, 4, 1, hour));

test("a single day is named by its date", () => {
	expect(timeNames([at(17)], "day")).toEqual([`${date(17)}\n2026`]);
});

test("days and weeks are named by their dates, and the year once", () => {
	expect(timeNames([at(16), at(17)], "day")).toEqual([`${date(16)}\n2026`, date(17)]);
	expect(timeNames([at(4), at(11)], "week")).toEqual([`${date(4)}\n2026`, date(11)]);
});

test("hours are named by the time of day, with the date where it begins", () => {
	expect(timeNames([at(17, 22), at(17, 23), at(18, 0), at(18, 1)], "hour")).toEqual([
		`${clock(22)}\n${weekday(17)}`,
		clock(23),
		`${clock(0)}\n${weekday(18)}`,
		clock(1),
	]);
});

test("months are named with the year where it begins", () => {
	const month = (index: number): string =>
		new Intl.DateTimeFormat(undefined, { month: "short" }).format(new Date(2026, index, 1));
	expect(timeNames([at(1, 0, 0, 11), at(1, 0, 0, 12)], "month")).toEqual([`${month(11)}\n2026`, `${month(0)}\n2027`]);
});

test("points in time are named by the time of day, or by the date where they are days apart", () => {
	expect(timeNames([at(17, 9), at(17, 10)], undefined)).toEqual([`${clock(9)}\n${date(17)}`, clock(10)]);
	expect(timeNames([at(17), at(19)], undefined)).toEqual([`${date(17)}\n2026`, date(19)]);
});
