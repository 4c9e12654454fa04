import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { Admission } from "../../src/transports/admission.ts";

test("one request fewer is taken for each that took more than a second, and one more for each that did not", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const held: (() => void)[] = [];
	/** How many are taken until one is refused, after work that took some time was done so often. */
	const taken = (times: number, milliseconds: number): number => {
		for (const leave of held.splice(0)) leave();
		for (let count = 0; count < times; count++) {
			const done = admission.enter("ingest").work();
			now += milliseconds;
			done();
		}
		expect(() => {
			for (;;) held.push(admission.enter("ingest").hold());
		}).toThrow(refusal);
		expect(admission.underWay("ingest").requests).toBe(held.length);
		return held.length;
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

test("a body that takes long to arrive and an answer that nobody takes leave room for others, up to the bound", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const enter = () => admission.enter("ingest");
	const work = (milliseconds: number): void => {
		const done = enter().work();
		now += milliseconds;
		done();
	};
	for (let count = 0; count < 200; count++) enter().hold();
	for (let count = 0; count < 100; count++) {
		const permit = enter();
		permit.hold();
		permit.work()();
	}
	for (let count = 0; count < 512; count++) work(1_001);
	// 64 that are worked on, or have just come.
	for (let count = 0; count < 60; count++) enter().work();
	for (let count = 0; count < 4; count++) enter().hold();
	expect(enter).toThrow(refusal);
	expect(admission.underWay("ingest").requests).toBe(364);
	while (admission.underWay("ingest").requests < 512) {
		now += 1_001;
		for (let count = 0; count < 4; count++) enter().hold();
		expect(enter).toThrow(refusal);
	}
	now += 1_001;
	expect(enter).toThrow(refusal);
});
