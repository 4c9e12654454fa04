import { expect, test } from "vitest";
import { Readiness } from "../../src/telemetry/readiness.ts";

test("a service is ready while no check fails, and lists each failing check with the time since when it fails", () => {
	const changes: boolean[] = [];
	const readiness = new Readiness((ready) => changes.push(ready));
	expect([readiness.ready, readiness.failing]).toEqual([true, []]);
	readiness.set("store", true);
	readiness.set("store", false);
	const [{ since = "" } = {}] = readiness.failing;
	expect(new Date(since).toISOString()).toBe(since);
	readiness.set("accepting", false);
	readiness.set("store", false);
	expect(readiness.failing).toEqual([
		{ check: "store", since },
		{ check: "accepting", since: expect.any(String) },
	]);
	readiness.set("store", true);
	expect([readiness.ready, readiness.failing.map(({ check }) => check)]).toEqual([false, ["accepting"]]);
	readiness.set("accepting", true);
	expect(changes).toEqual([false, true]);
});
