import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import type { AppendedUpdate } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, effect, event, withActivity } from "./event-samples.ts";
import { all, at, decoded, emptyState, eventSteps } from "./event-steps.ts";
import { bytes } from "./samples.ts";

/** Tests of the removal of events, and of versions that events made. */
export function eventRetentionConformance(current: () => Store, reopen: () => Promise<Store>): void {
	let store: Store;
	beforeEach(() => {
		store = current();
	});
	const { appendBatch, history, post } = eventSteps(() => store);

	describe("retention", () => {
		const olderThan = (seconds: number, limit = 100) => ({ receivedBefore: at(seconds), limit });
		const kept = async () => (await store.updates.list({ ...all, withRecords: false })).map((one) => one.sequence);
		const keptEvents = async () => (await store.events.list(all)).map(({ sequence }) => sequence);

		/** Appends a posted record, and then versions that events make that were received 1,000 seconds apart. */
		async function versions(count: number): Promise<{ id: string; posted: AppendedUpdate }> {
			const id = randomUUID();
			const { appended: posted } = await post(id, "posted", 1);
			for (let n = 1; n <= count; n++)
				await appendBatch(id, [], { effect: effect(BigInt(n), `v${n}`), receivedAt: at(1_000 * n) });
			return { id, posted };
		}

		it("keeps the base record of kept deltas, and no other old history", async () => {
			const { id } = await versions(4);
			expect(await store.prune(olderThan(2_500))).toBe(2);
			expect(await store.prune(olderThan(2_500))).toBe(0);
			expect(await kept()).toEqual([1n, 4n, 5n]);
			expect(await history(id)).toEqual(["posted posted", "v3 posted", "v4 posted"]);
			expect(await store.get(id, 2n)).toBeUndefined();
			expect(await store.get(id, 3n)).toBeUndefined();
			expect(decoded((await store.get(id, 1n))?.record)).toBe("posted posted");
			expect(decoded((await store.get(id, 4n))?.record)).toBe("v3 posted");
			await post(id, "posted again", 9_000);
			let removed = 0;
			for (let step = 1; step > 0; removed += step) step = await store.prune({ updatesPerConversation: 1, limit: 100 });
			expect(removed).toBe(3);
			expect(await history(id)).toEqual(["posted again posted"]);
		});

		it("removes the oldest events in steps, and records how far each conversation was pruned", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			for (let n = 0; n < 6; n++) await appendBatch(n < 4 ? a : b, [event()], { receivedAt: at(n) });
			expect(await store.pruneEvents(at(5), 2)).toBe(2);
			expect(await store.pruneEvents(at(5), 300)).toBe(3);
			expect(await store.pruneEvents(at(5), 300)).toBe(0);
			expect(await keptEvents()).toEqual([6n]);
			const through = (conversationId?: string, afterRemoval?: bigint) =>
				store.events.range({ conversationId, afterRemoval }).then(({ prunedThrough }) => prunedThrough);
			expect(await store.events.range()).toEqual({ newest: 6n, prunedThrough: 5n, lastRemoval: 2n });
			expect([await through(a), await through(b), await through(a, 1n), await through(undefined, 2n)]).toEqual([
				4n,
				5n,
				4n,
				0n,
			]);
			expect(await store.updates.range()).toEqual({ newest: 0n, prunedThrough: 0n, lastRemoval: 0n });
			expect(await store.pruneEvents(at(9), 300)).toBe(1);
			store = await reopen();
			expect(await appendBatch(a, [event()])).toMatchObject({ newest: 7n });
		});

		it("counts pruned events in the activity only if the conversation had a record when they were pruned", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			for (const id of [a, b]) await appendBatch(id, [event({ happenedAt: at(3) })]);
			const { update } = await post(a, "posted", 1, {}, "");
			expect(await store.pruneEvents(at(1), 10)).toBe(2);
			const { update: later } = await post(b, "posted", 1, {}, "");
			const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
			expect(page.map(({ summary }) => summary)).toEqual([
				bytes(later.summary),
				withActivity(update.summary, 1n, at(3)),
			]);
		});

		it("removes a deleted conversation with its events, in steps of at most the limit", async () => {
			const { id } = await versions(2);
			const other = randomUUID();
			await appendBatch(
				id,
				Array.from({ length: 7 }, () => event({ message: "said" })),
			);
			await appendBatch(other, [event()]);
			await post(id, "gone", 2_000, { status: "deleting" });
			const removed: number[] = [];
			do removed.push(await store.prune(olderThan(2_001, 4)));
			while (removed.at(-1) === 4);
			expect(removed).toEqual([4, 4, 3]);
			expect([await kept(), await keptEvents()]).toEqual([[], [8n]]);
			expect(await store.events.range({ conversationId: id })).toMatchObject({ newest: 8n, prunedThrough: 7n });
			expect(await store.getRecordState(id, [])).toEqual({ revision: 0n, ...emptyState });
			const { update: again } = await post(id, "new", 1);
			const page = await store.listConversations({ conditions: [], limit: 10, withRecords: false });
			expect(page.map(({ conversationId }) => conversationId)).toEqual([id, other]);
			expect(page[0]?.summary).toEqual(bytes(again.summary));
			// An effect computed from the removed conversation does not fit the new one with the same id.
			expect(await appendEvents(store, batch(id, [], { effect: effect(1n, "stale") }))).toBeUndefined();
		});

		it("removes a conversation whose deletion came from a state update", async () => {
			const { id } = await versions(2);
			await appendBatch(id, [], { effect: effect(3n, "gone", { status: "deleting" }), receivedAt: at(3_000) });
			expect(await store.prune(olderThan(3_001, 2))).toBe(2);
			expect(await store.prune(olderThan(3_001, 2))).toBe(2);
			expect(await store.prune(olderThan(3_001, 2))).toBe(0);
			expect(await kept()).toEqual([]);
		});
	});
}
