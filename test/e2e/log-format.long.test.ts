import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { stripVTControlCharacters } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { ignorePipeErrors } from "../support/pipes.ts";
import { testEnvironment } from "../support/service.ts";
import { ROOT, START_ARGUMENTS } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";

let folder: TempFolder;

beforeEach(() => {
	folder = new TempFolder();
});
afterEach(() => folder[Symbol.dispose]());

const env = (more: Readonly<Record<string, string>> = {}) => ({
	...testEnvironment(folder.file("conversations.db")),
	// The start fails after its first line.
	DATABASE_URL: "sqlite:/dev/null/c.db",
	...more,
});

test("without a terminal, LOG_FORMAT=pretty writes text without colors", async () => {
	const { code, stdout, stderr } = await ServiceProcess.run(env({ LOG_FORMAT: "pretty" }));
	expect(code).toBe(1);
	expect(stderr).toMatch(/^The service cannot start: /);
	expect(stripVTControlCharacters(stdout)).toBe(stdout);
	expect(stdout).toMatch(/^[\d:.]+Z INFO {2}The service is starting \(starting\) \{\n/);
});

/** Returns whether the `script` of util-linux is installed, which runs a command on a pseudo-terminal. */
function hasScript(): boolean {
	try {
		return execFileSync("script", ["--version"], { encoding: "utf8" }).includes("util-linux");
	} catch {
		return false;
	}
}

test.skipIf(!hasScript()).each([
	["auto", "colored text", /^\S+Z ESC\[32mINFO ESC\[39m The service is starting ESC\[90m\(starting\)/],
	["json", "JSON", /^\{"level":"info",/],
])("on a terminal, LOG_FORMAT=%s writes %s", async (LOG_FORMAT, _, form) => {
	const command = [process.execPath, ...START_ARGUMENTS].join(" ");
	const terminal = spawn("script", ["-q", "-e", "-c", command, "/dev/null"], {
		cwd: ROOT,
		env: { ...env({ LOG_FORMAT, TERM: "xterm-256color" }), PATH: process.env.PATH },
		stdio: ["ignore", "pipe", "pipe"],
	});
	ignorePipeErrors(terminal);
	let text = "";
	terminal.stdout.setEncoding("utf8").on("data", (part: string) => {
		text += part;
	});
	expect((await once(terminal, "close"))[0]).toBe(1);
	expect(text.replaceAll("\u001b", "ESC")).toMatch(form);
	expect(text).toContain("The service cannot start");
});
