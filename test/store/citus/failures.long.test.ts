import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ServiceError } from "../../../src/errors.ts";
import type { Store } from "../../../src/store/store.ts";
import { openStore } from "../postgres/databases.ts";
import type { PostgresServer } from "../postgres/server.ts";
import { append, type Sample, sample } from "../samples.ts";
import { describeOnCitus } from "./on-citus.ts";

/** Milliseconds between two attempts of a sender. */
const RETRY_DELAY = 50;

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

	/** Appends as a sender does, which sends again what gets no success. Returns the sequence. */
	async function send(store: Store, update: Sample): Promise<bigint> {
		for (;;) {
			try {
				return (await append(store, update)).sequence;
			} catch (error) {
				if (!(error instanceof ServiceError) || error.kind !== "unavailable") throw error;
				await delay(RETRY_DELAY);
			}
		}
	}

	/** Appends through two replicas until `isOver`. Returns what was acknowledged: conversations by their sequences. */
	async function sendAlways(isOver: () => boolean): Promise<Map<bigint, string>> {
		const acknowledged = new Map<bigint, string>();
		const write = async (store: Store) => {
			while (!isOver()) {
				const update = sample();
				acknowledged.set(await send(store, update), update.conversationId);
			}
		};
		const replicas = [replica(0), replica(1)];
		await Promise.all(replicas.flatMap((store) => [write(store), write(store), write(store)]));
		return acknowledged;
	}

	async function newest(): Promise<bigint> {
		return (await replica(2).updates.range()).newest;
	}

	async function listed(after: bigint): Promise<Map<bigint, string>> {
		const page = await replica(2).updates.list({ after, limit: 100_000, withRecords: false });
		return new Map(page.map(({ sequence, conversationId }) => [sequence, conversationId]));
	}

	function inOrder(entries: ReadonlyMap<bigint, string>): (readonly [bigint, string])[] {
		return [...entries].sort(([a], [b]) => Number(a - b));
	}

	test("a reader that follows the sequence misses no update of several replicas", async () => {
		const after = await newest();
		let isOver = false;
		const seen = new Map<bigint, string>();
		const follow = async () => {
			for (let isLast = false; !isLast; ) {
				isLast = isOver;
				for (const [sequence, id] of await listed([...seen.keys()].at(-1) ?? after)) seen.set(sequence, id);
			}
		};
		const following = follow();
		let sent = 0;
		const acknowledged = await sendAlways(() => ++sent > 300);
		isOver = true;
		await following;
		expect([...seen]).toEqual(inOrder(acknowledged));
	});

	test("posts for the conversations of a killed worker are unavailable, others go on, and nothing acknowledged is lost", async () => {
		const after = await newest();
		const [lost, other] = cluster().workers;
		const [onLost, onOther] = [await sampleOn(lost), await sampleOn(other)];
		let isOver = false;
		const sending = sendAlways(() => isOver);
		await expect.poll(newest).toBeGreaterThan(after + 20n);
		await lost?.kill();
		// Both are in one group.
		const outcomes = await Promise.allSettled([onLost, onOther].map((update) => append(replica(2), update)));
		expect(outcomes).toMatchObject([
			{ status: "rejected", reason: { kind: "unavailable", message: "a part of the database cannot be reached" } },
			{ status: "fulfilled", value: { duplicate: false } },
		]);
		await expect(replica(2).get(onLost.conversationId)).rejects.toMatchObject({ kind: "unavailable" });
		expect((await replica(2).get(onOther.conversationId))?.conversationId).toBe(onOther.conversationId);
		await expect(listed(after)).rejects.toMatchObject({ kind: "unavailable" });
		await lost?.start();
		const again = await send(replica(2), onLost);
		await expect.poll(newest).toBeGreaterThan(again + 20n);
		isOver = true;
		const acknowledged = await sending;
		const [, { value } = {}] = outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome : undefined));
		acknowledged.set(again, onLost.conversationId).set(value?.sequence ?? 0n, onOther.conversationId);
		await expect.poll(async () => inOrder(await listed(after))).toEqual(inOrder(acknowledged));
	});

	test("a shard is moved while posts arrive", async () => {
		const after = await newest();
		const { coordinator, workers } = cluster();
		const [from, to] = workers;
		const moved = await sampleOn(from);
		let isOver = false;
		const sending = sendAlways(() => isOver);
		await expect.poll(newest).toBeGreaterThan(after + 20n);
		await coordinator.sql(
			`SELECT citus_move_shard_placement(
				get_shard_id_for_distribution_column('conversation_updates.heads', $1::uuid), '127.0.0.1', $2, '127.0.0.1', $3)`,
			[moved.conversationId, from?.port, to?.port],
		);
		expect(await workerOf(moved.conversationId)).toBe(to);
		const sequence = await send(replica(2), moved);
		isOver = true;
		const acknowledged = (await sending).set(sequence, moved.conversationId);
		expect(inOrder(await listed(after))).toEqual(inOrder(acknowledged));
	});
});
