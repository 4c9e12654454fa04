import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { LogOutput } from "../../src/telemetry/log-output.ts";
import { TempFolder } from "../support/temp.ts";

const WRITER = join(import.meta.dirname, "log-writer.ts");
/** Far more lines than fit into a pipe and into what waits. */
const MANY = 20_000;

let writer: ChildProcess | undefined;

afterEach(() => {
	writer?.kill("SIGKILL");
	writer = undefined;
});

/** @param patience milliseconds for which the writer waits at its end until its lines are read */
function start(stdout: "pipe" | number, patience: number): ChildProcess {
	const stdio: StdioOptions = ["ignore", stdout, "inherit", "ipc"];
	writer = spawn(process.execPath, [WRITER, String(patience)], { stdio });
	return writer;
}

/** Has the writer log lines; resolves with the number of all that it has logged, and of those that were dropped. */
async function log(child: ChildProcess, lines: number): Promise<unknown> {
	const logged = once(child, "message");
	child.send(lines);
	return (await logged)[0];
}

/** Lets the writer end; gives its exit status. */
async function end(child: ChildProcess): Promise<unknown> {
	const ended = once(child, "exit");
	child.disconnect();
	return (await ended)[0];
}

/** What lines tell: the number of a line, or how many were dropped. */
function told(text: string): unknown[] {
	const lines = text.split("\n");
	expect(lines.pop()).toBe("");
	return lines.map((line) => {
		const { event, address, lines: dropped, level } = JSON.parse(line);
		return event === "listening" ? Number(address) : { event, level, dropped };
	});
}

test("lines for a pipe that nobody reads wait up to a bound; further ones are dropped, counted and told", async () => {
	const child = start("pipe", 60_000);
	expect(await log(child, MANY)).toMatchObject({ written: MANY });
	let text = "";
	child.stdout?.setEncoding("utf8").on("data", (part: string) => {
		text += part;
	});
	await expect.poll(() => text, { timeout: 60_000 }).toContain("log_lines_dropped");
	const last = await log(child, 2);
	expect(await end(child)).toBe(0);
	const all = told(text);
	const kept = all.length - 3;
	// What waits is bounded by 1 MiB, and some lines were in the pipe.
	expect(kept).toBeGreaterThan(5_000);
	expect(kept).toBeLessThan(15_000);
	const numbers = Array.from({ length: kept }, (_, number) => number);
	const dropped = { event: "log_lines_dropped", level: "error", dropped: MANY - kept };
	expect(all).toEqual([...numbers, dropped, MANY, MANY + 1]);
	expect(last).toEqual({ written: MANY + 2, dropped: MANY - kept });
});

test("a reader that is slow gets every line, also those at the end", async () => {
	const child = start("pipe", 60_000);
	expect(await log(child, 2_000)).toEqual({ written: 2_000, dropped: 0 });
	const ended = end(child);
	let text = "";
	child.stdout?.setEncoding("utf8").on("data", (part: string) => {
		text += part;
	});
	expect(await ended).toBe(0);
	await expect.poll(() => text.split("\n").length).toBe(2_001);
	expect(told(text)).toEqual(Array.from({ length: 2_000 }, (_, number) => number));
});

describe("what cannot be written at all holds up neither the program nor its end", () => {
	test("a pipe that is closed", async () => {
		const child = start("pipe", 100);
		expect(await log(child, 1)).toEqual({ written: 1, dropped: 0 });
		child.stdout?.destroy();
		expect(await log(child, MANY)).toMatchObject({ written: MANY + 1 });
		expect(await end(child)).toBe(0);
	});

	test.skipIf(process.platform !== "linux")("a disk that is full", async () => {
		const full = openSync("/dev/full", "w");
		const child = start(full, 100);
		closeSync(full);
		expect(await log(child, MANY)).toMatchObject({ written: MANY });
		expect(await end(child)).toBe(0);
	});

	test("a descriptor that is not open for writing", async () => {
		using folder = new TempFolder();
		const file = openSync(folder.file("empty"), "a");
		closeSync(file);
		const unwritable = openSync(folder.file("empty"), "r");
		const output = new LogOutput(unwritable, (line) => line);
		const reports: number[] = [];
		output.onDropped((lines) => reports.push(lines));
		for (let line = 0; line < MANY; line++) output.write(`${"x".repeat(100)}\n`);
		await output.end(20);
		expect(reports).toEqual([]);
		// A MiB of lines of 101 bytes waits.
		expect(output.dropped).toBe(MANY - Math.floor(2 ** 20 / 101));
		closeSync(unwritable);
	});
});

test("lines for a file are there when the call returns, in the form that was asked for", () => {
	using folder = new TempFolder();
	const file = openSync(folder.file("log"), "a");
	const output = new LogOutput(file, (line) => `${line.trimEnd()}!\n`);
	output.write("one\n");
	output.write("two\n");
	expect(readFileSync(folder.file("log"), "utf8")).toBe("one!\ntwo!\n");
	closeSync(file);
});
