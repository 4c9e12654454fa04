import { expect, test } from "vitest";
import { cost, duration } from "../../console/src/parts/format.ts";

test.each([
	[0, "0.0 s"],
	[9_940, "9.9 s"],
	[9_960, "10 s"],
	[59_499, "59 s"],
	[59_700, "1 min 0 s"],
	[239_600, "4 min 0 s"],
	[3_599_800, "1 h 0 min"],
	[7_260_000, "2 h 1 min"],
	[180_000_000, "2 d 2 h"],
])("a duration of %d ms is written as %s", (milliseconds, text) => {
	expect(duration(milliseconds)).toBe(text);
});

test.each([
	[1.84, "$1.84"],
	[0.0031, "$0.0031"],
	[-0.71, "-$0.71"],
	[0, "$0.00"],
])("a cost of %d is written as %s", (value, text) => {
	expect(cost(value)).toBe(text);
});
