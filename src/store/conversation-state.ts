import type { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import type { ConversationSummary } from "../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { combined, deltaWithLeaf, mergeDeltas, withLeaf } from "../record/record-delta.ts";
import { type Activity, encodeActivity, isOlderThanEvents } from "./activity.ts";
import { microsecondsOf } from "./condition.ts";
import { changeBetween, decide, knownTime, orderTime } from "./ordering.ts";
import type {
	LiveState,
	LiveVersion,
	NewEvents,
	NewLiveState,
	NewUpdate,
	StoredRecord,
	StoredUpdate,
} from "./store.ts";

/** What the next update of a conversation with a record is judged by. Every engine keeps it. */
export interface ConversationState extends Pick<LiveState, "revision" | "told" | "postedAt" | "hasUnappliedEvents"> {
	/** Sequence of the current update. */
	readonly sequence: bigint;
	readonly status: Status;
	/** What the current record is ordered by: see ordering.ts. */
	readonly orderTime: bigint | undefined;
	/** The posted update with the largest sequence; undefined when events made the conversation. */
	readonly newest: NewestPosted | undefined;
}

export interface NewestPosted {
	readonly sequence: bigint;
	readonly updatedAt: bigint | undefined;
	/** Bytes of its record. */
	readonly size: number;
}

/** An update as an engine writes it. */
export interface WrittenUpdate extends Omit<StoredUpdate, "record" | "summary">, StoredForm {
	/** Encoded summary without the activity's fields. */
	readonly summary: Uint8Array;
	/** The activity's fields of the summary; undefined when there are none. */
	readonly activity: Uint8Array | undefined;
}

/** The form in which the record of an update is stored. */
export interface StoredForm {
	readonly record: StoredRecord;
	/** Sequence of the update over whose record this one is a delta; undefined for a whole record. */
	readonly base: bigint | undefined;
	/** Bytes of the whole record, or a little more. */
	readonly size: number;
}

/** An update to be written, and the state of its conversation after it. */
export interface NextUpdate {
	readonly written: WrittenUpdate;
	readonly after: ConversationState;
}

/**
 * What a posted record makes of a conversation.
 *
 * @param summary the update's, decoded
 * @param before undefined for a conversation without a record
 * @param sequence the update's
 */
export function nextPosted(
	{ conversationId, receivedAt, record, summary: encoded }: NewUpdate,
	summary: ConversationSummary,
	before: ConversationState | undefined,
	activity: Activity | undefined,
	sequence: bigint,
): NextUpdate {
	const updatedAt = microsecondsOf(summary.updatedAt);
	const time = orderTime(updatedAt, receivedAt);
	const status = summary.executionStatus;
	const known = before && { status: before.status, time: knownTime(before.orderTime, receivedAt) };
	const { current, change } = decide(known, { status, time });
	const size = record.bytes.byteLength;
	const newest = { sequence, updatedAt, size };
	const posted = { status, postedAt: time ?? receivedAt };
	const written: WrittenUpdate = {
		conversationId,
		sequence,
		receivedAt,
		change,
		current,
		origin: UpdateOrigin.POSTED,
		previousSequence: before?.sequence,
		summary: encoded,
		activity: activity && encodeActivity(activity),
		record,
		base: undefined,
		size,
	};
	if (before !== undefined && !current) return { written, after: { ...before, newest } };
	const after = {
		...posted,
		sequence,
		orderTime: time,
		newest,
		// Unlike any other, also when the conversation was removed and begins anew.
		revision: sequence,
		told: undefined,
		hasUnappliedEvents: isOlderThanEvents(posted, activity),
	};
	return { written, after };
}

/** A version of a record that events make, and what it follows. */
export interface VersionToWrite {
	readonly batch: Pick<NewEvents, "conversationId" | "receivedAt">;
	readonly live: NewLiveState;
	readonly version: LiveVersion;
	/** Of the version's summary. */
	readonly status: Status;
	/** Undefined for a conversation without a record. */
	readonly before: ConversationState | undefined;
	/** With the batch's events. */
	readonly activity: Activity | undefined;
	/** The version's. */
	readonly sequence: bigint;
}

/** What a version that events make is of a conversation. */
export function nextVersion(of: VersionToWrite, form: StoredForm): NextUpdate {
	const { batch, live, version, status, before, activity, sequence } = of;
	const { change } =
		before === undefined
			? decide(undefined, { status, time: undefined })
			: { change: changeBetween(before.status, status) };
	const written: WrittenUpdate = {
		conversationId: batch.conversationId,
		sequence,
		receivedAt: batch.receivedAt,
		change,
		current: true,
		origin: UpdateOrigin.EVENTS,
		previousSequence: before?.sequence,
		summary: version.summary,
		activity: activity && encodeActivity(activity),
		...form,
	};
	const { orderTime, postedAt, newest } = before ?? {};
	return { written, after: told({ sequence, status, orderTime, postedAt, newest }, live) };
}

/** The state after events that tell of the record. */
export function told(
	before: Omit<ConversationState, "revision" | "told" | "hasUnappliedEvents">,
	live: NewLiveState,
): ConversationState {
	return { ...before, revision: live.next, told: live.told, hasUnappliedEvents: false };
}

/** A delta that is larger than this part of its base costs more than it saves: the whole record is stored. */
const LARGEST_DELTA = 1 / 4;

/** The form of the first record of a conversation that events made. */
export function firstForm(record: StoredRecord, leaf: string | undefined): StoredForm {
	return wholeForm(leaf === undefined ? record : { ...record, bytes: withLeaf(record.bytes, leaf) });
}

/** The form of a record that is stored whole. */
export function wholeForm(record: StoredRecord): StoredForm {
	return { record, base: undefined, size: record.bytes.byteLength };
}

/**
 * The delta of a version over the last whole record.
 *
 * @param change the delta over the current record
 * @param current the current record if it is a delta itself
 */
export function deltaOverBase(
	change: StoredRecord,
	leaf: string | undefined,
	current: StoredRecord | undefined,
): StoredRecord {
	const delta = leaf === undefined ? change : { ...change, bytes: deltaWithLeaf(change.bytes, leaf) };
	return current === undefined ? delta : combined(current, delta, mergeDeltas);
}

/** The form of a delta; undefined when the whole record is to be stored instead. */
export function deltaForm(delta: StoredRecord, base: bigint, baseSize: number): StoredForm | undefined {
	const { byteLength } = delta.bytes;
	return byteLength > baseSize * LARGEST_DELTA ? undefined : { record: delta, base, size: baseSize + byteLength };
}
