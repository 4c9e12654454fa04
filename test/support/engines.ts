import { Databases } from "../store/postgres/databases.ts";
import { TempFolder } from "./temp.ts";

/** Databases of one engine for the tests of a file. */
export interface EngineDatabases extends AsyncDisposable {
	/** Creates a database without data and returns the environment variables of a service that uses it. */
	create(): Promise<{ readonly DATABASE_URL: string }>;
}

/** The store's engines, for tests that a service must pass with each of them. */
export const ENGINES: readonly { readonly engine: string; readonly open: () => Promise<EngineDatabases> }[] = [
	{ engine: "SQLite", open: async () => new SqliteFiles() },
	{ engine: "PostgreSQL", open: async () => new PostgresDatabases(await Databases.start()) },
];

class SqliteFiles implements EngineDatabases {
	readonly #folder = new TempFolder();
	#made = 0;

	async create() {
		this.#made += 1;
		return { DATABASE_URL: `sqlite:${this.#folder.file(`${this.#made}.db`)}` };
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#folder[Symbol.dispose]();
	}
}

class PostgresDatabases implements EngineDatabases {
	readonly #databases: Databases;

	constructor(databases: Databases) {
		this.#databases = databases;
	}

	async create() {
		return { DATABASE_URL: await this.#databases.createMigrated() };
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#databases[Symbol.asyncDispose]();
	}
}
