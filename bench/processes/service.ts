import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { mkdir, mkdtemp, rm, statfs } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { ROOT } from "../../test/support/start-command.ts";

/** Type of an in-memory file system (statfs(2)). */
const TMPFS_MAGIC = 0x0102_1994;
/** A service that creates the tables of PostgreSQL on a busy machine takes 6 s and more. */
const START_TIMEOUT = 120_000;
const STOP_TIMEOUT = 30_000;

export interface ServiceOptions {
	/** `DATABASE_URL`. A missing SQLite database is created. */
	readonly database: string;
	/** Folder in which processor profiles are written when the service ends. */
	readonly profile?: string | undefined;
	/** Checkout whose service is started. Default: this one. */
	readonly root?: string | undefined;
	/** Further environment variables. */
	readonly environment?: Readonly<Record<string, string>>;
}

/** The service in its own process, as `npm start` runs it, on free ports of the loopback interface. */
export class Service implements AsyncDisposable {
	readonly httpPort: number;
	readonly grpcPort: number;
	readonly key: string;
	readonly #process: ChildProcess;

	private constructor(process: ChildProcess, httpPort: number, grpcPort: number, key: string) {
		this.#process = process;
		this.httpPort = httpPort;
		this.grpcPort = grpcPort;
		this.key = key;
	}

	/** @throws Error when it does not accept connections in time */
	static async start({ database, profile, root = ROOT, environment }: ServiceOptions): Promise<Service> {
		const [httpPort, grpcPort] = [await freePort(), await freePort()];
		const key = randomBytes(16).toString("hex");
		// The first line of the program finds node in the PATH.
		const child = spawn(join(root, "dist", "main.js"), [], {
			cwd: root,
			env: {
				PATH: [dirname(process.execPath), process.env.PATH].join(delimiter),
				NODE_OPTIONS: profile === undefined ? "" : `--cpu-prof --cpu-prof-dir=${profile}`,
				HTTP_ADDRESS: `127.0.0.1:${httpPort}`,
				GRPC_ADDRESS: `127.0.0.1:${grpcPort}`,
				DATABASE_URL: database,
				ACCESS_KEYS: `bench:${key}`,
				LOG_LEVEL: "warn",
				...environment,
			},
			stdio: ["ignore", "inherit", "inherit"],
		});
		const kill = (): boolean => child.kill("SIGKILL");
		process.on("exit", kill);
		child.on("exit", () => process.off("exit", kill));
		const service = new Service(child, httpPort, grpcPort, key);
		const deadline = Date.now() + START_TIMEOUT;
		while (!((await accepts(httpPort)) && (await accepts(grpcPort)))) {
			if (service.#ended || Date.now() > deadline) {
				child.kill("SIGKILL");
				throw new Error("the service does not start");
			}
			await wait(20);
		}
		return service;
	}

	/** Process id. */
	get pid(): number {
		return this.#process.pid ?? 0;
	}

	get #ended(): boolean {
		return this.#process.exitCode !== null || this.#process.signalCode !== null;
	}

	/** Stops the service with SIGTERM, so that it also writes the profiles. */
	async [Symbol.asyncDispose](): Promise<void> {
		if (this.#ended) return;
		const exit = new Promise((resolve) => this.#process.once("exit", resolve));
		this.#process.kill("SIGTERM");
		const overdue = setTimeout(() => this.#process.kill("SIGKILL"), STOP_TIMEOUT);
		await exit;
		clearTimeout(overdue);
	}
}

/** A folder on a disk, which is removed with its content when it is disposed of. */
export class DiskFolder implements AsyncDisposable {
	readonly path: string;
	readonly #remove = (): void => rmSync(this.path, { recursive: true, force: true });

	private constructor(path: string) {
		this.path = path;
		process.on("exit", this.#remove);
	}

	/** @throws Error when `parent` is in memory, where a commit costs almost nothing */
	static async create(parent: string): Promise<DiskFolder> {
		await mkdir(parent, { recursive: true });
		if ((await statfs(parent)).type === TMPFS_MAGIC)
			throw new Error(`${parent} is in memory; name a folder on a disk with --folder`);
		return new DiskFolder(await mkdtemp(join(parent, "conversations-bench-")));
	}

	/** `DATABASE_URL` of the SQLite database in this folder. */
	get database(): string {
		return `sqlite:${join(this.path, "conversations.db")}`;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		process.off("exit", this.#remove);
		await rm(this.path, { recursive: true, force: true });
	}
}

function freePort(): Promise<number> {
	return new Promise((resolve, reject) => {
		const server = createServer();
		server.on("error", reject);
		server.listen(0, "127.0.0.1", () => {
			const address = server.address();
			const port = typeof address === "object" && address !== null ? address.port : 0;
			server.close(() => resolve(port));
		});
	});
}

function accepts(port: number): Promise<boolean> {
	return new Promise((resolve) => {
		const socket = connect(port, "127.0.0.1");
		const settle = (value: boolean) => () => {
			socket.destroy();
			resolve(value);
		};
		socket.on("connect", settle(true));
		socket.on("error", settle(false));
	});
}
