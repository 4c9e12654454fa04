import { Cluster } from "../store/citus/cluster.ts";
import { Databases, openStore } from "../store/postgres/databases.ts";
import { TempFolder } from "./temp.ts";

/** Databases of one engine for the tests of a file. */
export interface EngineDatabases extends AsyncDisposable {
	/** Creates a database without data and returns the environment variables of a service that uses it. */
	create(): Promise<{ readonly DATABASE_URL: string }>;
}

/**
 * The store's engines, for tests that a service must pass with each of them. With TEST_CITUS only PostgreSQL with Citus, for
 * `npm run citus -- test-service`.
 */
export const ENGINES: readonly { readonly engine: string; readonly open: () => Promise<EngineDatabases> }[] =
	process.env.TEST_CITUS === undefined
		? [
				{ engine: "SQLite", open: async () => new SqliteFiles() },
				{ engine: "PostgreSQL", open: async () => new PostgresDatabases(await Databases.start()) },
			]
		: [{ engine: "Citus", open: () => CitusDatabases.start() }];

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

/** A coordinator and two workers. */
class CitusDatabases implements EngineDatabases {
	readonly #folder: TempFolder;
	readonly #cluster: Cluster;

	private constructor(folder: TempFolder, cluster: Cluster) {
		this.#folder = folder;
		this.#cluster = cluster;
	}

	static async start(): Promise<CitusDatabases> {
		const folder = new TempFolder();
		return new CitusDatabases(folder, await Cluster.start(folder.path, 2));
	}

	async create() {
		const url = await this.#cluster.createDatabase();
		await (await openStore(url, { distribute: true })).close();
		return { DATABASE_URL: `${url}?sslmode=disable` };
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#cluster[Symbol.asyncDispose]();
		this.#folder[Symbol.dispose]();
	}
}
