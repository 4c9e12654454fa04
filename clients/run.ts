// `npm run clients`: starts the service and runs the program of each language whose toolchain is installed.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";

const ROOT = join(import.meta.dirname, "..");
const KEY = "key-of-the-client-programs";
const PATH = `${join(ROOT, "node_modules", ".bin")}${delimiter}${process.env.PATH ?? ""}`;

/** Folders of the languages, with the tools that their `run` scripts need. */
const CLIENTS: Readonly<Record<string, readonly string[]>> = {
	go: ["go"],
	java: ["java", "mvn"],
	python: ["python3"],
	rust: ["cargo"],
	typescript: ["npm"],
};

/** Reads the log of the service to its end. Calls back with the addresses of its listeners, and with each warning. */
async function readLog(
	log: NodeJS.ReadableStream,
	onListening: (addresses: Readonly<Record<string, string>>) => void,
	onWarning: (line: string) => void,
): Promise<void> {
	const found: Record<string, string> = {};
	for await (const line of createInterface(log)) {
		const { event, listener, address, level } = JSON.parse(line);
		if (event === "listening") found[listener] = address;
		if (event === "listening" && listener === "grpc") onListening(found);
		// The refusal that each client checks is a warning, too.
		if (level === "error" || event === "connection_failed") onWarning(line);
	}
}

function isInstalled(tool: string): boolean {
	return spawnSync("which", [tool]).status === 0;
}

const selected = process.argv.slice(2);
const unknown = selected.filter((name) => !Object.hasOwn(CLIENTS, name));
if (unknown.length > 0) {
	console.error(`there is no client ${unknown.join(", ")}; the clients are ${Object.keys(CLIENTS).join(", ")}`);
	process.exit(2);
}

const folder = mkdtempSync(join(tmpdir(), "conversations-clients-"));
const service = spawn(process.execPath, ["dist/main.js"], {
	cwd: ROOT,
	env: {
		HTTP_ADDRESS: "127.0.0.1:0",
		GRPC_ADDRESS: "127.0.0.1:0",
		DATABASE_URL: `sqlite:${join(folder, "conversations.db")}`,
		ACCESS_KEYS: `clients:${KEY}:ingest+read+score`,
	},
	stdio: ["ignore", "pipe", "inherit"],
});
process.once("exit", () => {
	service.kill("SIGKILL");
	rmSync(folder, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const listening = Promise.withResolvers<Readonly<Record<string, string>>>();
const warnings: string[] = [];
const logged = readLog(service.stdout, listening.resolve, (line) => warnings.push(line));
void logged.then(() => listening.reject(new Error("the service did not start")));
const { http = "", grpc = "" } = await listening.promise;
const env = { ...process.env, PATH, HTTP_URL: `http://${http}`, GRPC_ADDRESS: grpc, ACCESS_KEY: KEY };
const outcomes: string[] = [];
for (const [client, tools] of Object.entries(CLIENTS)) {
	if (selected.length > 0 && !selected.includes(client)) continue;
	const missing = tools.filter((tool) => !isInstalled(tool));
	if (missing.length > 0) {
		outcomes.push(`skipped  ${client}: there is no ${missing.join(" and no ")}`);
		continue;
	}
	console.log(`\n${client}`);
	const program = spawn(join(import.meta.dirname, client, "run"), { env, stdio: "inherit" });
	const [status] = await once(program, "close");
	outcomes.push(`${status === 0 ? "passed " : "FAILED "}  ${client}`);
}
service.kill("SIGTERM");
await logged;
for (const warning of warnings) outcomes.push(`FAILED   the service logged ${warning}`);
console.log(`\n${outcomes.join("\n")}`);
process.exit(outcomes.some((outcome) => outcome.startsWith("FAILED")) ? 1 : 0);
