import { join } from "node:path";
import pg from "pg";
import { urlOf } from "../../test/store/postgres/databases.ts";
import { PostgresServer } from "../../test/store/postgres/server.ts";
import { DiskFolder } from "./service.ts";

/** Rows of a query, as objects with a member for each column. */
export type Rows = readonly Readonly<Record<string, unknown>>[];

/**
 * A PostgreSQL server on this machine's disk. Commits are durable, as by default. Shared buffers and
 * write-ahead log are larger than by default, as on a server in production.
 */
export class DatabaseServer implements AsyncDisposable {
	readonly #server: PostgresServer;
	readonly #folder: DiskFolder;
	#made = 0;

	private constructor(server: PostgresServer, folder: DiskFolder) {
		this.#server = server;
		this.#folder = folder;
	}

	/** @param parent folder on a disk, in which the server's folder is created */
	static async start(parent: string): Promise<DatabaseServer> {
		const folder = await DiskFolder.create(parent);
		const server = await PostgresServer.create(join(folder.path, "server"));
		server.configure({ fsync: "on", shared_buffers: "256MB", max_wal_size: "4GB", checkpoint_timeout: "15min" });
		await server.start();
		return new DatabaseServer(server, folder);
	}

	/**
	 * Creates a database and returns its URL.
	 *
	 * @param template URL of a database to copy, which must have no connections. Without it the new database is empty
	 */
	async create(template?: string): Promise<string> {
		this.#made += 1;
		const name = `bench_${this.#made}`;
		const copied = template === undefined ? "" : ` TEMPLATE ${new URL(template).pathname.slice(1)}`;
		await this.#server.sql(`CREATE DATABASE ${name}${copied}`);
		return urlOf(this.#server.url("?sslmode=disable"), name);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#server[Symbol.asyncDispose]();
		await this.#folder[Symbol.asyncDispose]();
	}
}

/** Runs statements in a database and returns the rows of the last one. Eight-byte integers are strings. */
export async function sqlOn(url: string, ...texts: readonly string[]): Promise<Rows> {
	const client = await connect(url);
	try {
		let rows: Rows = [];
		for (const text of texts) rows = (await client.query<Rows[number]>(text)).rows;
		return rows;
	} finally {
		await client.end();
	}
}

/** Connects the driver alone, without a pool, in pipeline mode. */
export async function connect(url: string): Promise<pg.Client> {
	const client = new pg.Client({ connectionString: url, pipeline: true });
	await client.connect();
	return client;
}
