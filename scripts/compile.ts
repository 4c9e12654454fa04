// Runs before `npm start` and `npm run bench`: the first time, a trial start of the service fills the compile cache.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { COMPILE_CACHE } from "../src/compile-cache.mjs";
import { ROOT, START_ARGUMENTS } from "./start-command.ts";

/** Longest time that the trial may take, in milliseconds. */
const PATIENCE = 30_000;
/** The engine looks for compiled modules by its version and options. */
const COMMAND = [process.version, ...START_ARGUMENTS].join(" ");
const FILLED_BY = join(COMPILE_CACHE, "filled-by");

/** Starts the service on free ports and an empty database, and stops it: it compiles all that it loads. */
async function trial(): Promise<void> {
	const folder = await mkdtemp(join(tmpdir(), "conversations-compile-"));
	try {
		const child = spawn(process.execPath, START_ARGUMENTS, {
			cwd: ROOT,
			env: {
				HTTP_ADDRESS: "127.0.0.1:0",
				GRPC_ADDRESS: "127.0.0.1:0",
				DATABASE_URL: `sqlite:${join(folder, "conversations.db")}`,
			},
			stdio: ["ignore", "pipe", "ignore"],
			timeout: PATIENCE,
			killSignal: "SIGKILL",
		});
		const ended = once(child, "close");
		let listening = 0;
		for await (const line of createInterface(child.stdout)) {
			if (JSON.parse(line).event !== "listening") continue;
			listening += 1;
			if (listening === 2) child.kill("SIGTERM");
		}
		const [code] = await ended;
		if (code !== 0) throw new Error(`the trial ended with ${code}`);
	} finally {
		await rm(folder, { recursive: true, force: true });
	}
}

if ((await readFile(FILLED_BY, "utf8").catch(() => undefined)) !== COMMAND) {
	try {
		await trial();
		await writeFile(FILLED_BY, COMMAND);
	} catch {
		// The service works without a cache; if it cannot start, it says so itself.
	}
}
