import { setTimeout as delay } from "node:timers/promises";
import { ServiceProcess } from "../support/child.ts";
import type { Endpoints } from "../support/clients.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import type { Report } from "./report.ts";

/** Maximum lifetime of a process, in milliseconds. */
const LIFETIME = 3_600_000;
/** Pause before another attempt to start a process, in milliseconds. */
const RETRY_INTERVAL = 200;
/** Log lines that show a failure other than that the database is unavailable. */
const FAILURES = /"event":"(?:request_failed|unexpected_error|intake_failed)"|"kind":"(?:internal|data_loss)"/;

/**
 * The real program, which can be ended and started again. Its addresses stay the same, because they are those of
 * proxies.
 */
export class Replica implements Endpoints, AsyncDisposable {
	readonly http: string;
	readonly grpc: string;
	readonly #env: Readonly<Record<string, string>>;
	/** Text that neither the log nor standard error may contain. */
	readonly #secret: string | undefined;
	readonly #report: Report;
	readonly #fronts: readonly TcpProxy[];
	#service: ServiceProcess | undefined;
	#disposed = false;

	private constructor(
		env: Readonly<Record<string, string>>,
		secret: string | undefined,
		report: Report,
		fronts: readonly [http: TcpProxy, grpc: TcpProxy],
	) {
		this.#env = env;
		this.#secret = secret;
		this.#report = report;
		this.#fronts = fronts;
		this.http = `http://127.0.0.1:${fronts[0].port}`;
		this.grpc = `127.0.0.1:${fronts[1].port}`;
	}

	/** @param secret the password in the environment, if there is one */
	static async start(
		env: Readonly<Record<string, string>>,
		secret: string | undefined,
		report: Report,
	): Promise<Replica> {
		let replica: Replica | undefined;
		const http = await TcpProxy.start(() => portOf(replica?.address?.http));
		const grpc = await TcpProxy.start(() => portOf(replica?.address && `http://${replica.address.grpc}`));
		replica = new Replica(env, secret, report, [http, grpc]);
		await replica.again();
		return replica;
	}

	/** Addresses of the running process, which change with each start. Undefined while it does not run. */
	get address(): Endpoints | undefined {
		return this.#service;
	}

	/** Starts the program. Retries until its database is available. */
	async again(): Promise<void> {
		while (this.#service === undefined && !this.#disposed) {
			try {
				this.#service = await ServiceProcess.start("", this.#env, undefined, undefined, LIFETIME);
			} catch (error) {
				const message = error instanceof Error ? error.message : String(error);
				this.#report.expect(!this.#isIn(message), "a failed start tells the password");
				this.#report.answer("start", "the database is away");
				await delay(RETRY_INTERVAL);
			}
		}
		this.#report.answer("start", "success");
	}

	/** Ends the program with a signal. After SIGTERM its exit code must be 0. */
	async end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
		const service = this.#service;
		if (service === undefined) return;
		this.#service = undefined;
		service.signal(signal);
		const { code, signal: by } = await service.exit();
		const right = signal === "SIGKILL" ? by === "SIGKILL" : code === 0;
		this.#report.expect(right, `${signal} ended the program with ${by ?? code}: ${service.output.stderr}`);
		this.#expectSound(service);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#disposed = true;
		await this.end("SIGKILL");
		for (const front of this.#fronts) await front[Symbol.asyncDispose]();
	}

	#isIn(text: string): boolean {
		return this.#secret !== undefined && text.includes(this.#secret);
	}

	#expectSound({ output: { stdout, stderr } }: ServiceProcess): void {
		for (const line of stdout.split("\n"))
			if (FAILURES.test(line)) this.#report.breaks(`the log tells: ${line.slice(0, 2000)}`);
		this.#report.expect(stderr === "", `standard error has ${stderr.slice(0, 2000)}`);
		this.#report.expect(!this.#isIn(stdout + stderr), "the log tells the password");
	}
}

/**
 * Returns the port of a listener. Without one it returns port 1, on which nothing listens, so that connections fail.
 */
function portOf(url: string | undefined): number {
	return url === undefined ? 1 : Number(new URL(url).port);
}
