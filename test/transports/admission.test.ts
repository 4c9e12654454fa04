import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { Admission, type Stay } from "../../src/transports/admission.ts";

test("while work takes more than a second, 64 requests are taken and others refused", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	/** Work that is done after some time. */
	const work = (milliseconds: number): void => {
		const done = first.work();
		now += milliseconds;
		done();
	};
	const first = admission.enter("ingest");
	const held: Stay[] = [first];
	const enter = (count: number): void => {
		for (let entered = 0; entered < count; entered++) held.push(admission.enter("ingest"));
	};
	const whole = first.hold();
	work(1_001);
	enter(63);
	expect(() => admission.enter("ingest")).toThrow(refusal);
	// Reads have a wait of their own.
	expect(admission.enter("read")).toBeDefined();
	work(1_000);
	enter(10);
	expect(admission.underWay("ingest")).toEqual({ requests: 74, bytes: 0 });
	work(1_001);
	expect(() => admission.enter("ingest")).toThrow(refusal);
	whole();
	expect(admission.underWay("ingest")).toEqual({ requests: 73, bytes: 0 });
});
