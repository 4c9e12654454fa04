import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Store } from "../../../src/store/store.ts";
import { max } from "../../../src/store/values.ts";
import { openStore } from "../postgres/databases.ts";
import type { PostgresServer } from "../postgres/server.ts";
import { append, type Sample, sample } from "../samples.ts";
import { describeOnCitus } from "./on-citus.ts";
import { followThrough, listed, newestOf, send, Traffic } from "./traffic.ts";

await describeOnCitus("on Citus", (cluster) => {
	const stores: Store[] = [];
	beforeAll(async () => {
		const url = cluster().coordinator.url();
		for (let n = 0; n < 3; n++) stores.push(await openStore(url, { distribute: true }));
	});
	afterAll(async () => {
		for (const store of stores) await store.close();
	});

	function replica(n: number): Store {
		const store = stores[n];
		if (store === undefined) throw new Error("there are three replicas");
		return store;
	}

	/** Returns the worker that has the rows of a conversation. */
	async function workerOf(conversationId: string): Promise<PostgresServer | undefined> {
		const [row] = await cluster().coordinator.sql(
			`SELECT nodeport FROM citus_shards
			WHERE shardid = get_shard_id_for_distribution_column('conversation_updates.heads', $1::uuid)`,
			[conversationId],
		);
		return cluster().workers.find(({ port }) => port === row?.nodeport);
	}

	/** Returns a sample of a conversation on a worker. */
	async function sampleOn(worker: PostgresServer | undefined): Promise<Sample> {
		for (;;) {
			const update = sample();
			if ((await workerOf(update.conversationId)) === worker) return update;
		}
	}

	function traffic(): Promise<Traffic> {
		return Traffic.start([replica(0), replica(1)], replica(2));
	}

	/** Waits until further updates were acknowledged. */
	async function expectProgress(running: Traffic): Promise<void> {
		const before = running.count;
		await expect.poll(() => running.count).toBeGreaterThan(before + 20);
	}

	async function expectNothingMissing(running: Traffic): Promise<void> {
		const { acknowledged, seen, stored } = await running.stop();
		expect(stored).toEqual(acknowledged);
		expect(seen).toEqual(acknowledged);
	}

	test("a reader that follows the sequence misses no update of several replicas", async () => {
		const running = await traffic();
		await expect.poll(() => running.count).toBeGreaterThan(300);
		await expectNothingMissing(running);
	});

	test("posts for the conversations of a killed worker are unavailable, others go on, and nothing acknowledged is lost", async () => {
		const [lost, other] = cluster().workers;
		const [onLost, onOther] = [await sampleOn(lost), await sampleOn(other)];
		const running = await traffic();
		await expectProgress(running);
		await lost?.kill();
		// Both are in one group. The moment of the failure can refuse the other one, too; its sender repeats it.
		const [refused, stored] = await Promise.allSettled([append(replica(2), onLost), send(replica(2), onOther)]);
		expect(refused).toMatchObject({
			status: "rejected",
			reason: { kind: "unavailable", message: "a part of the database cannot be reached" },
		});
		if (stored.status === "rejected") throw stored.reason;
		running.add(stored.value, onOther.conversationId);
		await expect(replica(2).get(onLost.conversationId)).rejects.toMatchObject({ kind: "unavailable" });
		expect((await replica(2).get(onOther.conversationId))?.conversationId).toBe(onOther.conversationId);
		await expect(listed(replica(2), 0n)).rejects.toMatchObject({ kind: "unavailable" });
		await lost?.start();
		running.add(await send(replica(2), onLost), onLost.conversationId);
		await expectProgress(running);
		await expectNothingMissing(running);
	});

	describe("without the recovery that Citus runs by itself", () => {
		const recover = async (interval: string) => {
			await cluster().coordinator.sql(`ALTER SYSTEM SET citus.recover_2pc_interval = ${interval}`);
			await cluster().coordinator.sql("SELECT pg_reload_conf()");
		};
		beforeAll(() => recover("'-1'"));
		afterAll(() => recover("DEFAULT"));

		/** Waits until no replica writes, such as views that follow: commits follow one another, and the next one is held up. */
		async function expectQuiet(): Promise<void> {
			const next = () => cluster().coordinator.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next");
			const isQuiet = async () => {
				const [before] = await next();
				await delay(1_000);
				return (await next())[0]?.next === before?.next;
			};
			await expect.poll(isQuiet, { timeout: 30_000 }).toBe(true);
		}

		/**
		 * Lets something fail when all workers have prepared a group and none has committed it. Checks that a reader which
		 * follows the log misses nothing, and that both updates, which their senders repeat, are stored once.
		 *
		 * @param fail gets what lets the coordinator commit
		 */
		async function failBetween(fail: (commit: () => Promise<void>) => Promise<void>): Promise<void> {
			const { coordinator, workers } = cluster();
			const updates = await Promise.all(workers.map(sampleOn));
			const after = await newestOf(replica(2));
			await expectQuiet();
			// The coordinator commits when a standby has the commit, and the workers do after it.
			await coordinator.setSynchronousStandbys("none");
			const sent = Promise.all(updates.map((update) => send(replica(0), update)));
			const isPrepared = async () =>
				(await Promise.all(workers.map((worker) => worker.sql("SELECT FROM pg_prepared_xacts LIMIT 1")))).flat();
			await expect.poll(isPrepared).toHaveLength(workers.length);
			await fail(() => coordinator.setSynchronousStandbys(""));
			const sequences = await sent;
			const seen = await followThrough(
				replica(2),
				after,
				sequences.reduce((a, b) => max(a, b)),
			);
			const stored = updates.map(({ conversationId }, n) => [sequences[n], conversationId]);
			expect(new Set(seen.map(String))).toEqual(new Set(stored.map(String)));
			expect(seen).toHaveLength(stored.length);
			const again = await Promise.all(updates.map((update) => append(replica(1), update)));
			expect(again).toMatchObject(sequences.map((sequence) => ({ sequence, duplicate: true })));
		}

		test("a worker that was killed between PREPARE and COMMIT PREPARED leaves no gap", async () => {
			await failBetween(async (commit) => {
				await cluster().workers[0]?.kill();
				await commit();
				await cluster().workers[0]?.start();
			});
		});

		test("a coordinator that was killed between PREPARE and COMMIT PREPARED leaves no gap", async () => {
			await failBetween(async (commit) => {
				await cluster().coordinator.kill();
				await cluster().coordinator.start();
				await commit();
			});
		});
	});

	test("a shard is moved while posts arrive", async () => {
		const { coordinator, workers } = cluster();
		const [from, to] = workers;
		const moved = await sampleOn(from);
		const running = await traffic();
		await expectProgress(running);
		await coordinator.sql(
			`SELECT citus_move_shard_placement(
				get_shard_id_for_distribution_column('conversation_updates.heads', $1::uuid), '127.0.0.1', $2, '127.0.0.1', $3)`,
			[moved.conversationId, from?.port, to?.port],
		);
		expect(await workerOf(moved.conversationId)).toBe(to);
		running.add(await send(replica(2), moved), moved.conversationId);
		await expectNothingMissing(running);
	});

	test("shards are rebalanced to a new worker while posts arrive", async () => {
		const { coordinator } = cluster();
		const running = await traffic();
		await expectProgress(running);
		const { port } = await cluster().addWorker();
		await coordinator.sql("SELECT citus_rebalance_start()");
		await coordinator.sql("SELECT citus_rebalance_wait()");
		const [job] = await coordinator.sql("SELECT state::text FROM citus_rebalance_status()");
		expect(job?.state).toBe("finished");
		const moved = await coordinator.sql(
			"SELECT 1 FROM citus_shards WHERE table_name = 'conversation_updates.heads'::regclass AND nodeport = $1",
			[port],
		);
		expect(moved.length).toBeGreaterThan(0);
		await expectProgress(running);
		await expectNothingMissing(running);
	});
});
