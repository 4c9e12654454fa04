import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, effect, event, record, stateUpdate, storedEvent } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

/** Tests what every engine does with data that was fetched from an agent server. */
export function fetchedConformance(store: () => Store): void {
	describe("fetched data", () => {
		it("has its own origin, in events and in what they change, and does not count as a post", async () => {
			const [id, poster] = [randomUUID(), { sender: "agent", owner: undefined }];
			const events = [event({ eventId: "posted" }), event({ eventId: "fetched" })] as const;
			const posted = batch(id, [events[0]], { poster });
			const fetched = { ...batch(id, [events[1]], { poster }), isFetched: true };
			await append(store(), sample({ conversationId: id, record: record({ title: "Posted" }) }));
			await appendEvents(store(), posted);
			const { revision } = await store().getRecordState(id, []);
			await appendEvents(store(), { ...fetched, effect: effect(revision, "Fetched") });
			const [one, other] = await store().events.list({ after: 0n, limit: 10 });
			if (one === undefined || other === undefined) throw new Error("an event is missing");
			expect(one).toEqual(storedEvent(posted, events[0], one.sequence));
			expect(other).toEqual(storedEvent(fetched, events[1], other.sequence));
			expect([one.origin, other.origin]).toEqual([UpdateOrigin.POSTED, UpdateOrigin.RECONCILED]);
			const updates = await store().updates.list({ after: 0n, limit: 10, withRecords: false });
			expect(updates.map(({ origin }) => origin)).toEqual([UpdateOrigin.POSTED, UpdateOrigin.RECONCILED]);
			const { senders } = await store().listSenders();
			expect(senders).toMatchObject([{ sender: "agent", records: 0n, events: 1n }]);
		});

		it("a whole record is stored only for a conversation without one or with an older one, or that begins again with it", async () => {
			const conversationId = randomUUID();
			const made = (createdAt: bigint, updatedAt: bigint, status = "idle") =>
				sample({ conversationId, columns: { createdAt, updatedAt, status } });
			const fetch = (createdAt: bigint, updatedAt: bigint) =>
				append(store(), { ...made(createdAt, updatedAt), isFetched: true });
			expect(await fetch(start, start)).toMatchObject({ duplicate: false, change: UpdateChange.STARTED });
			for (const updatedAt of [start, start - second])
				expect(await fetch(start, updatedAt)).toMatchObject({ duplicate: true });
			expect(await fetch(start, start + second)).toMatchObject({ duplicate: false, current: true });
			const again = start + second;
			expect(await fetch(again, again)).toMatchObject({ duplicate: false, current: true });
			expect(await fetch(start, again + second)).toMatchObject({ duplicate: true });
			const updates = await store().updates.list({ after: 0n, limit: 10, withRecords: false });
			expect(updates.map(({ origin }) => origin)).toEqual(Array(3).fill(UpdateOrigin.RECONCILED));
			// A post of the first life does not replace the second one, and is stored as any other.
			expect(await append(store(), made(start, again))).toMatchObject({ duplicate: false, current: false });
			await append(store(), made(again, again, "deleting"));
			expect(await fetch(again, again + second)).toMatchObject({ duplicate: true });
		});

		it("events that are later than the last one of a whole record are to be applied to it", async () => {
			for (const leaf of ["first", "last", undefined]) {
				const id = randomUUID();
				const [first, last] = [
					event({ eventId: "first", happenedAt: start }),
					event({ eventId: "last", happenedAt: start + 2n * second }),
				];
				const state = stateUpdate({ happenedAt: start + second });
				await append(
					store(),
					sample({ conversationId: id, columns: { updatedAt: start - second }, record: record({}) }),
				);
				await appendEvents(store(), batch(id, [first, state, last]));
				const later = {
					columns: { updatedAt: start + 3n * second },
					record: record(leaf === undefined ? {} : { leafEventId: leaf }),
				};
				const fetched = await append(store(), { ...sample({ conversationId: id, ...later }), isFetched: true });
				expect(fetched).toMatchObject({ duplicate: false, current: true, hasUnappliedEvents: leaf !== "last" });
			}
		});
	});
}
