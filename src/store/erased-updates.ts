import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { forgetInDelta, forgetInRecord } from "../record/record-relations.ts";
import type { Condition } from "./condition.ts";
import type { ConversationQuery } from "./conversation-lists.ts";
import type { Erasure } from "./erasure.ts";
import type { AppendedEvents } from "./event-batch.ts";
import { packRecord, type RecordColumn, readOrUnreadable, unpackRecord } from "./record-column.ts";
import { packedColumnsFrom } from "./rows.ts";
import type { Unreadable } from "./stored-record.ts";
import type { AppendedUpdate, StoredUpdate } from "./updates.ts";
import { bigint, blob, nullable, type Row } from "./values.ts";

/** What an erasure changes in posts, in the log of updates and in other conversations. */

/** Returns the query that finds the conversation if it meets conditions. */
export function meetingQuery(conversationId: string, conditions: readonly Condition[]): ConversationQuery {
	return { conditions: [...conditions, { kind: "ids", ids: [conversationId] }], limit: 1, withRecords: false };
}

/** Whether a record belongs to the life of its conversation that was erased. */
export function isOfErased({ createdAt }: Erasure, recordCreatedAt: bigint | undefined): boolean {
	return recordCreatedAt === undefined || recordCreatedAt <= createdAt;
}

/** Result of a post of a record that is not stored because its conversation was erased. */
export function erasedPost({ sequence }: Erasure): AppendedUpdate {
	return { sequence, duplicate: true, change: UpdateChange.ERASED, current: false, hasUnappliedEvents: false };
}

/** Result of a post of events that are not stored because their conversation was erased. */
export const ERASED_EVENTS: AppendedEvents = { stored: 0, newest: 0n, updateSequence: undefined };

/** Returns the update that tells of an erasure. It has no summary and no record. */
function updateOf({ idDigest: conversationId, sequence, owner, erasedAt }: Erasure): StoredUpdate {
	return {
		conversationId,
		sequence,
		owner,
		receivedAt: erasedAt,
		change: UpdateChange.ERASED,
		current: false,
		origin: UpdateOrigin.UNSPECIFIED,
		previousSequence: undefined,
		sender: undefined,
		summary: new Uint8Array(),
		record: undefined,
	};
}

/**
 * Adds the updates of erasures to a page of updates.
 *
 * @param page updates in order of their sequences
 * @param isCut whether the page ended before the last update that the query asked for
 * @param erasures of the same snapshot as the page, in order of their sequences, from after the position at which it begins
 * @param limit maximum number of updates of the result
 */
export function withErasures(
	page: readonly StoredUpdate[],
	isCut: boolean,
	erasures: readonly Erasure[],
	limit: number,
): StoredUpdate[] {
	const last = page.at(-1)?.sequence;
	const within = erasures.filter(({ sequence }) => !isCut || last === undefined || sequence < last);
	if (within.length === 0) return [...page];
	return [...page, ...within.map(updateOf)].sort((a, b) => (a.sequence < b.sequence ? -1 : 1)).slice(0, limit);
}

/** Columns of an update `e` that {@link forgetInUpdate} reads. */
export const RELATED_COLUMNS = "e.sequence, e.base_sequence, e.summary, e.record, e.unpacked_size, e.checksum";

/** What becomes of an update that may name an erased conversation as its parent, its source or its child. */
export interface RelatedUpdate {
	readonly sequence: bigint;
	/** What replaces its record and its encoded summary; undefined when they stay as they are. */
	readonly forgotten: { readonly record: RecordColumn; readonly summary: Uint8Array } | undefined;
	/** The part that stays because it cannot be read, if there is one. */
	readonly unreadable: Unreadable | undefined;
}

/**
 * Removes what an update says of a conversation: that it is the parent, the source of the fork, or a child.
 *
 * @param row with {@link RELATED_COLUMNS}
 */
export function forgetInUpdate(row: Row, conversationId: string): RelatedUpdate {
	const before = { record: packedColumnsFrom(row, "record"), summary: blob(row.summary) };
	const forget = nullable(bigint, row.base_sequence) === undefined ? forgetInRecord : forgetInDelta;
	const record = readOrUnreadable(() => {
		const bytes = forget(unpackRecord(before.record), conversationId);
		return { after: bytes && packRecord(bytes) };
	});
	const summary = readOrUnreadable(() => ({ after: forgetInSummary(before.summary, (id) => id === conversationId) }));
	const after = {
		record: "after" in record ? record.after : undefined,
		summary: "after" in summary ? summary.after : undefined,
	};
	const isForgotten = after.record !== undefined || after.summary !== undefined;
	return {
		sequence: bigint(row.sequence),
		forgotten: isForgotten
			? { record: after.record ?? before.record, summary: after.summary ?? before.summary }
			: undefined,
		unreadable: [record, summary].find((part) => "unreadable" in part),
	};
}

/** Returns the ids of the conversations that an encoded summary names as the parent, and as the source of the fork. */
export function relationsIn(summary: Uint8Array): string[] {
	const { parentConversationId, forkedFromConversationId } = fromBinary(ConversationSummarySchema, summary);
	return [parentConversationId, forkedFromConversationId].filter((id) => id !== undefined);
}

/** Removes conversations from an encoded summary. Returns undefined when it names none of them. */
export function forgetInSummary(summary: Uint8Array, isForgotten: (id: string) => boolean): Uint8Array | undefined {
	if (!relationsIn(summary).some(isForgotten)) return undefined;
	const {
		parentConversationId: parent,
		forkedFromConversationId: source,
		...others
	} = fromBinary(ConversationSummarySchema, summary);
	const kept = create(ConversationSummarySchema, {
		...others,
		...(parent === undefined || isForgotten(parent) ? {} : { parentConversationId: parent }),
		...(source === undefined || isForgotten(source) ? {} : { forkedFromConversationId: source }),
	});
	return toBinary(ConversationSummarySchema, kept);
}
