import { fromBinary } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import type { AppendedEvents, AppendedUpdate, RecordState } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import type { StoredRecord, Unreadable } from "../../src/store/values.ts";
import { appendEvents, batch, record } from "./event-samples.ts";
import { append, type Sample, sample, second, start } from "./samples.ts";

/** Steps of the tests that store records and events of one conversation. */

/** Returns the time a number of seconds after `start`. */
export const at = (n: number): bigint => start + BigInt(n) * second;

/** A query for all entries of a log. */
export const all = { after: 0n, limit: 1_000 };

/** The record state of a conversation that has no record. */
export const emptyState: Omit<RecordState, "revision"> = {
	memberTimes: undefined,
	postedAt: undefined,
	hasUnappliedEvents: false,
	current: undefined,
	knownIds: [],
};

/** Returns the title and the leaf of a record that `post` appended, or of a version of it. */
export function decoded(found: StoredRecord | Unreadable | undefined): string {
	if (found === undefined || "unreadable" in found) throw new Error("there is no record to read");
	const { title, leafEventId, tags, id } = fromBinary(ConversationInfoSchema, found.bytes);
	expect([id?.length, tags.padding?.length]).toEqual([36, 400]);
	return `${title} ${leafEventId}`;
}

/** Makes the steps for the store that `store` returns at the time of a step. */
export function eventSteps(store: () => Store) {
	return {
		/** Appends a batch. Throws if the store writes nothing of it. */
		async appendBatch(...args: Parameters<typeof batch>): Promise<AppendedEvents> {
			const appended = await appendEvents(store(), batch(...args));
			if (appended === undefined) throw new Error("the store refused the batch");
			return appended;
		},

		/** Appends a posted record with a title. It was updated and received a number of seconds after `start`. */
		async post(
			conversationId: string,
			title: string,
			seconds: number,
			more: Partial<Sample["columns"]> = {},
			leafEventId = "posted",
		): Promise<{ readonly update: Sample; readonly appended: AppendedUpdate }> {
			const update = sample({
				conversationId,
				receivedAt: at(seconds),
				redactionVersion: 7,
				record: record({ id: conversationId, title, tags: { padding: "x".repeat(400) }, leafEventId }),
				columns: { title, updatedAt: at(seconds), ...more },
			});
			return { update, appended: await append(store(), update) };
		},

		/** Returns the titles and leaves of the updates of a conversation. */
		async history(conversationId: string): Promise<string[]> {
			const updates = await store().updates.list({ ...all, conversationId, withRecords: true });
			return updates.map((update) => decoded(update.record));
		},
	};
}
