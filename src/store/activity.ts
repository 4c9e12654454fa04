import { create, toBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { NewEvent, NewEvents } from "./store.ts";

/** A text from an event, and the time by which it is ordered, in microseconds since the Unix epoch. */
interface TimedText {
	readonly text: string;
	readonly at: bigint;
}

/** Totals over all events of a conversation, including pruned ones. Every engine stores them. */
export interface Activity {
	readonly eventCount: bigint;
	/** When the latest event happened. */
	readonly lastAt: bigint;
	/** The latest message. */
	readonly message: TimedText | undefined;
	/** Id of the latest event that became the leaf. */
	readonly leaf: TimedText | undefined;
	/** When the latest state update happened. */
	readonly lastStateUpdateAt: bigint | undefined;
}

/** The values of a record that decide whether an event overrides it. */
export interface OverridableRecord {
	readonly status: Status;
	/** See {@link import("./store.ts").RecordState.postedAt}. */
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
 * Adds a batch of events to the totals. The latest message and the latest leaf win; at equal times, the one that
 * arrives later.
 *
 * The sender moves the leaf to each event in the order of the batch, whatever its time. An event therefore counts as a
 * leaf no earlier than the events before it in the batch, even if those are already stored.
 *
 * @param added the result of {@link eventsToAdd}; the other events of the batch are already stored
 * @returns undefined when the conversation has no events
 */
export function addEvents(
	before: Activity | undefined,
	events: readonly NewEvent[],
	added: ReadonlySet<NewEvent>,
): Activity | undefined {
	let activity = before;
	let leafAt: bigint | undefined;
	for (const event of events) {
		const { eventId, happenedAt, isLeaf, message } = event;
		if (isLeaf) leafAt = laterOf(happenedAt, leafAt);
		if (!added.has(event)) continue;
		activity = {
			eventCount: (activity?.eventCount ?? 0n) + 1n,
			lastAt: laterOf(happenedAt, activity?.lastAt),
			message: message === undefined ? activity?.message : latest(activity?.message, message, happenedAt),
			leaf: leafAt !== undefined && isLeaf ? latest(activity?.leaf, eventId, leafAt) : activity?.leaf,
			lastStateUpdateAt: isLeaf ? activity?.lastStateUpdateAt : laterOf(happenedAt, activity?.lastStateUpdateAt),
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

/** Encodes the `ConversationSummary` fields of the activity. The caller appends them to the other encoded fields. */
export function encodeActivity({ eventCount, lastAt, message }: Activity): Uint8Array {
	return toBinary(
		ConversationSummarySchema,
		create(ConversationSummarySchema, {
			eventCount,
			lastActivityAt: fromMicroseconds(lastAt),
			...(message === undefined ? {} : { lastMessage: message.text }),
		}),
	);
}

/** Returns whether an event of this time overrides a record: if it is later, unless the record is `deleting`. */
function isOverriddenAt(status: Status, postedAt: bigint | undefined, time: bigint): boolean {
	return status !== Status.DELETING && (postedAt === undefined || time > postedAt);
}

function latest(before: TimedText | undefined, text: string, at: bigint): TimedText {
	return before !== undefined && before.at > at ? before : { text, at };
}

function laterOf(time: bigint, other: bigint | undefined): bigint {
	return other !== undefined && other > time ? other : time;
}
