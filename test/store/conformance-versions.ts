import { randomUUID } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import { beforeEach, describe, expect, it } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { NewEvent } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, effect, effectOf, event, record, stateUpdate, withActivity } from "./event-samples.ts";
import { all, at, decoded, emptyState, eventSteps } from "./event-steps.ts";
import { append, bytes, conditions, sample, start, stored, summaryWithTimes } from "./samples.ts";

/** Tests of the record versions that state updates produce, and of the leaf of the current record. */
export function versionConformance(current: () => Store, reopen: () => Promise<Store>): void {
	let store: Store;
	beforeEach(() => {
		store = current();
	});
	const { appendBatch, history, post } = eventSteps(() => store);

	describe("versions that events make", () => {
		it("are returned by every read as whole records, with the other fields of the posted record", async () => {
			const a = randomUUID();
			const { update, appended } = await post(a, "posted", 1, { status: "idle" }, "");
			const reported = stateUpdate({ happenedAt: at(5) });
			const running = effect(1n, "first", { status: "running" });
			const one = await appendBatch(a, [reported], { effect: running, receivedAt: at(6) });
			expect(one).toEqual({ stored: 1, newest: 1n, updateSequence: 2n, updateChange: UpdateChange.RUNNING });
			const finished = effect(2n, "second", { status: "finished" }, { redactionVersion: 8 });
			const two = await appendBatch(a, [stateUpdate({ happenedAt: at(7) })], { effect: finished, receivedAt: at(8) });
			const encoded = (title: string) =>
				bytes(Buffer.concat([recordWithoutTitle(update.record.bytes), record({ title })]));
			const version = (n: number, title: string, change: UpdateChange, summary: Uint8Array, versions: object) => ({
				conversationId: a,
				sequence: BigInt(n),
				receivedAt: at(n === 2 ? 6 : 8),
				origin: UpdateOrigin.EVENTS,
				change,
				current: true,
				previousSequence: BigInt(n - 1),
				summary: withActivity(
					summaryWithTimes(summary, { createdAt: start, updatedAt: at(n === 2 ? 6 : 8) }),
					BigInt(n - 1),
					at(n === 2 ? 5 : 7),
					{ runStartedAt: at(6) },
				),
				record: { bytes: encoded(title), ...versions },
			});
			const [{ version: v1 }, { version: v2 }] = [running, finished];
			if (v1 === undefined || v2 === undefined) throw new Error("both make a version");
			const versions = { redactionVersion: 7 };
			const expected = [
				stored(update, appended),
				version(2, "first", UpdateChange.RUNNING, v1.summary, versions),
				version(3, "second", UpdateChange.FINISHED, v2.summary, { redactionVersion: 0 }),
			];
			const check = async () => {
				expect(await store.updates.list({ ...all, withRecords: true })).toEqual(expected);
				expect(await store.get(a)).toEqual(expected[2]);
				for (const n of [1, 2, 3]) expect(await store.get(a, BigInt(n))).toEqual(expected[n - 1]);
				const page = { conditions: conditions({ status: "finished" }), limit: 10, withRecords: true };
				expect(await store.listConversations(page)).toEqual([
					{ conversationId: a, sequence: 3n, summary: expected[2]?.summary, record: expected[2]?.record },
				]);
				expect(await store.getRecordState(a, ["unknown", reported.eventId])).toEqual({
					revision: 3n,
					memberTimes: "reported over 2",
					postedAt: at(1),
					hasUnappliedEvents: false,
					lastEventAt: at(7),
					current: expected[2],
					knownIds: [reported.eventId],
				});
			};
			expect(two).toEqual({ stored: 1, newest: 2n, updateSequence: 3n, updateChange: UpdateChange.FINISHED });
			await check();
			store = await reopen();
			await check();
			const of = (origin: UpdateOrigin, more: object = {}) =>
				store.updates
					.list({ ...all, ...more, origin, withRecords: false })
					.then((updates) => updates.map(({ sequence }) => sequence));
			expect(await of(UpdateOrigin.POSTED)).toEqual([1n]);
			expect(await of(UpdateOrigin.EVENTS, { conversationId: a })).toEqual([2n, 3n]);
			expect(await of(UpdateOrigin.EVENTS, { limit: 1 })).toEqual([2n]);
			expect(await of(UpdateOrigin.UNSPECIFIED)).toEqual([1n, 2n, 3n]);
		});

		it("are returned whole also when large changes make the store keep some of them without a base", async () => {
			const a = randomUUID();
			await post(a, "posted", 1);
			const said = Array.from({ length: 12 }, (_, n) => `${n} ${"y".repeat((n % 3) * 200)}`);
			for (const [n, title] of said.entries()) await appendBatch(a, [], { effect: effect(BigInt(n + 1), title) });
			expect(await history(a)).toEqual(["posted posted", ...said.map((title) => `${title} posted`)]);
			const { update } = await post(a, "posted again", 2);
			await appendBatch(a, [], { effect: effect(14n, "after it") });
			expect(decoded((await store.get(a))?.record)).toBe("after it posted");
			expect(decoded((await store.get(a, 14n))?.record)).toBe("posted again posted");
			expect(await append(store, update)).toMatchObject({ sequence: 14n, duplicate: true, current: true });
		});

		it("are not written when no member changes; the record state is saved only if there is a record", async () => {
			const a = randomUUID();
			await post(a, "posted", 1);
			const reported = { expects: 1n, next: 2n, memberTimes: "reported", version: undefined };
			expect(await appendBatch(a, [stateUpdate()], { effect: reported })).toMatchObject({
				stored: 1,
				updateSequence: undefined,
			});
			expect(await store.getRecordState(a, [])).toMatchObject({
				revision: 2n,
				memberTimes: "reported",
				current: { sequence: 1n },
			});
			const b = randomUUID();
			const only = stateUpdate({ happenedAt: at(3) });
			expect(await appendBatch(b, [only], { effect: { ...reported, expects: 0n, next: 1n } })).toMatchObject({
				stored: 1,
			});
			expect(await store.getRecordState(b, [])).toEqual({ revision: -1n, ...emptyState, lastEventAt: at(3) });
		});

		it("are not written as the first record when they were made without an event that is stored", async () => {
			const a = randomUUID();
			const first = record({ id: a, title: "reported", tags: { padding: "x".repeat(400) } });
			const { revision } = await store.getRecordState(a, []);
			const reported = { expects: revision, next: 2n ** 61n, memberTimes: "{}", version: undefined };
			await appendBatch(a, [stateUpdate({ happenedAt: at(3) })], { effect: reported });
			const made = batch(a, [stateUpdate()], { effect: effectOf(revision, first) });
			expect([revision, await appendEvents(store, made)]).toEqual([0n, undefined]);
			expect(await store.getRecordState(a, [])).toEqual({ revision: -1n, ...emptyState, lastEventAt: at(3) });
			expect(await appendBatch(a, [stateUpdate()], { effect: effectOf(-1n, first) })).toEqual({
				stored: 1,
				newest: 2n,
				updateSequence: 1n,
				updateChange: UpdateChange.STARTED,
			});
			expect(await history(a)).toEqual(["reported undefined"]);
		});

		it("can be the first record of a conversation, which a posted record then replaces", async () => {
			const a = randomUUID();
			const first = record({ id: a, title: "reported", tags: { padding: "x".repeat(400) } });
			const events = [stateUpdate({ happenedAt: at(9) }), event({ eventId: "leaf", happenedAt: at(3) })];
			const { updateSequence } = await appendBatch(a, events, {
				effect: effectOf(0n, first, { status: "running" }),
			});
			expect(updateSequence).toBe(1n);
			const found = await store.getRecordState(a, []);
			expect(found).toMatchObject({
				revision: 1n,
				memberTimes: "reported over 0",
				postedAt: undefined,
				hasUnappliedEvents: false,
			});
			expect(found.current).toMatchObject({ change: UpdateChange.STARTED, current: true, previousSequence: undefined });
			expect(decoded(found.current?.record)).toBe("reported leaf");
			const { appended } = await post(a, "posted", 4);
			expect(appended).toMatchObject({ sequence: 2n, current: true, hasUnappliedEvents: true, duplicate: false });
			expect(await store.getRecordState(a, [])).toMatchObject({
				revision: 2n,
				memberTimes: undefined,
				postedAt: at(4),
			});
			expect(await history(a)).toEqual(["reported leaf", "posted posted"]);
		});

		it("of a record without `updated_at` are replaced when the same record is posted again", async () => {
			const a = randomUUID();
			const { update, appended } = await post(a, "posted", 1, { updatedAt: undefined });
			expect(await append(store, update)).toEqual({ ...appended, duplicate: true });
			await appendBatch(a, [], { effect: effect(1n, "reported") });
			expect(await append(store, update)).toMatchObject({ sequence: 3n, duplicate: false, current: true });
			expect(await history(a)).toEqual(["posted posted", "reported posted", "posted posted"]);
		});
	});

	describe("a posted record", () => {
		it("has unapplied events when stored state updates are later, until an effect is appended", async () => {
			const [a, b, c, d] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
			for (const id of [a, b, c, d])
				await appendBatch(id, [stateUpdate({ happenedAt: at(5) }), event({ happenedAt: at(9) })]);
			const outcomes = [
				await post(a, "older", 4),
				await post(b, "as old", 5),
				await post(c, "older", 4, { status: "deleting" }),
				await post(d, "older", 4),
			];
			expect(outcomes.map(({ appended }) => appended.hasUnappliedEvents)).toEqual([true, false, false, true]);
			expect(await append(store, outcomes[0]?.update ?? sample())).toMatchObject({
				duplicate: true,
				hasUnappliedEvents: true,
			});
			expect((await post(a, "too old", 3)).appended).toMatchObject({ current: false, hasUnappliedEvents: true });
			store = await reopen();
			expect(new Set(await store.listUnapplied(10))).toEqual(new Set([a, d]));
			expect(await store.listUnapplied(1)).toHaveLength(1);
			await appendBatch(a, [], { effect: { expects: 1n, next: 2n, memberTimes: "reported", version: undefined } });
			expect(await store.listUnapplied(10)).toEqual([d]);
			expect((await post(d, "newer", 6)).appended).toMatchObject({ current: true, hasUnappliedEvents: false });
			expect(await store.listUnapplied(10)).toEqual([]);
			expect((await post(a, "still older", 4)).appended).toMatchObject({ current: true, hasUnappliedEvents: true });
			await appendBatch(b, [stateUpdate({ happenedAt: at(7) })]);
			expect((await store.getRecordState(b, [])).hasUnappliedEvents).toBe(false);
		});

		it("without `updated_at` is compared with state updates by its time of receipt", async () => {
			const a = randomUUID();
			const of = (receivedAt: bigint) => sample({ conversationId: a, receivedAt, record: record({ id: a }) });
			await appendBatch(a, [stateUpdate({ happenedAt: at(5) })]);
			expect(await append(store, of(at(4)))).toMatchObject({ hasUnappliedEvents: true });
			expect(await store.getRecordState(a, [])).toMatchObject({ postedAt: at(4), hasUnappliedEvents: true });
			expect(await append(store, sample({ ...of(at(5)), record: record({ id: a, title: "x" }) }))).toMatchObject({
				hasUnappliedEvents: false,
			});
		});
	});

	describe("the leaf", () => {
		const leafOf = async (conversationId: string) => {
			const { record: got } = (await store.get(conversationId)) ?? {};
			const { current: same } = await store.getRecordState(conversationId, []);
			const [listed] = await store.listConversations({ conditions: [], limit: 1, withRecords: true });
			expect([same?.record, listed?.record]).toEqual([got, got]);
			return decoded(got).split(" ")[1];
		};
		const leafAt = (eventId: string, n: number): NewEvent => event({ eventId, happenedAt: at(n) });

		it("of the current record follows later events; updates in the history keep their stored leaf", async () => {
			const a = randomUUID();
			await post(a, "posted", 5);
			expect(await leafOf(a)).toBe("posted");
			await appendBatch(a, [leafAt("early", 4), leafAt("same", 5)]);
			expect(await leafOf(a)).toBe("posted");
			await appendBatch(a, [leafAt("later", 8), leafAt("stamped-earlier", 6)]);
			expect(await leafOf(a)).toBe("stamped-earlier");
			await appendBatch(a, [leafAt("late", 7), stateUpdate({ happenedAt: at(20) })]);
			expect(await leafOf(a)).toBe("stamped-earlier");
			await appendBatch(a, [leafAt("later", 8), leafAt("grown-batch", 6)]);
			expect(await leafOf(a)).toBe("grown-batch");
			expect(await history(a)).toEqual(["posted posted"]);
			await appendBatch(a, [leafAt("newest", 9)], { effect: effect(1n, "reported") });
			await appendBatch(a, [leafAt("last", 10)]);
			expect(await leafOf(a)).toBe("last");
			expect(await history(a)).toEqual(["posted posted", "reported newest"]);
			expect(decoded((await store.get(a, 2n))?.record)).toBe("reported newest");
			await post(a, "again", 10);
			expect(await leafOf(a)).toBe("posted");
			await appendBatch(a, [leafAt("after", 11)]);
			expect(await leafOf(a)).toBe("after");
			store = await reopen();
			expect(await leafOf(a)).toBe("after");
			await post(a, "gone", 10, { status: "deleting" });
			expect(await leafOf(a)).toBe("posted");
		});
	});
}

/** Returns an encoded record without its title. */
function recordWithoutTitle(encoded: Uint8Array): Uint8Array {
	const { title: _, ...rest } = fromBinary(ConversationInfoSchema, encoded);
	return record(rest);
}
