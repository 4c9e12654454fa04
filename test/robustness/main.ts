import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Random, SEED, seedProperties } from "../support/random.ts";
import { Report } from "./report.ts";
import type { Run } from "./run.ts";
import { RUNS } from "./runs.ts";

/** Maximum duration of a run, in milliseconds. */
const MAX_DURATION = 30 * 60_000;

const USAGE = `Usage: npm run test:robustness -- [options] [name...]

  --short    as much as the tests run
  --count N  how much of each run, in place of what is written beside it

The environment variable TEST_SEED repeats the random choices of another run.

Runs:
${RUNS.map(({ name, about, counted, long, short }) => `  ${name.padEnd(16)} ${about}\n${" ".repeat(19)}${long} ${counted}, or ${short}`).join("\n")}
`;

/** Executes the selected runs, one after the other. */
async function main(chosen: readonly Run[], countOf: (run: Run) => number): Promise<void> {
	process.stdout.write(`seed ${SEED}\n`);
	seedProperties();
	let broken = 0;
	for (const run of chosen) {
		const count = countOf(run);
		process.stdout.write(`\n${run.name}: ${run.about}; ${count} ${run.counted}\n`);
		const start = performance.now();
		const report = new Report((line) => process.stderr.write(`  ${line}\n`), true);
		const interrupted = (): never => {
			report.breaks("the run was interrupted");
			printReport(report, start);
			// Also ends the services, by their exit listeners.
			process.exit(1);
		};
		process.once("SIGINT", interrupted).once("SIGTERM", interrupted);
		const given = run.run(count, Random.ofSeed().of(run.name), report).catch((error) => {
			report.breaks(`the run itself failed: ${error instanceof Error ? error.stack : String(error)}`);
		});
		const ended = await Promise.race([given.then(() => true), delay(MAX_DURATION, false, { ref: false })]);
		report.expect(ended, `the run did not end in ${MAX_DURATION / 60_000} minutes`);
		printReport(report, start);
		process.off("SIGINT", interrupted).off("SIGTERM", interrupted);
		broken += report.broken.length;
		// Work that the run has left would disturb the next run.
		if (!ended) break;
	}
	process.stdout.write(`\n${broken === 0 ? "no law was broken" : `laws were broken; seed ${SEED}`}\n`);
	// Also ends work that a run has left.
	process.exit(broken > 0 ? 1 : 0);
}

/** Prints a run's counts, figures, violations and duration. */
function printReport(report: Report, start: number): void {
	for (const line of report.lines()) process.stdout.write(`  ${line}\n`);
	for (const violation of report.broken) process.stdout.write(`  BROKEN: ${violation}\n`);
	process.stdout.write(`  ${Math.round((performance.now() - start) / 1000)} s\n`);
}

/** @throws Error when the arguments are not valid */
function readArguments(args: readonly string[]) {
	const { values, positionals } = parseArgs({
		args: [...args],
		allowPositionals: true,
		options: { short: { type: "boolean", default: false }, count: { type: "string" } },
	});
	const unknown = positionals.filter((name) => !RUNS.some((run) => run.name === name));
	if (unknown.length > 0) throw new Error(`there is no run ${unknown.join(", ")}`);
	const count = values.count === undefined ? undefined : Number(values.count);
	if (count !== undefined && !(Number.isInteger(count) && count > 0))
		throw new Error("--count must be a whole number from 1");
	return {
		chosen: RUNS.filter(({ name }) => positionals.length === 0 || positionals.includes(name)),
		countOf: ({ long, short }: Run) => count ?? (values.short ? short : long),
	};
}

let settings: ReturnType<typeof readArguments> | undefined;
try {
	settings = readArguments(process.argv.slice(2));
} catch (error) {
	process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`);
	process.exitCode = 2;
}
if (settings !== undefined) await main(settings.chosen, settings.countOf);
