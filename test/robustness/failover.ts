import { setTimeout as delay } from "node:timers/promises";
import { startWithStandby } from "../store/postgres/pair.ts";
import { PostgresServer } from "../store/postgres/server.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { TempFolder } from "../support/temp.ts";
import { Replica } from "./replica.ts";
import { ReplicaLoad } from "./replica-load.ts";
import type { Run } from "./run.ts";

const REPLICAS = 2;
/** Number of acknowledged posts before each failover, and after it. */
const POSTS = 60;
/** Maximum time without any primary, in milliseconds. */
const MAX_DOWNTIME = 1500;

/** Kills the primary under load and promotes its synchronous standby. */
export const failover: Run = {
	name: "failover",
	about: "programs whose primary PostgreSQL is killed and whose standby takes over; all acknowledged is compared",
	counted: "failovers",
	long: 6,
	short: 1,
	async run(count, random, report) {
		await using stack = new AsyncDisposableStack();
		const folder = stack.use(new TempFolder());
		let primary = stack.use(await PostgresServer.create(folder.file("server 0")));
		await primary.start();
		await primary.stop();
		let standby = stack.use(await startWithStandby(primary, folder.file("server 1")));
		// The two hosts of the URL. Each represents a machine that gets a new server after the old one was killed.
		const machines = [primary, standby];
		const proxies: TcpProxy[] = [];
		for (const n of machines.keys()) proxies.push(stack.use(await TcpProxy.start(() => machines[n]?.port ?? 1)));
		const hosts = proxies.map(({ port }) => `127.0.0.1:${port}`).join(",");
		const env = { DATABASE_URL: primary.url().replace(`127.0.0.1:${primary.port}`, hosts) };
		const replicas: Replica[] = [];
		for (let n = 0; n < REPLICAS; n++) replicas.push(stack.use(await Replica.start(env, primary.password, report)));
		const load = stack.use(new ReplicaLoad(replicas, random.of("load"), report));
		for (let n = 0; n < count; n++) {
			if (n > 0) {
				await primary.stop();
				standby = stack.use(await startWithStandby(primary, folder.file(`server ${n + 1}`)));
				machines[1 - machines.indexOf(primary)] = standby;
			}
			await load.more(POSTS);
			await primary.kill();
			await delay(random.integer(0, MAX_DOWNTIME));
			await standby.sql("SELECT pg_promote()");
			primary = standby;
			await load.more(POSTS);
		}
		await load.expectKept();
	},
};
