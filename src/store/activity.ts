import { create, toBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { NewEvent, NewEvents, ReportedError } from "./entries.ts";
import type { OpenGaps } from "./gaps.ts";
import { max } from "./values.ts";

/** Totals over all events of a conversation, including pruned ones. Every engine stores them. */
export interface Activity {
	readonly eventCount: bigint;
	/** When the latest event happened. */
	readonly lastAt: bigint;
	/** The latest message. */
	readonly message: TimedText | undefined;
	/** The earliest message of a user. */
	readonly firstMessage: TimedText | undefined;
	/** The latest error. */
	readonly error: LastError | undefined;
	/** Id of the latest event that became the leaf. */
	readonly leaf: TimedText | undefined;
	/** When the latest state update happened. */
	readonly lastStateUpdateAt: bigint | undefined;
}

/** The values of a record that decide whether an event overrides it. */
interface OverridableRecord {
	readonly status: Status;
	/** See {@link import("./entries.ts").RecordState.postedAt}. */
	readonly postedAt: bigint | undefined;
}

/**
 * Returns the events of a batch to add: those that are not stored yet, and of several with the same id the first.
 *
 * @param revision revision of the conversation's record state
 * @returns undefined when nothing of the batch may be written: see `Store.appendEvents`
 */
export function eventsToAdd(
	{ events, effect }: NewEvents,
	revision: bigint,
	isStored: (event: NewEvent) => boolean,
): ReadonlySet<NewEvent> | undefined {
	if (effect !== undefined) {
		if (effect.expects !== revision) return undefined;
		if (events.some((event) => !event.isLeaf && isStored(event))) return undefined;
	}
	const added = new Map<string, NewEvent>();
	for (const event of events) if (!added.has(event.eventId) && !isStored(event)) added.set(event.eventId, event);
	return new Set(added.values());
}

/**
 * Adds a batch of events to the totals. The latest message, error and leaf win; at equal times, the one that arrives
 * later. Of the messages of a user, the earliest one is kept too; at equal times, the one that arrives first.
 *
 * The sender moves the leaf to each event in the order of the batch, whatever its time. An event therefore counts as a
 * leaf no earlier than the events before it in the batch, even if those are already stored.
 *
 * @param added the events of the batch that are not stored yet (see {@link eventsToAdd}), with their sequences
 * @returns undefined when the conversation has no events
 */
export function addEvents(
	before: Activity | undefined,
	events: readonly NewEvent[],
	added: ReadonlyMap<NewEvent, bigint>,
): Activity | undefined {
	let activity = before;
	let leafAt: bigint | undefined;
	for (const event of events) {
		const { eventId, happenedAt, isLeaf, kind, source, error } = event;
		const message = event.message === undefined ? undefined : { text: event.message, at: happenedAt };
		const isOfUser = kind === "MessageEvent" && source === "user";
		if (isLeaf) leafAt = max(happenedAt, leafAt ?? happenedAt);
		const sequence = added.get(event);
		if (sequence === undefined) continue;
		activity = {
			eventCount: (activity?.eventCount ?? 0n) + 1n,
			lastAt: max(happenedAt, activity?.lastAt ?? happenedAt),
			message: message === undefined ? activity?.message : latest(activity?.message, message),
			firstMessage: earliest(activity?.firstMessage, isOfUser ? message : undefined),
			error: error === undefined ? activity?.error : latest(activity?.error, { ...error, at: happenedAt, sequence }),
			leaf: leafAt !== undefined && isLeaf ? latest(activity?.leaf, { text: eventId, at: leafAt }) : activity?.leaf,
			lastStateUpdateAt: isLeaf
				? activity?.lastStateUpdateAt
				: max(happenedAt, activity?.lastStateUpdateAt ?? happenedAt),
		};
	}
	return activity;
}

/** Returns the leaf id from events that overrides a record's own; undefined when the record's own is the latest. */
export function leafOver({ status, postedAt }: OverridableRecord, activity: Activity | undefined): string | undefined {
	const leaf = activity?.leaf;
	return leaf !== undefined && isOverriddenAt(status, postedAt, leaf.at) ? leaf.text : undefined;
}

/** Returns whether a state update is later than a posted record, and so may override members of it. */
export function isOlderThanEvents({ status, postedAt }: OverridableRecord, activity: Activity | undefined): boolean {
	const lastStateUpdateAt = activity?.lastStateUpdateAt;
	return lastStateUpdateAt !== undefined && isOverriddenAt(status, postedAt, lastStateUpdateAt);
}

/**
 * Returns the error that a summary shows: the latest one, unless the conversation has run again since.
 *
 * @param runStartedAt see `HeadState.runStartedAt`
 */
export function shownError(activity: Activity | undefined, runStartedAt: bigint | undefined): LastError | undefined {
	const error = activity?.error;
	return error !== undefined && (runStartedAt === undefined || runStartedAt <= error.at) ? error : undefined;
}

/**
 * Encodes the `ConversationSummary` fields of the activity, of the last run and of the gaps, except the sequence of the
 * error (see {@link encodeErrorSequence}). The caller appends them to the other encoded fields.
 *
 * @param runStartedAt see `HeadState.runStartedAt`
 * @returns undefined when there is none of them
 */
export function encodeActivity(
	activity: Activity | undefined,
	runStartedAt: bigint | undefined,
	gaps: OpenGaps | undefined,
): Uint8Array | undefined {
	if (activity === undefined && runStartedAt === undefined && gaps === undefined) return undefined;
	const error = shownError(activity, runStartedAt);
	return toBinary(
		ConversationSummarySchema,
		create(ConversationSummarySchema, {
			...(activity === undefined
				? {}
				: { eventCount: activity.eventCount, lastActivityAt: fromMicroseconds(activity.lastAt) }),
			...(activity?.message === undefined ? {} : { lastMessage: activity.message.text }),
			...(activity?.firstMessage === undefined ? {} : { firstMessage: activity.firstMessage.text }),
			...(error === undefined ? {} : { lastError: encodableError(error) }),
			...(runStartedAt === undefined ? {} : { runStartedAt: fromMicroseconds(runStartedAt) }),
			...(gaps === undefined ? {} : { gaps: { count: gaps.count, since: fromMicroseconds(gaps.since) } }),
		}),
	);
}

function encodableError({ code, kind, retryable, text, at }: LastError) {
	return { code, kind, text, happenedAt: fromMicroseconds(at), ...(retryable === undefined ? {} : { retryable }) };
}

/** Encodes the sequence of the error of a summary. Appended to the summary, it becomes part of its `last_error`. */
export function encodeErrorSequence(eventSequence: bigint): Uint8Array {
	return toBinary(ConversationSummarySchema, create(ConversationSummarySchema, { lastError: { eventSequence } }));
}

/** Returns whether an event of this time overrides a record: if it is later, unless the record is `deleting`. */
function isOverriddenAt(status: Status, postedAt: bigint | undefined, time: bigint): boolean {
	return status !== Status.DELETING && (postedAt === undefined || time > postedAt);
}

function latest<Timed extends { readonly at: bigint }>(before: Timed | undefined, next: Timed): Timed {
	return before !== undefined && before.at > next.at ? before : next;
}

function earliest(before: TimedText | undefined, next: TimedText | undefined): TimedText | undefined {
	return before === undefined || (next !== undefined && next.at < before.at) ? next : before;
}

/** A text from an event, and the time by which it is ordered, in microseconds since the Unix epoch. */
interface TimedText {
	readonly text: string;
	readonly at: bigint;
}

export interface LastError extends ReportedError {
	readonly at: bigint;
	/** Sequence of the event. */
	readonly sequence: bigint;
}
