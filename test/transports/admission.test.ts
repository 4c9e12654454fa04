import fc from "fast-check";
import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { Admission, type Permit } from "../../src/transports/admission.ts";

const MANY = new ServiceError("unavailable", "Too many requests are under way; try again later");
const LARGE = new ServiceError("unavailable", "Requests and responses under way use too much memory; try again later");

test.each([
	["ingest", 512],
	["read", 1_024],
	["watch", 2_000],
	["document", 64],
	["metrics", 16],
] as const)("%s: %d requests may be under way, and the other kinds are admitted beside them", (work, maximum) => {
	const admission = new Admission(1_000);
	const leave = Array.from({ length: maximum }, () => admission.enter(work).hold());
	expect(() => admission.enter(work)).toThrow(MANY);
	expect(admission.underWay(work)).toEqual({ requests: maximum, bytes: 0 });
	for (const other of ["ingest", "read"] as const) if (other !== work) admission.enter(other);
	leave[0]?.();
	admission.enter(work);
});

test("a permit counts until all its holders have released it, and has no effect afterwards", () => {
	const admission = new Admission(1_000);
	const permit = admission.enter("ingest");
	const [first, second] = [permit.hold(), permit.hold()];
	permit.reserve(600);
	first();
	first();
	expect(admission.underWay("ingest")).toEqual({ requests: 1, bytes: 600 });
	second();
	permit.reserve(600);
	permit.giveBack(600);
	permit.hold()();
	expect(admission.underWay("ingest")).toEqual({ requests: 0, bytes: 0 });
});

test("a request is refused as soon as no byte is left, a response of up to 4,096 bytes is not", () => {
	const admission = new Admission(1_000);
	const permit = admission.enter("read");
	const waiting = admission.enter("read");
	permit.reserve(1_000);
	expect(() => admission.enter("read")).toThrow(LARGE);
	expect(() => waiting.reserveResponse(4_097)).toThrow(LARGE);
	waiting.reserveResponse(4_096);
	expect(admission.underWay("read")).toEqual({ requests: 2, bytes: 1_000 });
	permit.giveBack(1);
	waiting.reserve(1);
	expect(admission.underWay("read")).toEqual({ requests: 2, bytes: 1_000 });
});

test("the bytes under way pass the limit for one request alone, and add up to what the requests hold", () => {
	const limit = 1_000;
	const step = fc.record({
		act: fc.constantFrom("enter", "reserve", "giveBack", "leave"),
		which: fc.nat(9),
		bytes: fc.nat(1_500),
	});
	fc.assert(
		fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
			const admission = new Admission(limit, { watch: { requests: 4, bytes: limit } });
			const live: { permit: Permit; leave: () => void; bytes: number }[] = [];
			for (const { act, which, bytes } of steps) {
				const held = live.reduce((sum, entry) => sum + entry.bytes, 0);
				const chosen = live[which % Math.max(live.length, 1)];
				if (act === "enter") {
					const refusal = live.length === 4 ? MANY : held >= limit ? LARGE : undefined;
					if (refusal !== undefined) expect(() => admission.enter("watch")).toThrow(refusal);
					else {
						const permit = admission.enter("watch");
						live.push({ permit, leave: permit.hold(), bytes: 0 });
					}
				} else if (chosen === undefined) continue;
				else if (act === "reserve") {
					if (held > chosen.bytes && held + bytes > limit) expect(() => chosen.permit.reserve(bytes)).toThrow(LARGE);
					else {
						chosen.permit.reserve(bytes);
						chosen.bytes += bytes;
					}
				} else if (act === "giveBack") {
					const given = Math.min(bytes, chosen.bytes);
					chosen.permit.giveBack(given);
					chosen.bytes -= given;
				} else {
					chosen.leave();
					live.splice(live.indexOf(chosen), 1);
				}
				const sum = live.reduce((total, entry) => total + entry.bytes, 0);
				expect(admission.underWay("watch")).toEqual({ requests: live.length, bytes: sum });
				// More than the limit only for a request that was alone when it reserved.
				if (live.filter((entry) => entry.bytes > 0).length > 1 && sum > limit)
					expect(Math.max(...live.map((entry) => entry.bytes))).toBeGreaterThan(limit);
			}
		}),
	);
});
