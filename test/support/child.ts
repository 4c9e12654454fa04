import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Readable } from "node:stream";
import type { Endpoints } from "./clients.ts";
import { ignorePipeErrors } from "./pipes.ts";
import { testEnvironment } from "./service.ts";
import { ROOT, START_ARGUMENTS } from "./start-command.ts";

/** Running services. An exit listener ends them, for the case that a test process leaves by process.exit. */
const running = new Set<ChildProcessByStdio<null, Readable, Readable>>();
process.on("exit", () => {
	for (const child of running) child.kill("SIGKILL");
});

/** A line of the service's log. */
export type LogLine = Readonly<Record<string, unknown>>;

/** Default maximum lifetime of a process of a test, in milliseconds. */
const LIFETIME = 300_000;
/** Node.js's compile cache (vitest.config.ts), with which the program starts faster. */
const { NODE_COMPILE_CACHE } = process.env;
const COMPILED = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };
/** The unit of times in `/proc/<pid>/stat`: 1/100 s on every Linux that Node.js supports (proc(5), `_SC_CLK_TCK`). */
const TICKS_PER_SECOND = 100;

/** The service in its own process, as `npm start` runs it. */
export class ServiceProcess implements Endpoints, AsyncDisposable {
	http = "";
	grpc = "";
	readonly #child: ChildProcessByStdio<null, Readable, Readable>;
	readonly #exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
	#stdout = "";
	#stderr = "";
	#ended = false;

	private constructor(
		env: Readonly<Record<string, string>>,
		command: readonly string[],
		program = process.execPath,
		lifetime = LIFETIME,
	) {
		this.#child = spawn(program, command, {
			cwd: ROOT,
			env: { ...COMPILED, ...env },
			stdio: ["ignore", "pipe", "pipe"],
			// An aborted test must not leave its service behind.
			timeout: lifetime,
			killSignal: "SIGKILL",
		});
		this.#child.stdout.setEncoding("utf8").on("data", (text: string) => {
			this.#stdout += text;
		});
		this.#child.stderr.setEncoding("utf8").on("data", (text: string) => {
			this.#stderr += text;
		});
		ignorePipeErrors(this.#child);
		running.add(this.#child);
		this.#exited = new Promise((resolve) => {
			this.#child.on("close", (code, signal) => {
				running.delete(this.#child);
				this.#ended = true;
				resolve({ code, signal });
			});
		});
	}

	/**
	 * Starts the service on a database file and waits until both listeners accept requests.
	 *
	 * @param env variables that override the defaults for tests
	 * @param command arguments for node, instead of those of `npm start`
	 * @param program program that gets the arguments, instead of node
	 * @param lifetime milliseconds after which the process is killed
	 */
	static async start(
		database: string,
		env: Readonly<Record<string, string>> = {},
		command: readonly string[] = START_ARGUMENTS,
		program?: string,
		lifetime = LIFETIME,
	): Promise<ServiceProcess> {
		const service = new ServiceProcess({ ...testEnvironment(database), ...env }, command, program, lifetime);
		service.http = `http://${await service.#listening("http")}`;
		service.grpc = await service.#listening("grpc");
		return service;
	}

	/**
	 * Runs the program until it ends: with another command than `serve`, or in an environment in which it cannot start.
	 */
	static async run(env: Readonly<Record<string, string>>, ...args: readonly string[]) {
		return await ServiceProcess.runCommand(env, [...START_ARGUMENTS, ...args]);
	}

	/** Runs a command until it ends. The parameters are those of `start`. */
	static async runCommand(env: Readonly<Record<string, string>>, command: readonly string[], program?: string) {
		const child = new ServiceProcess(env, command, program);
		const { code } = await child.#exited;
		return { code, stdout: child.#stdout, stderr: child.#stderr };
	}

	/** Process id. */
	get pid(): number {
		if (this.#child.pid === undefined) throw new Error("the process has not started");
		return this.#child.pid;
	}

	/** Everything that the process has written. */
	get output(): { readonly stdout: string; readonly stderr: string } {
		return { stdout: this.#stdout, stderr: this.#stderr };
	}

	/** Returns the first log line that matches, and waits for it if necessary. */
	async logged(fits: (line: LogLine) => boolean): Promise<LogLine> {
		for (;;) {
			const complete = this.#stdout.split("\n").slice(0, -1);
			const line = complete.map((text): LogLine => JSON.parse(text)).find(fits);
			if (line !== undefined) return line;
			if (this.#ended) throw new Error(`the service has ended: ${this.#stderr}${this.#stdout}`);
			await Promise.race([this.#exited, once(this.#child.stdout, "data")]);
		}
	}

	/** Whether the process has ended. */
	get ended(): boolean {
		return this.#ended;
	}

	/** Current resident memory of the process, in bytes (proc(5), VmRSS). Linux only; 0 elsewhere. */
	get residentBytes(): number {
		if (process.platform !== "linux" || this.#ended) return 0;
		const status = readFileSync(`/proc/${this.#child.pid}/status`, "utf8");
		return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
	}

	/** Processor time that all threads of the process have used, in seconds (proc(5), stat). Linux only; 0 elsewhere. */
	get processorSeconds(): number {
		if (process.platform !== "linux" || this.#ended) return 0;
		const stat = readFileSync(`/proc/${this.#child.pid}/stat`, "utf8");
		// The command's name in parentheses may contain spaces. The next field is number 3.
		const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
		return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
	}

	/** Sends a signal. */
	signal(signal: NodeJS.Signals): void {
		this.#child.kill(signal);
	}

	/** Waits until the process ends and returns its exit code or signal. */
	exit(): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
		return this.#exited;
	}

	async #listening(listener: "http" | "grpc"): Promise<string> {
		const line = await this.logged((candidate) => candidate.event === "listening" && candidate.listener === listener);
		return String(line.address);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#child.kill("SIGKILL");
		await this.#exited;
	}
}
