// `npm test`: the checks of the source and then the test suites. `npm run check` (with --checks): the checks alone.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { z } from "zod";
import { filesBelow } from "./files.ts";
import { ROOT } from "./start-command.ts";

/** Longest time that one step may take, in milliseconds. */
const STEP_TIMEOUT = 10 * 60_000;

interface Count {
	readonly passed: number;
	readonly failed: number;
}

interface Step {
	readonly name: string;
	/** Gives what is wrong, or nothing; its output is shown only then. */
	readonly run: (temp: string) => Promise<string | undefined>;
}

const checks: readonly Step[] = [
	{ name: "types", run: () => succeeds("tsc", "--project", ".") },
	{ name: "lint and format", run: () => succeeds("biome", "check", "--error-on-warnings", ".") },
	{ name: "proto lint", run: () => succeeds("buf", "lint") },
	{ name: "proto format", run: () => succeeds("buf", "format", "--diff", "--exit-code") },
	{ name: "proto compatibility", run: () => succeeds("buf", "breaking", "proto", "--against", "proto/baseline.binpb") },
	{ name: "generated code is current", run: currentCode },
	{ name: "one copy of each runtime", run: async () => oneCopyOfEachRuntime() },
];

/** Runs a tool of node_modules/.bin and gives its output when it fails. */
async function succeeds(tool: string, ...args: readonly string[]): Promise<string | undefined> {
	const { code, output } = await runTool(tool, args, false);
	return code === 0 ? undefined : output;
}

function runTool(
	tool: string,
	args: readonly string[],
	stream: boolean,
): Promise<{ code: number | null; output: string }> {
	const bin = join(ROOT, "node_modules", ".bin");
	// The tools' own scripts find `node` by PATH, which must be the pinned one.
	const path = `${bin}${delimiter}${process.env.PATH ?? ""}`;
	const env = { ...process.env, PATH: path, ...(process.stdout.isTTY ? {} : { NO_COLOR: "1" }) };
	return new Promise((resolve, reject) => {
		const child = spawn(join(bin, tool), args, {
			cwd: ROOT,
			env,
			timeout: STEP_TIMEOUT,
			stdio: ["ignore", stream ? "inherit" : "pipe", stream ? "inherit" : "pipe"],
		});
		let output = "";
		const collect = (text: Buffer) => {
			output += text.toString();
		};
		child.stdout?.on("data", collect);
		child.stderr?.on("data", collect);
		child.on("error", reject);
		child.on("close", (code, signal) => resolve({ code, output: signal === null ? output : `${output}\n${signal}` }));
	});
}

async function currentCode(temp: string): Promise<string | undefined> {
	const problem = await succeeds("buf", "generate", "--template", "proto/buf.gen.yaml", "--output", temp);
	if (problem !== undefined) return problem;
	const [committed, generated] = [filesBelow(join(ROOT, "gen")), filesBelow(join(temp, "gen"))];
	const names = new Set([...committed.keys(), ...generated.keys()]);
	const stale = [...names].filter((name) => committed.get(name) !== generated.get(name));
	return stale.length === 0 ? undefined : `out of date, run "npm run generate":\n  ${stale.sort().join("\n  ")}`;
}

const manifest = z.object({ dependencies: z.record(z.string(), z.string()) });
const lockfile = z.object({ packages: z.record(z.string(), z.unknown()) });

/** Two copies of a library do not recognise each other's messages, errors and symbols. */
function oneCopyOfEachRuntime(): string | undefined {
	const { dependencies } = manifest.parse(JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")));
	const { packages } = lockfile.parse(JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")));
	const problems = Object.keys(dependencies).flatMap((name) => {
		const copies = Object.keys(packages).filter((path) => path.endsWith(`node_modules/${name}`));
		return copies.length === 1 ? [] : [`${name}: ${copies.join(", ") || "not in package-lock.json"}`];
	});
	return problems.length === 0 ? undefined : problems.join("\n");
}

const report = z.object({ numPassedTests: z.int(), numFailedTests: z.int(), numPendingTests: z.int() });

/** Runs the test suites, their output as it comes. */
async function runTests(temp: string): Promise<Count> {
	const file = join(temp, "report.json");
	const { code } = await runTool(
		"vitest",
		["run", "--reporter=dot", "--reporter=json", `--outputFile.json=${file}`],
		true,
	);
	try {
		const { numPassedTests, numFailedTests, numPendingTests } = report.parse(JSON.parse(readFileSync(file, "utf8")));
		// A test that is skipped proves nothing, and a run can fail without a failed test, by an error outside of them.
		const failed = numFailedTests + numPendingTests;
		return { passed: numPassedTests, failed: code === 0 ? failed : Math.max(failed, 1) };
	} catch (error) {
		console.log(`no report of the tests: ${String(error)}`);
		return { passed: 0, failed: 1 };
	}
}

async function runChecks(temp: string): Promise<Count> {
	let failed = 0;
	for (const { name, run } of checks) {
		const started = performance.now();
		const problem = await run(temp).catch((error: unknown) => String(error));
		const seconds = ((performance.now() - started) / 1000).toFixed(1);
		console.log(`${problem === undefined ? "passed" : "FAILED"}  ${name} (${seconds} s)`);
		if (problem !== undefined) {
			failed++;
			console.log(problem.replace(/^/gm, "    "));
		}
	}
	return { passed: checks.length - failed, failed };
}

const temp = mkdtempSync(join(tmpdir(), "conversations-checks-"));
try {
	const counts = [await runChecks(temp)];
	if (!process.argv.includes("--checks")) counts.push(await runTests(temp));
	const sum = (count: (counted: Count) => number) => counts.reduce((total, counted) => total + count(counted), 0);
	const failed = sum((counted) => counted.failed);
	if (failed > 0) process.exitCode = 1;
	console.log(`${sum((counted) => counted.passed)} passed, ${failed} failed`);
} finally {
	rmSync(temp, { recursive: true, force: true });
}
