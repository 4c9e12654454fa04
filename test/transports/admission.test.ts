import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { Admission, type Stay } from "../../src/transports/admission.ts";

test("when work takes more than a second, so many requests are taken that the last one waits for a second", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const held: (() => void)[] = [];
	const enter = (count: number): void => {
		for (let entered = 0; entered < count; entered++) held.push(admission.enter("ingest").hold());
	};
	/** Work on a request is done after some time, and the request is over. */
	const work = (stay: Stay, milliseconds: number): void => {
		const done = stay.work();
		now += milliseconds;
		done();
	};
	const others = admission.enter("ingest");
	const whole = others.hold();
	enter(511);
	expect(() => admission.enter("ingest")).toThrow(refusal);
	// Twice the time that a request may take: half of those under way.
	work(others, 2_000);
	for (const leave of held.splice(0, 256)) leave();
	expect(() => admission.enter("ingest")).toThrow(refusal);
	expect(admission.underWay("ingest")).toEqual({ requests: 256, bytes: 0 });
	// Reads have a wait of their own.
	expect(admission.enter("read")).toBeDefined();
	// Each that took no longer is room for one more.
	work(others, 1_000);
	work(others, 1);
	enter(2);
	expect(() => admission.enter("ingest")).toThrow(refusal);
	// Few are taken in any case.
	work(others, 60_000);
	for (const leave of held.splice(0)) leave();
	enter(63);
	expect(() => admission.enter("ingest")).toThrow(refusal);
	whole();
	enter(1);
	expect(admission.underWay("ingest")).toEqual({ requests: 64, bytes: 0 });
	// Never more than the bound.
	for (const leave of held.splice(0, 1)) leave();
	const last = admission.enter("ingest");
	held.push(last.hold());
	for (let count = 0; count < 1_000; count++) work(last, 1);
	enter(512 - 64);
	expect(() => admission.enter("ingest")).toThrow(refusal);
});
