import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { PostgresServer } from "../postgres/server.ts";
import { citusPrograms } from "./build.ts";

/** Settings of every server of a cluster. Moves of shards use logical replication. */
const SETTINGS = {
	shared_preload_libraries: "citus",
	wal_level: "logical",
	max_connections: "200",
	// The service asks for the password, and the servers among each other too.
	"citus.node_conninfo": "sslmode=disable",
	// The servers find deadlocks between them sooner than every two seconds.
	"citus.distributed_deadlock_detection_factor": "1.5",
	// Few shards, because they share one machine.
	"citus.shard_count": "8",
};

/** Citus on this machine: a coordinator and workers, each a PostgreSQL server below one folder. */
export class Cluster implements AsyncDisposable {
	readonly coordinator: PostgresServer;
	readonly workers: readonly PostgresServer[];

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
			await server.sql("CREATE EXTENSION citus");
			await server.sql("INSERT INTO pg_dist_authinfo VALUES (0, 'postgres', $1)", [`password=${server.password}`]);
			servers.push(server);
		}
		const [coordinator, ...others] = servers;
		if (coordinator === undefined) throw new Error("a cluster has a coordinator");
		await coordinator.sql("SELECT citus_set_coordinator_host('127.0.0.1', $1)", [coordinator.port]);
		for (const { port } of others) await coordinator.sql("SELECT citus_add_node('127.0.0.1', $1)", [port]);
		started.move();
		return new Cluster(coordinator, others);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		for (const server of [this.coordinator, ...this.workers]) await server[Symbol.asyncDispose]();
	}
}
