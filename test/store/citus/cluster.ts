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
	// Few shards, because they share one machine.
	"citus.shard_count": "8",
};

/** Citus on this machine: a coordinator and workers, each a PostgreSQL server below one folder. */
export class Cluster implements AsyncDisposable {
	readonly coordinator: PostgresServer;
	readonly workers: readonly PostgresServer[];
	#made = 0;

	private constructor(coordinator: PostgresServer, workers: readonly PostgresServer[]) {
		this.coordinator = coordinator;
		this.workers = workers;
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
		const servers: PostgresServer[] = [];
		for (const name of ["coordinator", ...Array.from({ length: workers }, (_, n) => `worker-${n + 1}`)]) {
			const server = started.use(await PostgresServer.create(join(folder, name), programs));
			server.configure({ ...SETTINGS, ...settings });
			await server.start();
			servers.push(server);
		}
		const [coordinator, ...others] = servers;
		if (coordinator === undefined) throw new Error("a cluster has a coordinator");
		const cluster = new Cluster(coordinator, others);
		await cluster.#spread("postgres");
		started.move();
		return cluster;
	}

	/** Creates a further database of the cluster. Returns its URL on the coordinator. */
	async createDatabase(): Promise<string> {
		this.#made += 1;
		const name = `store_${this.#made}`;
		for (const server of [this.coordinator, ...this.workers]) await server.sql(`CREATE DATABASE ${name}`);
		await this.#spread(name);
		return urlOf(this.coordinator.url(), name);
	}

	/** Makes databases of one name on all servers one of the cluster. */
	async #spread(name: string): Promise<void> {
		const on = (server: PostgresServer, text: string) => sqlOn(urlOf(server.url(), name), text);
		for (const server of [this.coordinator, ...this.workers]) {
			await on(server, "CREATE EXTENSION citus");
			await on(server, `INSERT INTO pg_dist_authinfo VALUES (0, 'postgres', 'password=${server.password}')`);
		}
		await on(this.coordinator, `SELECT citus_set_coordinator_host('127.0.0.1', ${this.coordinator.port})`);
		for (const { port } of this.workers) await on(this.coordinator, `SELECT citus_add_node('127.0.0.1', ${port})`);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		for (const server of [this.coordinator, ...this.workers]) await server[Symbol.asyncDispose]();
	}
}
