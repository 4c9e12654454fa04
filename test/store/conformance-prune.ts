import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import type { Condition } from "../../src/store/condition.ts";
import type { PrunePolicy } from "../../src/store/remove.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, type Columns, conditions, type Filter, sample, second, start } from "./samples.ts";

/** Tests of pruning. */
export function pruneConformance(current: () => Store, reopen: () => Promise<Store>): void {
	describe("prune", () => {
		let store: Store;
		beforeEach(() => {
			store = current();
		});

		/** Appends an update that was received a number of seconds after `start`. Returns its sequence. */
		async function appendAt(conversationId: string, received: number, columns: Partial<Columns> = {}) {
			const receivedAt = start + BigInt(received) * second;
			return (await append(store, sample({ conversationId, receivedAt, columns }))).sequence;
		}

		async function kept(): Promise<bigint[]> {
			const updates = await store.updates.list({ after: 0n, limit: 1_000, withRecords: false });
			return updates.map(({ sequence }) => sequence);
		}

		const olderThan = (seconds: number): PrunePolicy => ({
			receivedBefore: start + BigInt(seconds) * second,
			limit: 100,
		});

		it("removes old history and keeps each current record", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const a1 = await appendAt(a, 1);
			const b1 = await appendAt(b, 2);
			const a2 = await appendAt(a, 3);
			const a3 = await appendAt(a, 4);
			expect(await store.prune(olderThan(4))).toBe(2);
			expect(await kept()).toEqual([b1, a3]);
			expect(await store.updates.range()).toEqual({ newest: a3, prunedThrough: a2, lastRemoval: 1n });
			expect((await store.get(b))?.sequence).toBe(b1);
			expect(await store.get(a, a1)).toBeUndefined();
			expect(await store.prune(olderThan(4))).toBe(0);
		});

		it("keeps at most `updatesPerConversation` updates: the newest ones, and always the current one", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const now = await appendAt(a, 1, { updatedAt: start + 100n });
			const late: bigint[] = [];
			for (let n = 0; n < 4; n += 1) late.push(await appendAt(a, 2 + n, { updatedAt: start }));
			const other = [await appendAt(b, 9), await appendAt(b, 10)];
			expect(await store.prune({ updatesPerConversation: 3, limit: 100 })).toBe(2);
			expect(await kept()).toEqual([now, ...late.slice(2), ...other]);
			expect(await store.prune({ updatesPerConversation: 1, limit: 100 })).toBe(3);
			expect(await kept()).toEqual([now, other[1]]);
			expect(await store.prune({ updatesPerConversation: 1, limit: 100 })).toBe(0);
		});

		it("removes nothing when the policy limits neither age nor number", async () => {
			const a = randomUUID();
			const sequences = [await appendAt(a, 1), await appendAt(a, 2)];
			expect(await store.prune({ limit: 100 })).toBe(0);
			expect(await kept()).toEqual(sequences);
			expect(await store.updates.range()).toEqual({ newest: sequences[1], prunedThrough: 0n, lastRemoval: 0n });
		});

		it("removes a deleted conversation completely once its deletion is old enough", async () => {
			const [gone, recent, alive] = [randomUUID(), randomUUID(), randomUUID()];
			await appendAt(gone, 1, { tags: { team: "a" }, title: "gone title", updatedAt: start });
			await appendAt(gone, 2, { status: "deleting", updatedAt: start + 1n, tags: { team: "a" }, title: "gone title" });
			const last = await appendAt(gone, 3, { updatedAt: start });
			const r = await appendAt(recent, 4, { status: "deleting", tags: { team: "a" }, title: "recent title" });
			const s = await appendAt(alive, 5);
			expect(await store.prune(olderThan(4))).toBe(3);
			expect(await kept()).toEqual([r, s]);
			expect(await store.get(gone)).toBeUndefined();
			expect(await store.updates.range()).toMatchObject({ newest: s, prunedThrough: last });
			const listOf = async (filter: Filter) =>
				(await store.listConversations({ conditions: conditions(filter), limit: 10, withRecords: false })).map(
					({ sequence }) => sequence,
				);
			expect(await listOf({})).toEqual([s, r]);
			expect(await listOf({ tags: { team: "a" } })).toEqual([r]);
			expect(await listOf({ titleContains: "title" })).toEqual([r]);
			const again = sample({ conversationId: gone });
			expect(await append(store, again)).toMatchObject({
				change: UpdateChange.STARTED,
				current: true,
				duplicate: false,
			});
		});

		it("removes conversations that meet conditions as a whole, with their events, whatever their status", async () => {
			const [gone, other, recent] = [randomUUID(), randomUUID(), randomUUID()];
			const old = { updatedAt: start, tags: { env: "dev", team: "a" }, title: "old title" };
			for (let n = 0; n < 3; n += 1) await appendAt(gone, n, { ...old, status: "running" });
			await appendEvents(store, batch(gone, [event({ happenedAt: start }), event({ happenedAt: start + 1n })]));
			const o = await appendAt(other, 4, { ...old, tags: { env: "prod" } });
			const r = await appendAt(recent, 5, old);
			await appendEvents(store, batch(recent, [event({ happenedAt: start + 9n })]));
			const due: Condition[] = [
				{ kind: "tag", key: "env", value: "dev" },
				{ kind: "time", field: "activityAt", to: start + 9n },
			];
			const removed: number[] = [];
			do removed.push(await store.pruneConversations(due, 2));
			while (removed.at(-1) !== 0 && removed.length < 9);
			expect(removed).toEqual([2, 2, 1, 0]);
			expect(await kept()).toEqual([o, r]);
			expect(await store.get(gone)).toBeUndefined();
			expect((await store.events.list({ after: 0n, limit: 9 })).map(({ conversationId }) => conversationId)).toEqual([
				recent,
			]);
			const listed = { conditions: conditions({ titleContains: "old" }), limit: 10, withRecords: false };
			expect((await store.listConversations(listed)).map(({ sequence }) => sequence)).toEqual([r, o]);
			expect(await append(store, sample({ conversationId: gone }))).toMatchObject({
				...{ change: UpdateChange.STARTED, current: true, duplicate: false },
			});
		});

		it("removes at most `limit` updates in a step, and fewer only when nothing else is left to remove", async () => {
			const ids = Array.from({ length: 5 }, () => randomUUID());
			for (let n = 0; n < 30; n += 1) await appendAt(ids[n % 5] ?? "", n);
			const deleted = randomUUID();
			for (let n = 0; n < 4; n += 1) await appendAt(deleted, 40 + n, { status: "deleting" });
			const removed: number[] = [];
			do {
				removed.push(await store.prune({ receivedBefore: start + 90n * second, limit: 4 }));
				expect(removed.length).toBeLessThan(20);
			} while (removed.at(-1) === 4);
			expect(removed).toEqual([4, 4, 4, 4, 4, 4, 4, 1]);
			expect(await kept()).toHaveLength(5);
		});

		it("removes more updates in one call than in one transaction", async () => {
			const a = randomUUID();
			const updates = Array.from({ length: 700 }, () => sample({ conversationId: a, receivedAt: start }));
			const outcomes = await Promise.all(updates.map((update) => append(store, update)));
			// Appends that wait together may be stored in another order.
			const sequences = outcomes.map(({ sequence }) => sequence).sort((a, b) => (a < b ? -1 : 1));
			expect(await store.prune({ updatesPerConversation: 50, limit: 5_000 })).toBe(650);
			expect(await kept()).toEqual(sequences.slice(-50));
		});

		it("records how far each conversation was pruned, and by which removal", async () => {
			const [a, b, gone] = [randomUUID(), randomUUID(), randomUUID()];
			const of = (conversationId?: string, afterRemoval?: bigint) =>
				store.updates.range({ conversationId, afterRemoval }).then(({ prunedThrough }) => prunedThrough);
			const a1 = await appendAt(a, 1);
			const b1 = await appendAt(b, 2);
			await appendAt(a, 5);
			await appendAt(b, 6);
			const last = await appendAt(gone, 7, { status: "deleting" });
			expect(await store.prune(olderThan(2))).toBe(1);
			const { lastRemoval } = await store.updates.range();
			expect([await of(), await of(a), await of(b), await of(gone)]).toEqual([a1, a1, 0n, 0n]);
			expect(await store.prune(olderThan(8))).toBe(2);
			store = await reopen();
			expect([await of(), await of(a), await of(b), await of(gone)]).toEqual([last, a1, b1, last]);
			expect([await of(undefined, lastRemoval), await of(a, lastRemoval), await of(b, lastRemoval)]).toEqual([
				last,
				0n,
				b1,
			]);
		});

		it("never assigns a pruned sequence again", async () => {
			const a = randomUUID();
			await appendAt(a, 1, { updatedAt: start + 1n });
			const newest = await appendAt(a, 2, { updatedAt: start });
			expect(await store.prune({ updatesPerConversation: 1, limit: 100 })).toBe(1);
			store = await reopen();
			expect(await store.updates.range()).toEqual({ newest, prunedThrough: newest, lastRemoval: 1n });
			const next = await appendAt(a, 3);
			expect(next).toBeGreaterThan(newest);
			expect(await store.updates.range()).toEqual({ newest: next, prunedThrough: newest, lastRemoval: 1n });
		});

		it("removes the right updates while others are appended", async () => {
			const a = randomUUID();
			const appends = Promise.all(Array.from({ length: 600 }, () => append(store, sample({ conversationId: a }))));
			let removed = 0;
			for (let n = 0; n < 5; n += 1) removed += await store.prune({ updatesPerConversation: 10, limit: 50 });
			const outcomes = await appends;
			removed += await store.prune({ updatesPerConversation: 10, limit: 1_000 });
			expect(removed).toBe(590);
			expect(await kept()).toEqual(outcomes.slice(-10).map(({ sequence }) => sequence));
		});
	});
}
