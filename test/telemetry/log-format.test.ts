import { stripVTControlCharacters } from "node:util";
import { describe, expect, test } from "vitest";
import { createLogger, type Logger } from "../../src/telemetry/log.ts";
import { type LogFormat, lineFormat } from "../../src/telemetry/log-output.ts";

const TIME = "05:01:36.123Z";
const ISO = `2026-11-22T${TIME}`;

/** Returns the lines that an action logs in a format, all with the same time. */
function logged(format: LogFormat, isTerminal: boolean, action: (log: Logger) => void): string {
	const form = lineFormat(format, isTerminal);
	let text = "";
	const write = (line: string): void => {
		text += form(line.replace(/"time":"[^"]*"/, `"time":"${ISO}"`));
	};
	action(createLogger("info", { write }));
	return stripVTControlCharacters(text);
}

const twoLines = (log: Logger): void => {
	log.emit("listening", { listener: "http", address: "127.0.0.1:8080" });
	log.emit("stopped");
};
const PRETTY = `${TIME} INFO  Listening (listening) { listener: 'http', address: '127.0.0.1:8080' }
${TIME} INFO  The service has stopped (stopped)
`;

describe("the log", () => {
	test.each([
		["auto", true],
		["pretty", true],
		["pretty", false],
	] as const)("is pretty with LOG_FORMAT=%s and a terminal: %s", (format, isTerminal) => {
		expect(logged(format, isTerminal, twoLines)).toBe(PRETTY);
	});

	test.each([
		["auto", false],
		["json", false],
		["json", true],
	] as const)("is JSON with LOG_FORMAT=%s and a terminal: %s", (format, isTerminal) => {
		const lines = logged(format, isTerminal, twoLines).trimEnd().split("\n");
		expect(lines.map((line) => JSON.parse(line))).toMatchObject([
			{ level: "info", time: ISO, event: "listening", address: "127.0.0.1:8080", msg: "Listening" },
			{ level: "info", time: ISO, event: "stopped" },
		]);
	});
});

test("a pretty line escapes control characters", () => {
	const operation = "GET /\u001b[2J\u009b2J\u0007\r\nforged";
	const text = logged("pretty", true, (log) => log.requestFailed({ transport: "http", operation }, new Error("x")));
	// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for them
	expect(text.replaceAll("\n", "")).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
	expect(text).toContain("operation: 'GET /\\x1B[2J\\x9B2J\\x07\\r\\nforged'");
});

test("a pretty line shows nested fields in full, on indented lines", () => {
	const text = logged("pretty", true, (log) =>
		log.emit("store_failed", {}, new Error("the disk", { cause: new Error("is full") })),
	);
	expect(text).toMatch(/^05:01:36.123Z ERROR The store failed \(store_failed\) \{\n/);
	expect(text).toMatch(/\n {8,}message: 'is full',\n/);
	expect(text).toMatch(/log-format\.test\.ts:\d+:\d+/);
	for (const line of text.trimEnd().split("\n").slice(1)) expect(line).toMatch(/^ {2}/);
});
