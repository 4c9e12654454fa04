import { expect, test } from "vitest";
import { Random } from "../support/random.ts";
import { Report } from "./report.ts";
import { RUNS } from "./runs.ts";

// The short form of npm run test:robustness.
test.each(RUNS)("$name: $about", { timeout: 300_000 }, async ({ name, run, short }) => {
	const report = new Report();
	await run(short, Random.ofTest().of(name), report);
	expect(report.broken, report.lines().join("\n")).toEqual([]);
	expect(report.lines()).not.toEqual([]);
});
