import { expect, test } from "vitest";
import type { Store } from "../../../src/store/store.ts";
import { TempFolder } from "../../support/temp.ts";
import { openStore } from "../postgres/databases.ts";
import { startWithStandby } from "../postgres/pair.ts";
import { describeOnCitus } from "./on-citus.ts";
import { Traffic } from "./traffic.ts";

await describeOnCitus("with a standby of the coordinator", (cluster) => {
	test("the service goes on after its promotion, and nothing acknowledged is lost", async () => {
		const { coordinator } = cluster();
		await (await openStore(coordinator.url(), { distribute: true })).close();
		await coordinator.stop();
		using folder = new TempFolder();
		await using standby = await startWithStandby(coordinator, folder.file("standby"));
		const hosts = `127.0.0.1:${coordinator.port},127.0.0.1:${standby.port}`;
		const url = coordinator.url("?target_session_attrs=read-write").replace(`127.0.0.1:${coordinator.port}`, hosts);
		const [first, second, reader] = await Promise.all([openStore(url), openStore(url), openStore(url)]);
		const traffic = await Traffic.start([first, second], reader);
		const expectProgress = async () => {
			const before = traffic.count;
			await expect.poll(() => traffic.count).toBeGreaterThan(before + 50);
		};
		await expectProgress();
		await coordinator.kill();
		await standby.sql("SELECT pg_promote()");
		// The workers keep the address of the coordinator for their own queries, which the service does not use.
		await standby.sql("SELECT citus_update_node(nodeid, '127.0.0.1', $1) FROM pg_dist_node WHERE groupid = 0", [
			standby.port,
		]);
		await expectProgress();
		const { acknowledged, seen, stored } = await traffic.stop();
		expect(stored).toEqual(acknowledged);
		expect(seen).toEqual(acknowledged);
		const stores: Store[] = [first, second, reader];
		for (const store of stores) await store.close();
	});
});
