import pg from "pg";
import { readConfig } from "../../../src/config/config.ts";
import { type Connections, openConnections } from "../../../src/store/postgres/connections.ts";
import { openPostgresStore, type PostgresOptions } from "../../../src/store/postgres/postgres.ts";
import type { Store } from "../../../src/store/store.ts";
import type { ThreadLogger } from "../../../src/threads/worker-thread.ts";
import { TempFolder } from "../../support/temp.ts";
import { PostgresServer } from "./server.ts";

const silent: ThreadLogger = { error: () => undefined };

/** A PostgreSQL server for the tests of a file. Each test creates its own databases. */
export class Databases implements AsyncDisposable {
	readonly server: PostgresServer;
	readonly #folder: TempFolder;
	#made = 0;
	#migrated: Promise<string> | undefined;

	private constructor(server: PostgresServer, folder: TempFolder) {
		this.server = server;
		this.#folder = folder;
	}

	static async start(): Promise<Databases> {
		const folder = new TempFolder();
		const server = await PostgresServer.create(folder.file("server"));
		await server.start();
		return new Databases(server, folder);
	}

	/** Creates an empty database. Returns its URL. */
	async create(): Promise<string> {
		this.#made += 1;
		const name = `store_${this.#made}`;
		await this.server.sql(`CREATE DATABASE ${name}`);
		return urlOf(this.server.url(), name);
	}

	/** Creates a database with the present schema and no data, in a tenth of the time that its migrations take. */
	async createMigrated(): Promise<string> {
		this.#migrated ??= this.#migrate();
		const template = await this.#migrated;
		this.#made += 1;
		const name = `store_${this.#made}`;
		// Copied files take less time than a copy that passes through the write-ahead log, because the server syncs nothing.
		await this.server.sql(`CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`);
		return urlOf(this.server.url(), name);
	}

	async #migrate(): Promise<string> {
		const url = await this.create();
		await (await openStore(url)).close();
		return new URL(url).pathname.slice(1);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.server[Symbol.asyncDispose]();
		this.#folder[Symbol.dispose]();
	}
}

/** Returns the URL of another database of the same server. */
export function urlOf(url: string, database: string): string {
	const other = new URL(url);
	other.pathname = `/${database}`;
	return other.href;
}

/** Opens connections as the service does. */
export async function connect(url: string, env: Readonly<Record<string, string>> = {}): Promise<Connections> {
	const { database } = readConfig({ ...env, DATABASE_URL: url });
	if (database.engine !== "postgres") throw new Error("the URL is not one of PostgreSQL");
	return await openConnections(database, silent);
}

/** Opens a store as the service does. */
export async function openStore(
	url: string,
	options: PostgresOptions & { readonly env?: Readonly<Record<string, string>>; readonly log?: ThreadLogger } = {},
): Promise<Store> {
	const { env, log = silent, ...rest } = options;
	return await openPostgresStore(await connect(url, env), log, rest);
}

/** Runs SQL in a database as the user of the URL. Returns the rows of a single statement. */
export async function sqlOn(url: string, text: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
	const client = new pg.Client({ connectionString: url, ssl: false });
	await client.connect();
	try {
		return (await client.query(text)).rows;
	} finally {
		await client.end();
	}
}
