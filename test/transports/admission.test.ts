import { expect, test } from "vitest";
import { ServiceError } from "../../src/errors.ts";
import { Admission } from "../../src/transports/admission.ts";

test("the limit falls by one for each request that took more than a second, and rises by one for each other", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const held: (() => void)[] = [];
	/** Does work of some milliseconds so many times. Returns how many requests are then admitted until one is refused. */
	const admitted = (times: number, milliseconds: number): number => {
		for (const leave of held.splice(0)) leave();
		for (let count = 0; count < times; count++) {
			const done = admission.enter("ingest").startWork();
			now += milliseconds;
			done();
		}
		expect(() => {
			for (;;) held.push(admission.enter("ingest").hold());
		}).toThrow(refusal);
		expect(admission.underWay("ingest").requests).toBe(held.length);
		return held.length;
	};
	expect(admitted(0, 0)).toBe(512);
	expect(admitted(2, 1_001)).toBe(510);
	expect(admitted(1, 1_000)).toBe(511);
	// The limit never rises above 512 and never falls below 64.
	expect(admitted(10, 1)).toBe(512);
	expect(admitted(600, 60_000)).toBe(64);
	expect(admitted(3, 1)).toBe(67);
	// Reads have a limit of their own.
	for (let count = 0; count < 1_024; count++) admission.enter("read");
	expect(() => admission.enter("read")).toThrow(refusal);
});

test("slow bodies and unread responses leave room for other requests, up to the maximum", () => {
	let now = 0;
	const admission = new Admission(1_000_000, {}, () => now);
	const refusal = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const enter = () => admission.enter("ingest");
	const work = (milliseconds: number): void => {
		const done = enter().startWork();
		now += milliseconds;
		done();
	};
	for (let count = 0; count < 200; count++) enter().hold();
	for (let count = 0; count < 100; count++) {
		const permit = enter();
		permit.hold();
		permit.startWork()();
	}
	for (let count = 0; count < 512; count++) work(1_001);
	// The limit is 64 now: 60 requests that are processed and 4 that have just arrived.
	for (let count = 0; count < 60; count++) enter().startWork();
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

test("a body that takes over five seconds is aborted for another request if such bodies hold more than half", () => {
	let now = 0;
	const admission = new Admission(1_000_000, { ingest: { requests: 4, bytes: 1_000 } }, () => now);
	const lost: string[] = [];
	const enter = (name: string, bytes = 0) => {
		const permit = admission.enter("ingest", undefined, (error) =>
			lost.push(`${name}: ${error.kind}: ${error.message}`),
		);
		permit.reserve(bytes);
		return { permit, leave: permit.hold() };
	};
	const lostAs = (name: string) => `${name}: unavailable: The body takes too long to arrive; try again later`;
	const many = new ServiceError("unavailable", "Too many requests are under way; try again later");
	const slow = ["a", "b", "c", "d"].map((name) => enter(name));
	now = 5_000;
	expect(() => enter("early")).toThrow(many);
	now = 5_001;
	const others = ["e", "f"].map((name) => enter(name));
	expect(lost).toEqual(["d", "c"].map(lostAs));
	expect(() => enter("g")).toThrow(many);
	// Their handlers release them later, which must not count a second time.
	for (const { permit, leave } of slow.slice(2)) {
		permit.reserve(1_000);
		leave();
	}
	expect(admission.underWay("ingest")).toEqual({ requests: 4, bytes: 0 });
	// A request whose body has arrived may be processed for any time.
	for (const { permit } of [...slow.slice(0, 2), ...others]) permit.startWork();
	now = 100_000;
	expect(() => enter("h")).toThrow(many);
	for (const { leave } of others) leave();
	expect(lost).toHaveLength(2);
});

test("slow bodies are aborted for the bytes of other requests until they hold at most half of all bytes", () => {
	let now = 0;
	const admission = new Admission(1_000_000, { ingest: { requests: 100, bytes: 1_000 } }, () => now);
	const lost: string[] = [];
	const [a] = Object.entries({ a: 200, b: 200, c: 300, d: 200 }).map(([name, bytes]) => {
		const permit = admission.enter("ingest", undefined, () => lost.push(name));
		permit.reserve(bytes);
		return permit;
	});
	expect(() => admission.enter("ingest")).toThrow("too much memory");
	now = 5_001;
	const e = admission.enter("ingest");
	expect(lost).toEqual(["d"]);
	e.reserve(400);
	expect(lost).toEqual(["d", "c"]);
	// The two oldest bodies hold less than half of the bytes, and keep them.
	expect(() => e.reserve(201)).toThrow("too much memory");
	e.reserve(200);
	expect(() => a?.reserve(1)).toThrow("too much memory");
	expect(lost).toEqual(["d", "c"]);
	expect(admission.underWay("ingest")).toEqual({ requests: 3, bytes: 1_000 });
});

test("a watch, which has no body to wait for, is never aborted for another request", () => {
	let now = 0;
	const admission = new Admission(1_000_000, { watch: { requests: 1, bytes: 1_000 } }, () => now);
	const giveUp = (): never => {
		throw new Error("given up");
	};
	admission.enter("watch", undefined, giveUp);
	now = 100_000;
	expect(() => admission.enter("watch", undefined, giveUp)).toThrow("Too many requests are under way");
});
