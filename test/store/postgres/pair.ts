import { setTimeout as delay } from "node:timers/promises";
import type { PostgresServer } from "./server.ts";

/** How long the standby may take to follow, in milliseconds. */
const PATIENCE = 60_000;

/**
 * Starts a server, which must have run and been stopped, and a synchronous standby of it in a new folder. The server waits for its
 * standby at each commit.
 *
 * @returns the standby, once it follows
 */
export async function startWithStandby(primary: PostgresServer, folder: string): Promise<PostgresServer> {
	const standby = await primary.standby(folder, "standby");
	try {
		primary.configure({ synchronous_standby_names: "standby" });
		await primary.start();
		await standby.start();
		for (const until = performance.now() + PATIENCE; ; await delay(50)) {
			const [row] = await primary.sql("SELECT state, sync_state FROM pg_stat_replication");
			if (row?.state === "streaming" && row.sync_state === "sync") return standby;
			if (performance.now() > until) throw new Error(`the standby does not follow: ${standby.log}`);
		}
	} catch (error) {
		await standby[Symbol.asyncDispose]();
		throw error;
	}
}
