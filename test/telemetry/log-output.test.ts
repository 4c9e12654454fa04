import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { LogOutput } from "../../src/telemetry/log-output.ts";
import { ignorePipeErrors } from "../support/pipes.ts";
import { TempFolder } from "../support/temp.ts";

const WRITER = join(import.meta.dirname, "log-writer.ts");
/** Number of lines: far more than fit into a pipe and into the lines that may wait. */
const MANY = 20_000;

let writer: ChildProcess | undefined;

afterEach(() => {
	writer?.kill("SIGKILL");
	writer = undefined;
});

/** @param endTimeout milliseconds that the writer waits at its end until its lines are read */
function start(stdout: "pipe" | number, endTimeout: number): ChildProcess {
	const stdio: StdioOptions = ["ignore", stdout, "inherit", "ipc"];
	writer = ignorePipeErrors(spawn(process.execPath, [WRITER, String(endTimeout)], { stdio }));
	return writer;
}

/** Lets the writer log lines. Returns how many lines it has logged in total, and how many of them were dropped. */
async function log(child: ChildProcess, lines: number): Promise<unknown> {
	const logged = once(child, "message");
	child.send(lines);
	return (await logged)[0];
}

/** Lets the writer end. Returns its exit code. */
async function end(child: ChildProcess): Promise<unknown> {
	const ended = once(child, "exit");
	child.disconnect();
	return (await ended)[0];
}

/** Parses lines of the writer: into their numbers, and into the fields of a line that reports dropped lines. */
function parsed(text: string): unknown[] {
	const lines = text.split("\n");
	expect(lines.pop()).toBe("");
	return lines.map((line) => {
		const { event, address, lines: dropped, level } = JSON.parse(line);
		return event === "listening" ? Number(address) : { event, level, dropped };
	});
}

test("lines for a pipe that nobody reads wait up to a limit, and further lines are dropped and reported", async () => {
	const child = start("pipe", 60_000);
	expect(await log(child, MANY)).toMatchObject({ written: MANY });
	let text = "";
	child.stdout?.setEncoding("utf8").on("data", (part: string) => {
		text += part;
	});
	await expect.poll(() => text, { timeout: 60_000 }).toContain("log_lines_dropped");
	const last = await log(child, 2);
	expect(await end(child)).toBe(0);
	const all = parsed(text);
	const kept = all.length - 3;
	// At most 1 MiB of lines waits, and some more lines were in the pipe.
	expect(kept).toBeGreaterThan(5_000);
	expect(kept).toBeLessThan(15_000);
	const numbers = Array.from({ length: kept }, (_, number) => number);
	const dropped = { event: "log_lines_dropped", level: "error", dropped: MANY - kept };
	expect(all).toEqual([...numbers, dropped, MANY, MANY + 1]);
	expect(last).toEqual({ written: MANY + 2, dropped: MANY - kept });
});

test("a slow reader receives every line, including the last ones before the program ends", async () => {
	const child = start("pipe", 60_000);
	expect(await log(child, 2_000)).toEqual({ written: 2_000, dropped: 0 });
	const ended = end(child);
	let text = "";
	child.stdout?.setEncoding("utf8").on("data", (part: string) => {
		text += part;
	});
	expect(await ended).toBe(0);
	await expect.poll(() => text.split("\n").length).toBe(2_001);
	expect(parsed(text)).toEqual(Array.from({ length: 2_000 }, (_, number) => number));
});

describe("output that cannot be written delays neither the program nor its end", () => {
	test("if the pipe is closed", async () => {
		const child = start("pipe", 100);
		expect(await log(child, 1)).toEqual({ written: 1, dropped: 0 });
		child.stdout?.destroy();
		expect(await log(child, MANY)).toMatchObject({ written: MANY + 1 });
		expect(await end(child)).toBe(0);
	});

	test.skipIf(process.platform !== "linux")("if the disk is full", async () => {
		const full = openSync("/dev/full", "w");
		const child = start(full, 100);
		closeSync(full);
		expect(await log(child, MANY)).toMatchObject({ written: MANY });
		expect(await end(child)).toBe(0);
	});

	test("if the file descriptor is not open for writing", async () => {
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
		// 1 MiB of lines of 101 bytes waits, and all others are dropped.
		expect(output.dropped).toBe(MANY - Math.floor(2 ** 20 / 101));
		// Stays open: it is tried again and again, and another file would get its number.
	});
});

test("lines for a file are written, in the given format, before the call returns", () => {
	using folder = new TempFolder();
	const file = openSync(folder.file("log"), "a");
	const output = new LogOutput(file, (line) => `${line.trimEnd()}!\n`);
	output.write("one\n");
	output.write("two\n");
	expect(readFileSync(folder.file("log"), "utf8")).toBe("one!\ntwo!\n");
	closeSync(file);
});

test("a line longer than the limit is dropped and reported, and the next line is written", async () => {
	using folder = new TempFolder();
	const file = openSync(folder.file("log"), "a");
	const output = new LogOutput(file, (line) => line);
	output.onDropped((lines) => output.write(`dropped ${lines}\n`));
	for (const line of ["one", "x".repeat(2 ** 20), "two"]) output.write(`${line}\n`);
	await expect.poll(() => readFileSync(folder.file("log"), "utf8")).toBe("one\ntwo\ndropped 1\n");
	closeSync(file);
});
