import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Appended, NewUpdate, Store } from "../../src/store/store.ts";
import { lifetimeConformance } from "./conformance-lifetime.ts";
import { listConformance } from "./conformance-lists.ts";
import { pruneConformance } from "./conformance-prune.ts";
import { append, sample, second, start, stored } from "./samples.ts";

/** How the suite gets at an engine. */
export interface StoreHarness {
	/** Opens a store that holds nothing. */
	open(): Promise<Store>;
	/** Closes the store and opens what it left behind. */
	reopen(store: Store): Promise<Store>;
}

/** What every engine must do, as tests. */
export function storeConformance(harness: StoreHarness): void {
	let store: Store;
	beforeEach(async () => {
		store = await harness.open();
	});
	afterEach(() => store.close());

	/** Appends updates of one conversation that follow each other. */
	async function appendAll(updates: readonly NewUpdate[]): Promise<Appended[]> {
		const all: Appended[] = [];
		for (const update of updates) all.push(await append(store, update));
		return all;
	}

	describe("append", () => {
		it("numbers updates upwards from 1 and says what each changed", async () => {
			const conversationId = randomUUID();
			const statuses = ["running", "running", "paused", "idle", "deleting"];
			const updates = statuses.map((status, n) =>
				sample({ conversationId, columns: { status, updatedAt: start + BigInt(n) } }),
			);
			const appended = await appendAll(updates);
			const sequences = appended.map(({ sequence }) => sequence);
			expect(sequences).toEqual(sequences.toSorted((a, b) => Number(a - b)));
			expect(new Set(sequences).size).toBe(statuses.length);
			expect(sequences[0]).toBe(1n);
			expect(appended).toEqual(
				["started", "updated", "paused", "resumed", "deleted"].map((change, n) => ({
					sequence: sequences[n],
					repeated: false,
					change,
					current: true,
				})),
			);
		});

		it("recognises a repetition anywhere in the history and writes nothing", async () => {
			const conversationId = randomUUID();
			const first = sample({ conversationId, columns: { updatedAt: start } });
			const second = sample({ conversationId, columns: { updatedAt: start + 1n, status: "paused" } });
			const late = sample({ conversationId, columns: { updatedAt: start - 1n } });
			const appended = await appendAll([first, second, late]);
			const again = await appendAll([first, second, late].map((update) => ({ ...update, receivedAt: start + 9n })));
			expect(again).toEqual(appended.map((outcome) => ({ ...outcome, repeated: true })));
			const history = await store.listUpdates({ after: 0n, limit: 10, withRecords: false });
			expect(history.map(({ sequence, receivedAt }) => [sequence, receivedAt])).toEqual([
				[appended[0]?.sequence, first.receivedAt],
				[appended[1]?.sequence, second.receivedAt],
				[appended[2]?.sequence, late.receivedAt],
			]);
		});

		it("recognises a repetition that travels beside the first", async () => {
			const update = sample();
			const outcomes = await Promise.all([append(store, update), append(store, update), append(store, update)]);
			const sequence = outcomes[0]?.sequence;
			expect(outcomes).toEqual([
				{ sequence, repeated: false, change: "started", current: true },
				{ sequence, repeated: true, change: "started", current: true },
				{ sequence, repeated: true, change: "started", current: true },
			]);
		});

		it("tells equal digests of two conversations apart, and digests that begin alike", async () => {
			const update = sample({ digest: Buffer.from("0123456789") });
			const other = { ...update, conversationId: randomUUID() };
			const alike = { ...update, digest: Buffer.from("0123456780") };
			const short = { ...update, digest: Buffer.from("012") };
			const outcomes = await appendAll([update, other, alike, short]);
			expect(outcomes.map(({ repeated }) => repeated)).toEqual([false, false, false, false]);
			expect((await appendAll([short, alike])).map(({ sequence }) => sequence)).toEqual([
				outcomes[3]?.sequence,
				outcomes[2]?.sequence,
			]);
		});

		it("keeps a record that is older than the current one in the history only", async () => {
			const conversationId = randomUUID();
			const newer = sample({ conversationId, columns: { updatedAt: start + second } });
			const older = sample({ conversationId, columns: { updatedAt: start, status: "running" } });
			const [first, late] = await appendAll([newer, older]);
			if (first === undefined || late === undefined) throw new Error("two updates were appended");
			expect(late).toEqual({ sequence: late.sequence, repeated: false, change: "updated", current: false });
			expect(await store.get(conversationId)).toEqual(stored(newer, first));
			expect(await store.listUpdates({ after: first.sequence, limit: 10, withRecords: true })).toEqual([
				stored(older, late, first),
			]);
		});

		it("does not revive a deleted conversation by a late post", async () => {
			const conversationId = randomUUID();
			const gone = sample({ conversationId, columns: { status: "deleting", updatedAt: start } });
			const late = sample({ conversationId, columns: { status: "idle", updatedAt: start } });
			const [first, second] = await appendAll([gone, late]);
			if (first === undefined) throw new Error("two updates were appended");
			expect(second).toEqual({ sequence: second?.sequence, repeated: false, change: "updated", current: false });
			expect(await store.get(conversationId)).toEqual(stored(gone, first));
		});

		it("keeps records of any size and columns of any text", async () => {
			const large = sample({ record: Buffer.alloc(16 * 2 ** 20, "x") });
			const empty = sample({ record: Buffer.alloc(0), summary: Buffer.alloc(0), digest: Buffer.alloc(0) });
			const odd = sample({
				columns: {
					status: "",
					title: "a \0 nul, a \u{1f600} and a 'quote'",
					createdAt: -62_135_596_800_000_000n,
					updatedAt: 253_402_300_799_999_999n,
					tags: JSON.parse('{"__proto__": "x", "constructor": ""}'),
				},
			});
			// The store takes the memory of a record over, so it is given a copy.
			const appendCopy = (update: NewUpdate) => append(store, { ...update, record: Buffer.from(update.record) });
			const outcomes = await Promise.all([large, empty, odd].map(appendCopy));
			for (const [n, update] of [large, empty, odd].entries()) {
				const found = await store.get(update.conversationId);
				expect(found?.sequence).toBe(outcomes[n]?.sequence);
				expect(Buffer.compare(found?.record ?? Buffer.from("none"), update.record)).toBe(0);
			}
			const page = await store.listConversations({ filter: { tagKey: "__proto__" }, limit: 10, withRecords: false });
			expect(page.map(({ conversationId }) => conversationId)).toEqual([odd.conversationId]);
		});

		it("refuses an id that is not a lower-case UUID with dashes", async () => {
			await expect(append(store, sample({ conversationId: randomUUID().toUpperCase() }))).rejects.toMatchObject({
				kind: "invalid_argument",
			});
			expect(await store.range()).toEqual({ oldest: 1n, newest: 0n });
		});

		it("takes many at once", async () => {
			const updates = Array.from({ length: 1_000 }, (_, n) => sample({ columns: { title: `title ${n}` } }));
			const outcomes = await Promise.all(updates.map((update) => append(store, update)));
			expect(new Set(outcomes.map(({ sequence }) => sequence)).size).toBe(updates.length);
			for (const [n, update] of updates.entries()) {
				const outcome = outcomes[n];
				if (outcome === undefined) throw new Error("every update has an outcome");
				expect(await store.get(update.conversationId)).toEqual(stored(update, outcome));
			}
		});
	});

	describe("get", () => {
		it("gives the current record, or the one that was current as of a sequence", async () => {
			const conversationId = randomUUID();
			const updates = [2n, 1n, 3n].map((n) => sample({ conversationId, columns: { updatedAt: start + n } }));
			const [first, late, last] = await appendAll(updates);
			const [one, , three] = updates;
			if (!first || !late || !last || !one || !three) throw new Error("three updates were appended");
			expect(await store.get(conversationId)).toEqual(stored(three, last, first));
			expect(await store.get(conversationId, last.sequence + 5n)).toEqual(stored(three, last, first));
			expect(await store.get(conversationId, 2n ** 70n)).toEqual(stored(three, last, first));
			expect(await store.get(conversationId, late.sequence)).toEqual(stored(one, first));
			expect(await store.get(conversationId, first.sequence)).toEqual(stored(one, first));
			expect(await store.get(conversationId, first.sequence - 1n)).toBeUndefined();
		});

		it("gives nothing for an unknown conversation or what cannot be an id", async () => {
			expect(await store.get(randomUUID())).toBeUndefined();
			expect(await store.get("x")).toBeUndefined();
		});
	});

	describe("listUpdates", () => {
		it("gives the history of all or of one in order of sequence", async () => {
			const ids = [randomUUID(), randomUUID()];
			const updates = Array.from({ length: 6 }, (_, n) => sample({ conversationId: ids[n % 2] ?? "" }));
			const outcomes = await appendAll(updates);
			const expected = updates.map((update, n) => {
				const outcome = outcomes[n];
				if (outcome === undefined) throw new Error("every update has an outcome");
				return stored(update, outcome, outcomes[n - 2]);
			});
			const withoutRecords = expected.map((update) => ({ ...update, record: undefined, seal: undefined }));
			const after = expected[1]?.sequence ?? 0n;
			expect(await store.listUpdates({ after: 0n, limit: 10, withRecords: true })).toEqual(expected);
			expect(await store.listUpdates({ after: 0n, limit: 10, withRecords: false })).toEqual(withoutRecords);
			expect(await store.listUpdates({ after, limit: 2, withRecords: true })).toEqual(expected.slice(2, 4));
			expect(await store.listUpdates({ after, conversationId: ids[0], limit: 10, withRecords: true })).toEqual([
				expected[2],
				expected[4],
			]);
			expect(await store.listUpdates({ after: 2n ** 70n, limit: 10, withRecords: true })).toEqual([]);
			expect(
				await store.listUpdates({ after: 0n, conversationId: randomUUID(), limit: 10, withRecords: true }),
			).toEqual([]);
			expect(await store.listUpdates({ after: 0n, conversationId: "x", limit: 10, withRecords: true })).toEqual([]);
		});

		it("stops before its records exceed the bytes asked for, but gives one at least", async () => {
			const updates = [30, 30, 30, 200].map((size) => sample({ record: Buffer.alloc(size) }));
			const outcomes = await appendAll(updates);
			const count = async (after: bigint, maxBytes: number, withRecords = true) =>
				(await store.listUpdates({ after, limit: 10, maxBytes, withRecords })).length;
			expect(await count(0n, 60)).toBe(2);
			expect(await count(0n, 59)).toBe(1);
			expect(await count(0n, 0)).toBe(1);
			expect(await count(0n, 290)).toBe(4);
			expect(await count(0n, 0, false)).toBe(4);
			expect(await count(outcomes[2]?.sequence ?? 0n, 100)).toBe(1);
		});
	});

	const current = () => store;
	const reopen = async () => {
		store = await harness.reopen(store);
		return store;
	};
	listConformance(current);
	pruneConformance(current, reopen);
	lifetimeConformance(current, reopen);
}
