import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { ROOT, START_ARGUMENTS } from "../../scripts/start-command.ts";
import { ServiceProcess } from "../support/child.ts";
import { TempFolder } from "../support/temp.ts";

const run = promisify(execFile);
const THREADS = ["", "checkpointer", "intake", "reader", "writer"];
/** Tells of each thread, when it ends, whether it loaded the engine's module that strips types. */
const REPORT = `data:text/javascript,${encodeURIComponent(`
	import { writeSync } from "node:fs";
	import { threadName } from "node:worker_threads";
	process.on("exit", () => {
		const strips = process.moduleLoadList.some((name) => name.includes("deps/amaro"));
		writeSync(1, JSON.stringify({ thread: threadName, strips }) + "\\n");
	});
`)}`;

/** Which threads of a service strip types from their modules. */
async function stripping(env: Readonly<Record<string, string>>): Promise<Record<string, unknown>> {
	using folder = new TempFolder();
	const command = ["--import", REPORT, ...START_ARGUMENTS];
	await using service = await ServiceProcess.start(folder.file("conversations.db"), env, command);
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	const lines = THREADS.map((thread) => service.logged((line) => line.thread === thread));
	return Object.fromEntries((await Promise.all(lines)).map(({ thread, strips }) => [String(thread), strips]));
}

const each = (strips: boolean) => Object.fromEntries(THREADS.map((thread) => [thread, strips]));

test("a start finds all modules compiled once npm start has prepared them", async () => {
	using cache = new TempFolder();
	const env = { NODE_COMPILE_CACHE: cache.path };
	const compile = () => run(process.execPath, ["scripts/compile.ts"], { cwd: ROOT, env });
	expect(await compile()).toEqual({ stdout: "", stderr: "" });
	expect(await stripping(env)).toEqual(each(false));
	expect(await compile()).toEqual({ stdout: "", stderr: "" });
});

test("a start without the cache works, and strips types in every thread", async () => {
	expect(await stripping({ NODE_DISABLE_COMPILE_CACHE: "1" })).toEqual(each(true));
});
