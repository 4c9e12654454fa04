import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { forgetInDelta, forgetInRecord } from "../record/record-relations.ts";
import type { Condition } from "./condition.ts";
import type { Erasure } from "./erasure.ts";
import { packRecord, type RecordColumn, unpackRecord } from "./record-column.ts";
import type { Appended, AppendedEvents, ConversationQuery, StoredUpdate } from "./store.ts";

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
export function erasedPost({ sequence }: Erasure): Appended {
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

/** A stored update that may name an erased conversation as its parent or its source. */
export interface RelatedUpdate {
	readonly record: RecordColumn;
	/** Whether the record is a delta. */
	readonly isDelta: boolean;
	/** Encoded `ConversationSummary`. */
	readonly summary: Uint8Array;
}

/**
 * Removes what an update says of a conversation: that it is the parent, or the source of the fork.
 *
 * @returns undefined when it says nothing of it, or cannot be read
 */
export function forgetInUpdate(
	{ record, isDelta, summary }: RelatedUpdate,
	conversationId: string,
): Pick<RelatedUpdate, "record" | "summary"> | undefined {
	const bytes = tryUnpack(record);
	const forget = isDelta ? forgetInDelta : forgetInRecord;
	const forgotten = bytes && forget(bytes, conversationId);
	const kept = forgetInSummary(summary, (id) => id === conversationId);
	if (forgotten === undefined && kept === undefined) return undefined;
	return { record: forgotten === undefined ? record : packRecord(forgotten), summary: kept ?? summary };
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

/** Returns the bytes of a record; undefined when they are damaged. */
function tryUnpack(record: RecordColumn): Uint8Array | undefined {
	try {
		return unpackRecord(record);
	} catch {
		return undefined;
	}
}
