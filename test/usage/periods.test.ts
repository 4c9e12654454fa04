import fc from "fast-check";
import { expect, test } from "vitest";
import { type Period, periodsOf, type Step, timeZone } from "../../src/usage/periods.ts";

const QUARTER = 900_000;
const zones = fc.constantFrom(...Intl.supportedValuesOf("timeZone"), "UTC");
/** Quarters of an hour from 2012 to 2037. */
const quarter = fc.integer({ min: Date.UTC(2012, 1) / QUARTER, max: Date.UTC(2037, 0) / QUARTER });

function periods(step: Step, zone: string, first: number, beyond: number): Period[] {
	const offsetAt = timeZone(zone);
	if (offsetAt === undefined) throw new Error(`${zone} is not known`);
	const found = periodsOf(step, offsetAt, [{ first, beyond }], 10_000);
	if (found === undefined) throw new Error("there are more periods");
	return found;
}

/** Returns a function that returns the text of a period to which a time belongs, by Intl alone. */
function namesOf(step: "hour" | "day" | "month", zone: string): (time: number) => string {
	const format = new Intl.DateTimeFormat("en-CA", {
		timeZone: zone,
		year: "numeric",
		month: "2-digit",
		day: step === "month" ? undefined : "2-digit",
		hour: step === "hour" ? "2-digit" : undefined,
		hourCycle: "h23",
	});
	return (time) => format.format(time);
}

test.each(["hour", "day", "month"] as const)(
	"a %s has all times that Intl shows with its date, and no other",
	(step) => {
		const length = { hour: 100, day: 96 * 20, month: 96 * 100 }[step];
		fc.assert(
			fc.property(zones, quarter, fc.integer({ min: 1, max: length }), (zone, first, count) => {
				const found = periods(step, zone, first, first + count);
				const nameOf = namesOf(step, zone);
				expect([found.at(0)?.first, found.at(-1)?.beyond]).toEqual([first, first + count]);
				for (const [n, { start, first: from, beyond }] of found.entries()) {
					if (start === undefined) throw new Error("a period has a start");
					const after = found[n + 1];
					if (after !== undefined) expect([after.first, after.start]).toEqual([beyond, beyond * QUARTER]);
					expect(nameOf(start)).toBe(nameOf(from * QUARTER));
					expect(nameOf(beyond * QUARTER - 1)).toBe(nameOf(start));
					// Where the clocks are set back by an hour, the same hour is shown twice.
					if (step !== "hour" && after !== undefined) expect(nameOf(beyond * QUARTER)).not.toBe(nameOf(start));
					if (step !== "hour") expect(nameOf(start - 1)).not.toBe(nameOf(start));
				}
			}),
			{ numRuns: 400 },
		);
	},
);

test("weeks begin on Monday, also where the clocks change", () => {
	const first = Date.UTC(2026, 2, 25) / QUARTER;
	const weeks = periods("week", "Europe/Berlin", first, first + 96 * 9);
	expect(weeks.map(({ start = 0 }) => new Date(start).toISOString())).toEqual([
		"2026-03-22T23:00:00.000Z",
		"2026-03-29T22:00:00.000Z",
	]);
});

test("hours of a zone where the clocks change by half an hour begin at whole hours, or with the change", () => {
	const first = Date.UTC(2026, 9, 3, 13, 30) / QUARTER;
	const hours = periods("hour", "Australia/Lord_Howe", first, first + 14);
	expect(hours.map(({ start = 0 }) => new Date(start).toISOString().slice(11, 16))).toEqual([
		"13:30",
		"14:30",
		"15:30",
		"16:00",
	]);
});

test("a name that is no time zone is not known, and neither is an offset", () => {
	expect([timeZone("Europe/Nowhere"), timeZone("+02:00"), timeZone("../UTC")]).toEqual([
		undefined,
		undefined,
		undefined,
	]);
});

test("more periods than the limit are none", () => {
	expect(periodsOf("hour", () => 0, [{ first: 0, beyond: 41 }], 10)).toBeUndefined();
});

test("the periods of spans are those of the whole range that have quarters of a span", () => {
	const span = fc.record({ after: fc.nat(96 * 60), length: fc.integer({ min: 1, max: 200 }) });
	const zone = fc.constantFrom("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Auckland");
	const step = fc.constantFrom("hour", "day", "week", "month", "none");
	fc.assert(
		fc.property(step, zone, quarter, fc.array(span, { minLength: 1, maxLength: 5 }), (of, name, from, gaps) => {
			let end = from;
			const spans = gaps.map(({ after, length }) => {
				const first = end + after;
				end = first + length;
				return { first, beyond: end };
			});
			const whole = periods(of, name, spans[0]?.first ?? 0, end);
			const expected = whole.filter((period) =>
				spans.some(({ first, beyond }) => first < period.beyond && beyond > period.first),
			);
			const offsetAt = timeZone(name) ?? (() => 0);
			expect(periodsOf(of, offsetAt, spans, 10_000)).toEqual(expected);
		}),
		{ numRuns: 100 },
	);
});
