import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { sqlOn, urlOf } from "../postgres/databases.ts";
import { PostgresServer } from "../postgres/server.ts";
import { citusPrograms } from "./build.ts";

/** Settings of every server of a cluster. Moves of shards use logical replication. */
const SETTINGS = {
	shared_preload_libraries: "citus",
	wal_level: "logical",
	max_connections: "200",
	// The service asks for the password, and the servers among each other too.
	"citus.node_conninfo": "sslmode=disable",
	// A worker that comes back commits soon what it had prepared; the default is a minute.
	"citus.recover_2pc_interval": "1s",
	// The steps of a rebalancing follow one another without a wait.
	"citus.background_task_queue_interval": "100ms",
	// One connection to each worker: more of them cost a login for each statement, and another part of each commit.
	"citus.max_adaptive_executor_pool_size": "1",
	// Few shards, because they share one machine.
	"citus.shard_count": "8",
};

/** Citus on this machine: a coordinator and workers, each a PostgreSQL server below one folder. */
export class Cluster implements AsyncDisposable {
	readonly coordinator: PostgresServer;
	readonly #workers: PostgresServer[];
	/** Creates and starts a further server. */
	readonly #startServer: (name: string) => Promise<PostgresServer>;
	readonly #databases = ["postgres"];

	private constructor(
		coordinator: PostgresServer,
		workers: readonly PostgresServer[],
		startServer: (name: string) => Promise<PostgresServer>,
	) {
		this.coordinator = coordinator;
		this.#workers = [...workers];
		this.#startServer = startServer;
	}

	get workers(): readonly PostgresServer[] {
		return this.#workers;
	}

	/**
	 * Starts a cluster whose database is `postgres`.
	 *
	 * @param folder must not have servers
	 * @param settings further settings of all servers
	 * @throws Error when Citus cannot be built: see {@link citusPrograms}
	 */
	static async start(
		folder: string,
		workers: number,
		settings: Readonly<Record<string, string>> = {},
	): Promise<Cluster> {
		const programs = await citusPrograms();
		mkdirSync(folder, { recursive: true });
		await using started = new AsyncDisposableStack();
		const startServer = async (name: string) => {
			const server = await PostgresServer.create(join(folder, name), programs);
			server.configure({ ...SETTINGS, ...settings });
			await server.start();
			return server;
		};
		const coordinator = started.use(await startServer("coordinator"));
		const others: PostgresServer[] = [];
		for (let n = 1; n <= workers; n++) others.push(started.use(await startServer(`worker-${n}`)));
		const cluster = new Cluster(coordinator, others, startServer);
		await cluster.#spread("postgres");
		started.move();
		return cluster;
	}

	/** Adds a worker. It gets shards when they are rebalanced. */
	async addWorker(): Promise<PostgresServer> {
		const worker = await this.#startServer(`worker-${this.#workers.length + 1}`);
		this.#workers.push(worker);
		for (const name of this.#databases) {
			if (name !== "postgres") await worker.sql(`CREATE DATABASE ${name}`);
			await this.#prepare(worker, name);
			await this.#addNode(worker, name);
		}
		return worker;
	}

	/** Creates a further database of the cluster. Returns its URL on the coordinator. */
	async createDatabase(): Promise<string> {
		const name = `store_${this.#databases.length}`;
		this.#databases.push(name);
		for (const server of [this.coordinator, ...this.workers]) await server.sql(`CREATE DATABASE ${name}`);
		await this.#spread(name);
		return urlOf(this.coordinator.url(), name);
	}

	/** Makes databases of one name on all servers one of the cluster. */
	async #spread(name: string): Promise<void> {
		for (const server of [this.coordinator, ...this.workers]) await this.#prepare(server, name);
		await sqlOn(
			urlOf(this.coordinator.url(), name),
			`SELECT citus_set_coordinator_host('127.0.0.1', ${this.coordinator.port})`,
		);
		for (const worker of this.workers) await this.#addNode(worker, name);
	}

	async #prepare(server: PostgresServer, database: string): Promise<void> {
		await sqlOn(
			urlOf(server.url(), database),
			`CREATE EXTENSION citus; INSERT INTO pg_dist_authinfo VALUES (0, 'postgres', 'password=${server.password}')`,
		);
	}

	async #addNode({ port }: PostgresServer, database: string): Promise<void> {
		await sqlOn(urlOf(this.coordinator.url(), database), `SELECT citus_add_node('127.0.0.1', ${port})`);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		for (const server of [this.coordinator, ...this.workers]) await server[Symbol.asyncDispose]();
	}
}
