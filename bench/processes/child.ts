import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { z } from "zod";

/** Maximum time, in milliseconds, that a child process may take to start or to respond. */
const RESPONSE_TIMEOUT = 300_000;

const message = z.union([z.object({ value: z.unknown() }), z.object({ failure: z.string() })]);

/** A child process of the benchmarks. It announces that it is ready and then answers one request at a time. */
export class Child<Ready> implements AsyncDisposable {
	readonly ready: Ready;
	readonly #process: ChildProcess;

	private constructor(process: ChildProcess, ready: Ready) {
		this.#process = process;
		this.ready = ready;
	}

	/**
	 * Starts a module of `bench/` in its own process.
	 *
	 * @param module its path relative to `bench/`
	 * @param args its arguments
	 * @throws Error when it fails or ends before it is ready
	 */
	static async start<Schema extends z.ZodType>(
		module: string,
		ready: Schema,
		args: readonly string[] = [],
	): Promise<Child<z.output<Schema>>> {
		const process = fork(fileURLToPath(new URL(`../${module}`, import.meta.url)), args, {
			execArgv: [],
			serialization: "advanced",
			stdio: ["ignore", "inherit", "inherit", "ipc"],
		});
		return new Child(process, ready.parse(await nextMessage(process)));
	}

	/** Process id. */
	get pid(): number {
		return this.#process.pid ?? 0;
	}

	/** @throws Error when the process fails or ends before it responds */
	async ask<Schema extends z.ZodType>(request: unknown, answer: Schema): Promise<z.output<Schema>> {
		const reply = nextMessage(this.#process);
		this.#process.send({ request });
		return answer.parse(await reply);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
		const exit = new Promise((resolve) => this.#process.once("exit", resolve));
		this.#process.kill("SIGKILL");
		await exit;
	}
}

function nextMessage(process: ChildProcess): Promise<unknown> {
	return new Promise((resolve, reject) => {
		const settle = (outcome: () => void): void => {
			clearTimeout(overdue);
			process.off("message", onMessage);
			process.off("exit", onExit);
			outcome();
		};
		const onMessage = (data: unknown): void => {
			const parsed = message.parse(data);
			settle(() => ("failure" in parsed ? reject(new Error(parsed.failure)) : resolve(parsed.value)));
		};
		const onExit = (code: number | null, signal: string | null): void =>
			settle(() => reject(new Error(`a process of the benchmark ended (${signal ?? `exit code ${code}`})`)));
		const overdue = setTimeout(
			() => settle(() => reject(new Error("a process of the benchmark does not answer"))),
			RESPONSE_TIMEOUT,
		);
		process.on("message", onMessage);
		process.on("exit", onExit);
	});
}
