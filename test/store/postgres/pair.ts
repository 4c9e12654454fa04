import { setTimeout as delay } from "node:timers/promises";
import type { PostgresServer } from "./server.ts";

/** Maximum time until the standby replicates synchronously, in milliseconds. */
const STANDBY_TIMEOUT = 60_000;

/**
 * Starts a server and a synchronous standby of it in a new folder. The server must have been started and stopped
 * before. It waits for its standby at each commit.
 *
 * @returns the standby, once it replicates synchronously
 */
export async function startWithStandby(primary: PostgresServer, folder: string): Promise<PostgresServer> {
	const standby = await primary.standby(folder, "standby");
	try {
		primary.configure({ synchronous_standby_names: "standby" });
		await primary.start();
		await standby.start();
		for (const until = performance.now() + STANDBY_TIMEOUT; ; await delay(50)) {
			const [row] = await primary.sql("SELECT state, sync_state FROM pg_stat_replication");
			if (row?.state === "streaming" && row.sync_state === "sync") return standby;
			if (performance.now() > until) throw new Error(`the standby does not follow: ${standby.log}`);
		}
	} catch (error) {
		await standby[Symbol.asyncDispose]();
		throw error;
	}
}
