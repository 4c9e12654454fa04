// Runs before `npm start` and `npm run bench`: where the compile cache lacks the present sources, a trial start of the
// service fills it.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { getCompileCacheDir } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import "../src/compile-cache.mjs";
import { filesBelow } from "./files.ts";
import { ROOT, START_ARGUMENTS } from "./start-command.ts";

/** Longest time that the trial may take, in milliseconds. */
const PATIENCE = 30_000;

/** Starts the service on free ports and an empty database, and stops it: it compiles all that it loads. */
async function trial(cache: string): Promise<void> {
	const folder = mkdtempSync(join(tmpdir(), "conversations-compile-"));
	const child = spawn(process.execPath, START_ARGUMENTS, {
		cwd: ROOT,
		env: {
			NODE_COMPILE_CACHE: cache,
			HTTP_ADDRESS: "127.0.0.1:0",
			GRPC_ADDRESS: "127.0.0.1:0",
			DATABASE_URL: `sqlite:${join(folder, "conversations.db")}`,
		},
		stdio: ["ignore", "pipe", "ignore"],
		timeout: PATIENCE,
		killSignal: "SIGKILL",
	});
	const leave = (): void => {
		child.kill("SIGKILL");
		rmSync(folder, { recursive: true, force: true });
	};
	process.once("exit", leave);
	for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));
	const ended = once(child, "close");
	let listening = 0;
	for await (const line of createInterface(child.stdout)) {
		if (JSON.parse(line).event !== "listening") continue;
		listening += 1;
		if (listening === 2) child.kill("SIGTERM");
	}
	const [code] = await ended;
	if (code !== 0) throw new Error(`the trial ended with ${code}`);
}

/** What the engine finds compiled modules by: its version and options, the user, and the sources. */
function contentsOf(): string {
	const hash = createHash("sha256");
	for (const folder of ["src", "gen"]) {
		const files = filesBelow(join(ROOT, folder));
		for (const path of [...files.keys()].sort()) hash.update(path).update(files.get(path) ?? "");
	}
	return [process.version, process.arch, process.getuid?.(), ...START_ARGUMENTS, hash.digest("hex")].join(" ");
}

function readIfThere(file: string): string | undefined {
	try {
		return readFileSync(file, "utf8");
	} catch {
		return undefined;
	}
}

// None if it is switched off, or its folder cannot be written.
const folder = getCompileCacheDir();
if (folder !== undefined) {
	const cache = dirname(folder);
	const filledWith = join(cache, "filled-with");
	const contents = contentsOf();
	if (readIfThere(filledWith) !== contents) {
		try {
			await trial(cache);
			writeFileSync(filledWith, contents);
		} catch {
			// The service works without the cache; if it cannot start, it says so itself.
		}
	}
}
