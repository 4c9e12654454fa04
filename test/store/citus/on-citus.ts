import { afterAll, beforeAll, describe, test } from "vitest";
import { TempFolder } from "../../support/temp.ts";
import { whyNoCitus } from "./build.ts";
import { Cluster } from "./cluster.ts";

/** Milliseconds for the start of a cluster. The first one on a machine builds Citus. */
const START_TIMEOUT = 20 * 60_000;

/**
 * Describes tests on a cluster of their own with two workers. On a machine without Citus a test says why there is none.
 *
 * @param tests gets what returns the cluster once it has started
 */
export async function describeOnCitus(name: string, tests: (cluster: () => Cluster) => void): Promise<void> {
	const reason = await whyNoCitus();
	if (reason !== undefined)
		return test(name, () => {
			console.warn(`Nothing is tested on Citus: ${reason}.`);
		});
	describe(name, () => {
		let folder: TempFolder;
		let cluster: Cluster;
		beforeAll(async () => {
			folder = new TempFolder();
			cluster = await Cluster.start(folder.path, 2);
		}, START_TIMEOUT);
		afterAll(async () => {
			await cluster[Symbol.asyncDispose]();
			folder[Symbol.dispose]();
		});
		tests(() => cluster);
	});
}
