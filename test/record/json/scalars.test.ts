import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
	formatDateTime,
	fromMicroseconds,
	parseDateTime,
	parseUuid,
	toMicroseconds,
} from "../../../src/record/json/scalars.ts";

describe("parseUuid", () => {
	const canonical = "2a940cac-6ac3-409b-bfb1-f7c2c97455db";

	test.each([
		canonical,
		canonical.toUpperCase(),
		"2A940cac6ac3409bbfb1f7c2c97455db",
		`{${canonical}}`,
		`urn:uuid:${canonical}`,
	])("converts %s to lower case with dashes", (text) => {
		expect(parseUuid(text)).toBe(canonical);
	});

	test.each([
		"",
		"x",
		`${canonical}0`,
		` ${canonical}`,
		`${canonical}\n`,
		`{${canonical}`,
		"{2a940cac6ac3409bbfb1f7c2c97455db}",
		"2a940cac6ac3-409b-bfb1-f7c2c97455db",
		"2a940cac-6ac3-409b-bfb1-f7c2c97455dg",
		`URN:UUID:${canonical}`,
		"urn:uuid:2a940cac6ac3409bbfb1f7c2c97455db",
	])("refuses %j", (text) => {
		expect(parseUuid(text)).toBeUndefined();
	});
});

describe("parseDateTime and formatDateTime", () => {
	test.each([
		["2026-11-21T08:55:04.109725", "2026-11-21T08:55:04.109725Z"],
		["2026-11-21t08:55:04z", "2026-11-21T08:55:04Z"],
		["2026-11-21T08:55", "2026-11-21T08:55:00Z"],
		["2026-11-21T08:55:04,5Z", "2026-11-21T08:55:04.500000Z"],
		["2026-11-21T08:55:04.1234567Z", "2026-11-21T08:55:04.123456Z"],
		["2026-11-21T08:55:04.000000Z", "2026-11-21T08:55:04Z"],
		["2026-11-21T08:55:04+05:30", "2026-11-21T03:25:04Z"],
		["2026-11-21T08:55:04-0800", "2026-11-21T16:55:04Z"],
		["2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00Z"],
		["2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"],
	])("write the date-time %s as %s", (text, written) => {
		const time = parseDateTime(text);
		expect(time && formatDateTime(time)).toBe(written);
	});

	test.each([
		"",
		"2026-11-21",
		"2026-11-21 08:55:04",
		"20261121T085504Z",
		"2026-11-21T08:55:04.Z",
		"2026-11-21T08:55:04+05",
		"2026-11-21T08:55:04+24:00",
		"2026-11-21T08:55:04+05:60",
		"2026-11-21T24:00:00Z",
		"2026-11-21T08:55:60Z",
		"2026-13-01T00:00:00Z",
		"2026-04-31T00:00:00Z",
		"2026-02-29T00:00:00Z",
		"1900-02-29T00:00:00Z",
		"0000-01-01T00:00:00Z",
		"0001-01-01T00:00:00+00:01",
		"9999-12-31T23:59:59-00:01",
		"2026-11-21T08:55:04Z\n",
	])("refuse %j", (text) => {
		expect(parseDateTime(text)).toBeUndefined();
	});

	const micros = fc.bigInt(-62_135_596_800_000_000n, 253_402_300_799_999_999n);

	test("keep any instant in range to the microsecond", () => {
		fc.assert(
			fc.property(micros, (instant) => {
				const time = fromMicroseconds(instant);
				const read = parseDateTime(formatDateTime(time));
				expect(read).toEqual(time);
				expect(read && toMicroseconds(read)).toBe(instant);
			}),
		);
	});

	test("write an instant out of range as text that is not a date-time", () => {
		for (const [seconds, nanos] of [
			[-62_135_596_801n, 0],
			[253_402_300_800n, 0],
			[2n ** 63n - 1n, 0],
			[0n, -1],
			[0n, 1_000_000_000],
		] as const)
			expect(parseDateTime(formatDateTime({ $typeName: "google.protobuf.Timestamp", seconds, nanos }))).toBeUndefined();
	});
});
