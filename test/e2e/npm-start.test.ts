import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { expect, test } from "vitest";
import { ignorePipeErrors } from "../support/pipes.ts";
import { testEnvironment } from "../support/service.ts";
import { ROOT } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";

type Line = Readonly<Record<string, unknown>>;

/** `npm start` on free ports. npm and the service are killed at the end of the test. */
class NpmStart implements Disposable {
	readonly npm: ChildProcessByStdio<null, Readable, null>;
	readonly #lines: AsyncIterator<string>;
	#service: number | undefined;

	private constructor(env: Readonly<Record<string, string>>) {
		this.npm = spawn("npm", ["--silent", "start"], {
			cwd: ROOT,
			env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
			stdio: ["ignore", "pipe", "ignore"],
		});
		ignorePipeErrors(this.npm);
		this.#lines = createInterface(this.npm.stdout)[Symbol.asyncIterator]();
	}

	/** Runs `npm start`, and waits until both listeners accept requests. */
	static async listening(database: string): Promise<NpmStart & { readonly service: number }> {
		const started = new NpmStart(testEnvironment(database));
		const { pid } = await started.logged((line) => line.event === "listening" && line.listener === "http");
		await started.logged((line) => line.event === "listening" && line.listener === "grpc");
		started.#service = Number(pid);
		return Object.assign(started, { service: Number(pid) });
	}

	/** Returns the next line of the service's log that meets a condition. */
	async logged(fits: (line: Line) => boolean): Promise<Line> {
		for (;;) {
			const { value, done } = await this.#lines.next();
			if (done === true) throw new Error("npm start has ended");
			const line: Line = JSON.parse(value);
			this.#service ??= Number(line.pid);
			if (fits(line)) return line;
		}
	}

	[Symbol.dispose](): void {
		this.npm.kill("SIGKILL");
		if (this.#service !== undefined && isRunning(this.#service)) process.kill(this.#service, "SIGKILL");
	}
}

function isRunning(pid: number): boolean {
	try {
		return process.kill(pid, 0);
	} catch {
		return false;
	}
}

test("SIGTERM to npm start stops the service cleanly", async () => {
	using folder = new TempFolder();
	using started = await NpmStart.listening(folder.file("conversations.db"));
	const ended = once(started.npm, "exit");
	started.npm.kill("SIGTERM");
	await started.logged((line) => line.event === "stopping" && line.signal === "SIGTERM");
	await started.logged((line) => line.event === "stopped");
	expect(await ended).toEqual([0, null]);
	expect(isRunning(started.service)).toBe(false);
});

test("two SIGINTs at once, as from Ctrl-C under npm start, stop the service cleanly", async () => {
	using folder = new TempFolder();
	using started = await NpmStart.listening(folder.file("conversations.db"));
	const ended = once(started.npm, "exit");
	// One comes from the terminal, and one from npm, which passes on its own signal.
	process.kill(started.service, "SIGINT");
	started.npm.kill("SIGINT");
	await started.logged((line) => line.event === "stopped");
	expect(await ended).toEqual([0, null]);
	expect(isRunning(started.service)).toBe(false);
});
