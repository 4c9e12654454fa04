import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes, randomInt, randomUUID } from "node:crypto";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ignorePipeErrors } from "../support/pipes.ts";
import { testEnvironment } from "../support/service.ts";
import { ROOT, START_ARGUMENTS } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";

/** Fills standard output with line feeds until it takes no more, and ends. */
const FILL = `const { fd } = process.stdout;
try { for (;;) require("node:fs").writeSync(fd, "\\n".repeat(1000)); } catch {}
process.exit(0);`;

const key = randomBytes(16).toString("hex");
let folder: TempFolder;
let program: ChildProcess | undefined;

beforeEach(() => {
	folder = new TempFolder();
});
afterEach(() => {
	program?.kill("SIGKILL");
	folder[Symbol.dispose]();
});

const post = (http: string, accessKey = key) =>
	postWebhook({ http, grpc: "" }, accessKey, JSON.stringify(record({ id: randomUUID() })));

/**
 * Starts the service without reading its log, and waits until it accepts a record. The log does not show the ports, so
 * they are chosen at random until they are free.
 *
 * @param before a shell command that runs first, with the same standard output
 */
async function startUnread(before = "true"): Promise<{ http: string; child: ChildProcess }> {
	for (;;) {
		const port = randomInt(20_000, 30_000);
		const http = `http://127.0.0.1:${port}`;
		const env = {
			...testEnvironment(folder.file("conversations.db")),
			HTTP_ADDRESS: `127.0.0.1:${port}`,
			ACCESS_KEYS: `test:${key}`,
			DRAIN_SECONDS: "20",
			NODE: process.execPath,
			FILL,
		};
		const script = `${before}; exec "$NODE" ${START_ARGUMENTS.join(" ")}`;
		const child = spawn("sh", ["-c", script], { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"] });
		program = ignorePipeErrors(child);
		const ended = once(child, "exit").then(() => "ended");
		const taken = async (): Promise<string> => {
			for (;;) {
				const status = await post(http).then((answer) => answer.status, String);
				if (status === 200) return "taken";
				if (child.exitCode !== null) return "ended";
				await delay(50);
			}
		};
		if ((await Promise.race([ended, taken()])) === "taken") return { http, child };
	}
}

/** Stops the service. Returns its exit status. */
async function stop(child: ChildProcess): Promise<unknown> {
	const ended = once(child, "exit");
	child.kill("SIGTERM");
	return (await ended)[0];
}

test("with its log in a closed pipe, the service still accepts records, and stops with status 0 on SIGTERM", async () => {
	const { http, child } = await startUnread();
	child.stdout?.destroy();
	for (let round = 0; round < 3; round++) expect((await post(http, `wrong-${round}`)).status).toBe(401);
	expect((await post(http)).status).toBe(200);
	expect(await stop(child)).toBe(0);
});

test("with its log in a full pipe, the service still accepts records, and a later reader gets every line", async () => {
	const { http, child } = await startUnread('"$NODE" -e "$FILL"');
	expect((await post(http, "wrong-key")).status).toBe(401);
	expect((await post(http)).status).toBe(200);
	let text = "";
	child.stdout?.setEncoding("utf8").on("data", (part: string) => {
		text += part;
	});
	await expect.poll(() => text, { timeout: 60_000 }).toContain("request_refused");
	expect(await stop(child)).toBe(0);
	await expect.poll(() => child.stdout?.readableEnded).toBe(true);
	const events = text.split("\n").flatMap((line) => (line === "" ? [] : JSON.parse(line).event));
	expect(events).toEqual(["starting", "listening", "listening", "request_refused", "stopping", "stopped"]);
});
