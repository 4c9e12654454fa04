import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { Admission } from "../../src/transports/admission.ts";

test("one request fewer is taken for each that took more than a second, and one more for each that did not", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const first = admission.enter("ingest");
	first.hold();
	const held: (() => void)[] = [];
	/** How many are taken until one is refused, after work that took some time was done so often. */
	const taken = (times: number, milliseconds: number): number => {
		for (const leave of held.splice(0)) leave();
		for (let count = 0; count < times; count++) {
			const done = first.work();
			now += milliseconds;
			done();
		}
		expect(() => {
			for (;;) held.push(admission.enter("ingest").hold());
		}).toThrow(refusal);
		expect(admission.underWay("ingest").requests).toBe(1 + held.length);
		return 1 + held.length;
	};
	expect(taken(0, 0)).toBe(512);
	expect(taken(2, 1_001)).toBe(510);
	expect(taken(1, 1_000)).toBe(511);
	// Never more than the bound, and few in any case.
	expect(taken(10, 1)).toBe(512);
	expect(taken(600, 60_000)).toBe(64);
	expect(taken(3, 1)).toBe(67);
	// Reads have a bound of their own.
	for (let count = 0; count < 1_024; count++) admission.enter("read");
	expect(() => admission.enter("read")).toThrow(refusal);
});
