import { deepEqual, equal, ok } from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Webhook } from "standardwebhooks";
import { ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { clientOf, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { freePort } from "../support/free-port.ts";
import { startTestService } from "../support/service.ts";
import { ROOT } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";

/** A receiver of docs/forwarding.md. */
interface DocumentedReceiver {
	/** Language of its block of code. */
	readonly language: string;
	readonly file: string;
	/** Gets its packages into a folder. */
	readonly prepare: (folder: TempFolder) => void;
	/** Returns the command that runs it in the folder. */
	readonly command: (folder: TempFolder) => readonly [string, ...string[]];
}

const run = (folder: TempFolder, program: string, ...args: readonly string[]) =>
	execFileSync(program, args, { cwd: folder.path, stdio: ["ignore", "ignore", "pipe"] });

export const RECEIVERS: Readonly<Record<"node" | "python" | "go", DocumentedReceiver>> = {
	node: {
		language: "js",
		file: "receiver.mjs",
		prepare: (folder) => symlinkSync(join(ROOT, "node_modules"), folder.file("node_modules")),
		command: () => [process.execPath, "receiver.mjs"],
	},
	python: {
		language: "python",
		file: "receiver.py",
		prepare: (folder) => {
			run(folder, "python3", "-m", "venv", "venv");
			run(folder, "venv/bin/pip", "install", "--quiet", "standardwebhooks==1.1.0");
		},
		command: (folder) => [folder.file("venv/bin/python"), "receiver.py"],
	},
	go: {
		language: "go",
		file: "receiver.go",
		prepare: (folder) => {
			run(folder, "go", "mod", "init", "receiver");
			run(folder, "go", "get", "github.com/standard-webhooks/standard-webhooks/libraries@v0.0.1");
			run(folder, "go", "build", "-o", "receiver", "receiver.go");
		},
		command: (folder) => [folder.file("receiver")],
	},
};

const KEY = "key-of-the-receivers";
/** Milliseconds until a receiver listens. */
const START = 60_000;

/**
 * Runs a receiver as it stands in docs/forwarding.md, lets the service deliver to it, and sends it a forgery.
 *
 * @throws Error when it does not verify the one, or accepts the other
 */
export async function tryReceiver({ language, file, prepare, command }: DocumentedReceiver): Promise<void> {
	const text = readFileSync(join(ROOT, "docs/forwarding.md"), "utf8");
	const [, code] = new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``).exec(text) ?? [];
	ok(code !== undefined, `docs/forwarding.md has no receiver in ${language}`);
	using folder = new TempFolder();
	writeFileSync(folder.file(file), code);
	prepare(folder);
	await using service = await startTestService({
		ACCESS_KEYS: `test:${KEY}:ingest+forward`,
		ENCRYPTION_KEY: randomBytes(32).toString("base64"),
		FORWARD_PRIVATE: "on",
	});
	const url = `http://127.0.0.1:${await freePort()}/`;
	const forwarding = clientOf(ForwardingService, service, "connect", KEY);
	const { secret } = await forwarding.createEndpoint({ name: "hook", url, changes: ["STARTED"] });
	const [program, ...args] = command(folder);
	const child = spawn(program, args, {
		cwd: folder.path,
		env: { PATH: process.env.PATH ?? "", SECRET: secret, PORT: new URL(url).port },
		stdio: ["ignore", "pipe", "inherit"],
	});
	const exited = once(child, "exit");
	try {
		let output = "";
		child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
			output += chunk;
		});
		const body = '{"type":"forged","data":{}}';
		const forge = async (from: Webhook) => {
			const at = new Date();
			const headers = {
				"webhook-id": "forged",
				"webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
				"webhook-signature": from.sign("forged", at, body),
			};
			return (await fetch(url, { method: "POST", headers, body }).catch(() => undefined))?.status;
		};
		const stranger = new Webhook(`whsec_${randomBytes(32).toString("base64")}`);
		let status: number | undefined;
		for (const end = Date.now() + START; status === undefined && Date.now() < end; await delay(50))
			status = await forge(stranger);
		equal(status, 400);
		const { id = "" } = record();
		equal((await postWebhook(service, KEY, JSON.stringify(record({ id })))).status, 200);
		for (const end = Date.now() + START; Date.now() < end; await delay(50)) {
			const { deliveries } = await forwarding.listDeliveries({ name: "hook" });
			if (deliveries.some(({ tries }) => tries.length > 0)) break;
		}
		const { deliveries } = await forwarding.listDeliveries({ name: "hook" });
		deepEqual(
			deliveries.map(({ tries }) => tries.map((one) => [one.status, one.error])),
			[[[204, ""]]],
		);
		ok(output.includes(`${deliveries[0]?.id} `) && output.includes(String(id)), output);
	} finally {
		child.kill("SIGKILL");
		await exited;
	}
}
