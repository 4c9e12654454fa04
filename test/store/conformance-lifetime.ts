import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import type { Store } from "../../src/store/store.ts";
import { append, sample, stored } from "./samples.ts";

/** Tests of listeners, of closing, and of the data after reopening. */
export function lifetimeConformance(current: () => Store, reopen: () => Promise<Store>): void {
	describe("subscribe", () => {
		let store: Store;
		beforeEach(() => {
			store = current();
		});

		it("calls listeners with the newest sequence after commits that added updates", async () => {
			const heard: bigint[] = [];
			const others: bigint[] = [];
			const stop = store.updates.subscribe((newest) => heard.push(newest));
			const stopOther = store.updates.subscribe((newest) => others.push(newest));
			const update = sample();
			const first = await append(store, update);
			await expect.poll(() => heard).toEqual([first.sequence]);
			await append(store, update);
			const outcomes = await Promise.all(Array.from({ length: 50 }, () => append(store, sample())));
			const newest = outcomes.map(({ sequence }) => sequence).toSorted((a, b) => Number(b - a))[0];
			await expect.poll(() => heard.at(-1)).toBe(newest);
			expect(heard).toEqual([...new Set(heard)].toSorted((a, b) => Number(a - b)));
			stop();
			const last = await append(store, sample());
			await expect.poll(() => others.at(-1)).toBe(last.sequence);
			expect(heard.at(-1)).toBe(newest);
			stopOther();
		});

		it("calls listeners when the update can already be read", async () => {
			const found = new Promise((resolve, reject) => {
				store.updates.subscribe((newest) =>
					store.updates.list({ after: newest - 1n, limit: 1, withRecords: true }).then(resolve, reject),
				);
			});
			const update = sample();
			const outcome = await append(store, update);
			expect(await found).toEqual([stored(update, outcome)]);
		});
	});

	describe("the store", () => {
		let store: Store;
		beforeEach(() => {
			store = current();
		});

		it("has an empty range and no updates when it is new", async () => {
			expect(await store.updates.range()).toEqual({ newest: 0n, prunedThrough: 0n, lastRemoval: 0n });
			expect(await store.updates.list({ after: 0n, limit: 10, withRecords: true })).toEqual([]);
			await store.check();
		});

		it("completes accepted requests when it closes, and refuses later ones", async () => {
			const accepted = Array.from({ length: 600 }, () => append(store, sample()));
			await accepted[0];
			const list = store.listConversations({ conditions: [], limit: 1_000, withRecords: false });
			await store.close();
			const outcomes = await Promise.all(accepted);
			expect((await list).length).toBeGreaterThan(0);
			await expect(append(store, sample())).rejects.toMatchObject({ name: "ServiceError", kind: "unavailable" });
			await expect(store.get(randomUUID())).rejects.toMatchObject({ name: "ServiceError", kind: "unavailable" });
			await expect(store.check()).rejects.toMatchObject({ name: "ServiceError", kind: "unavailable" });
			await store.close();
			store = await reopen();
			const kept = await store.updates.list({ after: 0n, limit: 1_000, withRecords: false });
			expect(kept.map(({ sequence }) => sequence)).toEqual(
				outcomes.map(({ sequence }) => sequence).toSorted((a, b) => Number(a - b)),
			);
		});
	});
}
