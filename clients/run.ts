// `npm run clients`: starts the service and runs the program of each language whose toolchain is installed.
import { spawn, spawnSync } from "node:child_process";
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

/** Reads the addresses of the service from its log. Returns them by listener. */
async function readAddresses(log: NodeJS.ReadableStream): Promise<Readonly<Record<string, string>>> {
	const found: Record<string, string> = {};
	for await (const line of createInterface(log)) {
		const { event, listener, address } = JSON.parse(line);
		if (event === "listening") found[listener] = address;
		if (found.http !== undefined && found.grpc !== undefined) return found;
	}
	throw new Error("the service did not start");
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
		ACCESS_KEYS: `clients:${KEY}`,
	},
	stdio: ["ignore", "pipe", "inherit"],
});
process.once("exit", () => {
	service.kill("SIGKILL");
	rmSync(folder, { recursive: true, force: true });
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

const { http = "", grpc = "" } = await readAddresses(service.stdout);
service.stdout.resume();
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
	const { status } = spawnSync(join(import.meta.dirname, client, "run"), { env, stdio: "inherit" });
	outcomes.push(`${status === 0 ? "passed " : "FAILED "}  ${client}`);
}
console.log(`\n${outcomes.join("\n")}`);
process.exit(outcomes.some((outcome) => outcome.startsWith("FAILED")) ? 1 : 0);
