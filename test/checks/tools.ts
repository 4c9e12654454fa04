import { execFile } from "node:child_process";
import { delimiter, join } from "node:path";
import { ROOT } from "../support/start-command.ts";

const BIN = join(ROOT, "node_modules", ".bin");

/** Timeout of a test that runs a tool, in milliseconds. */
export const TOOL_TIMEOUT = 300_000;

/** Exit code of a tool, and what it printed. */
export interface Outcome {
	readonly code: number;
	readonly output: string;
}

/**
 * Runs a tool of node_modules/.bin in the project's folder, on the Node.js that is pinned there.
 *
 * @param signal kills the tool when it fires, because the test is over
 */
export function runTool(signal: AbortSignal, tool: string, ...args: readonly string[]): Promise<Outcome> {
	const env = { ...process.env, PATH: `${BIN}${delimiter}${process.env.PATH ?? ""}`, NO_COLOR: "1" };
	return new Promise((resolve, reject) => {
		execFile(join(BIN, tool), args, { cwd: ROOT, env, signal, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
			const output = stdout + stderr;
			if (error === null) resolve({ code: 0, output });
			else if (typeof error.code === "number") resolve({ code: error.code, output });
			else reject(error);
		});
	});
}
