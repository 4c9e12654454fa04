import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { ROOT, START_ARGUMENTS } from "../../scripts/start-command.ts";
import { ServiceProcess } from "../support/child.ts";
import { TempFolder } from "../support/temp.ts";

const run = promisify(execFile);
/** Reports whether the engine's module that strips types was loaded. */
const REPORT = `data:text/javascript,${encodeURIComponent(`
	import { isMainThread } from "node:worker_threads";
	const strips = () => process.moduleLoadList.some((name) => name.includes("deps/amaro"));
	if (isMainThread) process.on("exit", () => process.stdout.write(JSON.stringify({ strips: strips() }) + "\\n"));
`)}`;

async function stripsTypes(env: Readonly<Record<string, string>> = {}): Promise<unknown> {
	using folder = new TempFolder();
	const command = ["--import", REPORT, ...START_ARGUMENTS];
	await using service = await ServiceProcess.start(folder.file("conversations.db"), env, command);
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	return (await service.logged((line) => "strips" in line)).strips;
}

test("a start finds all modules compiled once npm start has prepared them", async () => {
	expect(await run(process.execPath, ["scripts/compile.ts"], { cwd: ROOT })).toEqual({ stdout: "", stderr: "" });
	expect(await stripsTypes()).toBe(false);
});

test("a start without the cache strips types", async () => {
	expect(await stripsTypes({ NODE_DISABLE_COMPILE_CACHE: "1" })).toBe(true);
});
