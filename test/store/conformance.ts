import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import { ServiceError } from "../../src/errors.ts";
import type { IsSameRecord } from "../../src/store/duplicates.ts";
import type { AppendedUpdate } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { accessKeyConformance } from "./conformance-access-keys.ts";
import { activityConformance } from "./conformance-activity.ts";
import { auditConformance } from "./conformance-audit.ts";
import { countConformance } from "./conformance-counts.ts";
import { eraseConformance } from "./conformance-erase.ts";
import { eventRetentionConformance } from "./conformance-event-retention.ts";
import { eventConformance } from "./conformance-events.ts";
import { fetchedConformance } from "./conformance-fetched.ts";
import { gapConformance } from "./conformance-gaps.ts";
import { lifetimeConformance } from "./conformance-lifetime.ts";
import { listConformance } from "./conformance-lists.ts";
import { ownerConformance } from "./conformance-owners.ts";
import { pruneConformance } from "./conformance-prune.ts";
import { refusedPostConformance } from "./conformance-refused-posts.ts";
import { scoreConformance } from "./conformance-scores.ts";
import { searchConformance } from "./conformance-search.ts";
import { senderConformance } from "./conformance-senders.ts";
import { versionConformance } from "./conformance-versions.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, conditions, type Sample, sample, second, start, stored } from "./samples.ts";

/** Opens stores of the engine under test. */
export interface StoreHarness {
	/** Opens an empty store. */
	open(isSameRecord: IsSameRecord): Promise<Store>;
	/** Whether the engine groups usage by the root of conversations. Default: true. */
	readonly reportsRoots?: boolean;
	/** Closes the store and opens its database again. */
	reopen(store: Store): Promise<Store>;
}

/** Tests of the contract that every engine must fulfil, each with an empty store; see also {@link storeLaws}. */
export function storeConformance(harness: StoreHarness): void {
	let store: Store;
	let isSameRecord: IsSameRecord;
	beforeEach(async () => {
		isSameRecord = async () => false;
		store = await harness.open((left, right) => isSameRecord(left, right));
	});
	afterEach(() => store.close());

	function outcomeOf(outcome: AppendedUpdate | undefined): AppendedUpdate {
		if (outcome === undefined) throw new Error("every update has an outcome");
		return outcome;
	}

	/** Appends updates one after the other. */
	async function appendAll(updates: readonly Sample[]): Promise<AppendedUpdate[]> {
		const all: AppendedUpdate[] = [];
		for (const update of updates) all.push(await append(store, update));
		return all;
	}

	describe("append", () => {
		it("numbers updates from 1 upwards, and reports the change of each", async () => {
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
				[
					UpdateChange.STARTED,
					UpdateChange.UPDATED,
					UpdateChange.PAUSED,
					UpdateChange.RESUMED,
					UpdateChange.DELETED,
				].map((change, n) => ({
					sequence: sequences[n],
					duplicate: false,
					change,
					current: true,
					hasUnappliedEvents: false,
				})),
			);
		});

		it("stores the other updates of a group when one of them cannot be written", async () => {
			const [first, bad, last] = [sample(), sample({ redactionVersion: 0.5 }), sample()];
			const outcomes = await Promise.allSettled([first, bad, last].map((update) => append(store, update)));
			expect(outcomes).toMatchObject([
				{ status: "fulfilled", value: { duplicate: false } },
				{
					status: "rejected",
					reason: { name: "ServiceError", kind: "internal", message: "the store failed while processing this request" },
				},
				{ status: "fulfilled", value: { duplicate: false } },
			]);
			const kept = await store.updates.list({ after: 0n, limit: 10, withRecords: false });
			expect(kept.map(({ conversationId }) => conversationId)).toEqual([first.conversationId, last.conversationId]);
		});

		it("recognises a duplicate of the newest update, and writes nothing", async () => {
			const conversationId = randomUUID();
			const first = sample({ conversationId, columns: { updatedAt: start } });
			const late = sample({ conversationId, columns: { updatedAt: start - 1n } });
			const appended = await appendAll([first, late]);
			const [again] = await appendAll([{ ...late, receivedAt: start + 9n }]);
			expect(again).toEqual({ ...appended[1], duplicate: true });
			const history = await store.updates.list({ after: 0n, limit: 10, withRecords: true });
			expect(history).toEqual(
				[first, late].map((update, n) => stored(update, outcomeOf(appended[n]), n === 0 ? undefined : appended[0])),
			);
		});

		it("appends a record again when another one was stored in between", async () => {
			const conversationId = randomUUID();
			const running = sample({ conversationId, columns: { status: "running" } });
			const paused = sample({ conversationId, columns: { status: "paused" } });
			const outcomes = await appendAll([running, paused, running]);
			expect(outcomes.map(({ duplicate, change, current }) => ({ duplicate, change, current }))).toEqual([
				{ duplicate: false, change: UpdateChange.STARTED, current: true },
				{ duplicate: false, change: UpdateChange.PAUSED, current: true },
				{ duplicate: false, change: UpdateChange.RESUMED, current: true },
			]);
			expect(await store.get(conversationId)).toEqual(stored(running, outcomeOf(outcomes[2]), outcomes[1]));
		});

		it("recognises duplicates that arrive together with the first post", async () => {
			const update = sample();
			const outcomes = await Promise.all([append(store, update), append(store, update), append(store, update)]);
			const sequence = outcomes[0]?.sequence;
			expect(outcomes).toEqual([
				{ sequence, duplicate: false, change: UpdateChange.STARTED, current: true, hasUnappliedEvents: false },
				{ sequence, duplicate: true, change: UpdateChange.STARTED, current: true, hasUnappliedEvents: false },
				{ sequence, duplicate: true, change: UpdateChange.STARTED, current: true, hasUnappliedEvents: false },
			]);
		});

		it("appends records that differ in conversation, length, time or content: they are no duplicates", async () => {
			const update = sample({ record: Buffer.from("equal"), columns: { updatedAt: start } });
			const others = [
				sample({ record: Buffer.from("equal"), columns: { updatedAt: start } }),
				sample({ conversationId: update.conversationId, record: Buffer.from("longer"), columns: { updatedAt: start } }),
				sample({ conversationId: update.conversationId, record: Buffer.from("longer") }),
				sample({ conversationId: update.conversationId, record: Buffer.from("larger") }),
			];
			const outcomes = await appendAll([update, ...others]);
			expect(outcomes.map(({ duplicate }) => duplicate)).toEqual([false, false, false, false, false]);
		});

		it("compares records of equal time and length by `isSameRecord`, again if a newer record arrives meanwhile", async () => {
			const conversationId = randomUUID();
			const text = (record: string) => sample({ conversationId, record: Buffer.from(record) });
			const asked: string[] = [];
			let during: (() => Promise<unknown>) | undefined;
			isSameRecord = async (left, right) => {
				const pair = [left, right].map((one) => Buffer.from(one).toString());
				asked.push(pair.join(" "));
				await during?.();
				return pair[0]?.toLowerCase() === pair[1]?.toLowerCase();
			};
			const first = await append(store, text("abc"));
			expect(await append(store, text("ABC"))).toEqual({ ...first, duplicate: true });
			expect(await append(store, text("abd"))).toMatchObject({ duplicate: false });
			expect(asked).toEqual(["abc ABC", "abc abd"]);
			asked.length = 0;
			during = async () => {
				during = undefined;
				await append(store, text("longer"));
				await append(store, text("xyz"));
			};
			const last = await append(store, text("ABD"));
			expect(asked).toEqual(["abd ABD", "xyz ABD"]);
			expect(last).toMatchObject({ duplicate: false, current: true });
			isSameRecord = () => Promise.reject(new ServiceError("data_loss", "not a record"));
			expect(await append(store, text("abD"))).toMatchObject({ duplicate: false });
			isSameRecord = () => Promise.reject(new ServiceError("unavailable", "no thread"));
			await expect(append(store, text("aBD"))).rejects.toMatchObject({ kind: "unavailable" });
		});

		it("adds a record that is older than the current one to the history only", async () => {
			const conversationId = randomUUID();
			const newer = sample({ conversationId, columns: { updatedAt: start + second } });
			const older = sample({ conversationId, columns: { updatedAt: start, status: "paused" } });
			const [first, late] = await appendAll([newer, older]);
			if (first === undefined || late === undefined) throw new Error("two updates were appended");
			expect(late).toEqual({
				sequence: 2n,
				duplicate: false,
				change: UpdateChange.UPDATED,
				current: false,
				hasUnappliedEvents: false,
			});
			expect(await store.get(conversationId)).toEqual(stored(newer, first));
			expect(await store.updates.list({ after: first.sequence, limit: 10, withRecords: true })).toEqual([
				stored(older, late, first),
			]);
		});

		it("lets later records replace one whose time is far in the future", async () => {
			const year9999 = 253_402_300_799_999_999n;
			const conversationId = randomUUID();
			const post = (status: string, updatedAt: bigint, minute: number) =>
				sample({ conversationId, receivedAt: start + BigInt(minute) * 60n * second, columns: { status, updatedAt } });
			const outcomes = await appendAll([
				post("idle", year9999, 0),
				post("running", start - second, 1),
				post("paused", start + 60n * second, 2),
			]);
			expect(outcomes.map(({ current, change }) => [current, change])).toEqual([
				[true, UpdateChange.STARTED],
				[false, UpdateChange.UPDATED],
				[true, UpdateChange.PAUSED],
			]);
		});

		it("starts a conversation again that was deleted, with a record of a later life only", async () => {
			const conversationId = randomUUID();
			const outcomes = await appendAll(
				[
					{ status: "running", createdAt: start, updatedAt: start + 9n },
					{ status: "deleting", createdAt: undefined, updatedAt: start + 2n },
					{ status: "idle", createdAt: start, updatedAt: start + 50n },
					{ status: "idle", createdAt: start + 5n, updatedAt: start + 1n },
				].map((columns) => sample({ conversationId, columns })),
			);
			expect(outcomes.map(({ current, change }) => [current, change])).toEqual([
				[true, UpdateChange.STARTED],
				[true, UpdateChange.DELETED],
				[false, UpdateChange.UPDATED],
				[true, UpdateChange.STARTED],
			]);
		});

		it("lets later arrivals become current when the clock jumps forwards or backwards and returns", async () => {
			const year = 365n * 86_400n * second;
			const { conversationId } = sample();
			// Senders on the same machine share its clock, so their times jump too.
			for (const [clock, updatedAt] of [
				[0n, 0n],
				[10n * year, 10n * year],
				[second, second],
				[-10n * year, -10n * year],
				[-10n * year + second, 2n * second],
				[3n * second, 3n * second],
			] as const) {
				const columns = { updatedAt: start + updatedAt };
				const update = sample({ conversationId, receivedAt: start + clock, columns });
				expect([updatedAt, await append(store, update)]).toMatchObject([updatedAt, { current: true }]);
			}
			const late = sample({ conversationId, receivedAt: start + 4n * second, columns: { updatedAt: start } });
			expect(await append(store, late)).toMatchObject({ sequence: 7n, current: false });
		});

		it("stores records of any size and summaries with any text", async () => {
			const large = sample({ record: Buffer.alloc(16 * 2 ** 20, "x") });
			const empty = sample({ record: Buffer.alloc(0) });
			const odd = sample({
				columns: {
					status: "",
					title: "a \0 nul, a \u{1f600} and a 'quote'",
					createdAt: -62_135_596_800_000_000n,
					updatedAt: 253_402_300_799_999_999n,
					tags: JSON.parse('{"__proto__": "x", "constructor": ""}'),
				},
			});
			const outcomes = await Promise.all([large, empty, odd].map((update) => append(store, update)));
			for (const [n, update] of [large, empty, odd].entries()) {
				const found = await store.get(update.conversationId);
				expect(found?.sequence).toBe(outcomes[n]?.sequence);
				const read = found?.record !== undefined && "bytes" in found.record ? found.record.bytes : Buffer.from("none");
				expect(Buffer.compare(read, update.record.bytes)).toBe(0);
			}
			const page = await store.listConversations({
				conditions: conditions({ tagKey: "__proto__" }),
				limit: 10,
				withRecords: false,
			});
			expect(page.map(({ conversationId }) => conversationId)).toEqual([odd.conversationId]);
		});

		it("refuses updates and events whose sender no longer waits, and stores nothing of them", async () => {
			const late = { aborted: false, deadline: Date.now() - 1 };
			const gone = { aborted: true };
			const events = batch(randomUUID(), [event()]);
			const refusal = { kind: "unavailable", message: "the sender no longer waits for the response" };
			const outcomes = await Promise.allSettled([
				append(store, sample(), late),
				append(store, sample(), gone),
				appendEvents(store, events, late),
				appendEvents(store, events, gone),
				append(store, sample(), { aborted: false, deadline: Date.now() + 60_000 }),
			]);
			expect(outcomes).toMatchObject([
				{ status: "rejected", reason: refusal },
				{ status: "rejected", reason: refusal },
				{ status: "rejected", reason: refusal },
				{ status: "rejected", reason: refusal },
				{ status: "fulfilled", value: { sequence: 1n } },
			]);
			expect((await store.updates.range()).newest).toBe(1n);
			expect((await store.events.range()).newest).toBe(0n);
		});
	});

	describe("get", () => {
		it("returns the current record, or the one that was current as of a sequence", async () => {
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

		it("returns undefined for an unknown conversation or an invalid id", async () => {
			expect(await store.get(randomUUID())).toBeUndefined();
			expect(await store.get("x")).toBeUndefined();
		});
	});

	describe("updates.list", () => {
		it("returns the updates of all conversations or of one, in order of sequence", async () => {
			const ids = [randomUUID(), randomUUID()];
			const updates = Array.from({ length: 6 }, (_, n) => sample({ conversationId: ids[n % 2] ?? "" }));
			const outcomes = await appendAll(updates);
			const expected = updates.map((update, n) => {
				const outcome = outcomes[n];
				if (outcome === undefined) throw new Error("every update has an outcome");
				return stored(update, outcome, outcomes[n - 2]);
			});
			const withoutRecords = expected.map((update) => ({ ...update, record: undefined }));
			const after = expected[1]?.sequence ?? 0n;
			expect(await store.updates.list({ after: 0n, limit: 10, withRecords: true })).toEqual(expected);
			expect(await store.updates.list({ after: 0n, limit: 10, withRecords: false })).toEqual(withoutRecords);
			expect(await store.updates.list({ after, limit: 2, withRecords: true })).toEqual(expected.slice(2, 4));
			expect(await store.updates.list({ after, conversationId: ids[0], limit: 10, withRecords: true })).toEqual([
				expected[2],
				expected[4],
			]);
			expect(await store.updates.list({ after: 2n ** 70n, limit: 10, withRecords: true })).toEqual([]);
			expect(
				await store.updates.list({ after: 0n, conversationId: randomUUID(), limit: 10, withRecords: true }),
			).toEqual([]);
			expect(await store.updates.list({ after: 0n, conversationId: "x", limit: 10, withRecords: true })).toEqual([]);
		});

		it("stops before the records exceed `maxBytes`, but returns at least one update", async () => {
			const updates = [30, 30, 30, 200].map((size) => sample({ record: Buffer.alloc(size) }));
			const outcomes = await appendAll(updates);
			const count = async (after: bigint, maxBytes: number, withRecords = true) =>
				(await store.updates.list({ after, limit: 10, maxBytes, withRecords })).length;
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
	senderConformance(current);
	refusedPostConformance(current, reopen);
	lifetimeConformance(current, reopen);
	eventConformance(current, reopen);
	versionConformance(current, reopen);
	activityConformance(current, reopen);
	eventRetentionConformance(current, reopen);
	fetchedConformance(current);
	gapConformance(current, reopen);
	accessKeyConformance(current, reopen);
	auditConformance(current, reopen);
	scoreConformance(current);
}

/**
 * Tests of the same contract that open stores of their own, some of them for each of many random histories.
 *
 * @param factor how many times as many histories as in `npm test`
 */
export function storeLaws(harness: StoreHarness, factor = 1): void {
	const open = () => harness.open(async () => false);
	searchConformance(harness, factor);
	ownerConformance(open, factor);
	countConformance(open, factor);
	eraseConformance(open, harness.reportsRoots ?? true, factor);
}
