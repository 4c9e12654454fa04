import { create, toBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus as Status } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { fromMicroseconds } from "../record/json/scalars.ts";
import type { NewEvent, NewEvents } from "./store.ts";

/** Something that an event told, and the time by which it is ordered, in microseconds since the Unix epoch. */
interface Told {
	readonly text: string;
	readonly at: bigint;
}

/** What the events of a conversation add up to, those included that were pruned since. Every engine keeps it. */
export interface Activity {
	readonly eventCount: bigint;
	/** When the latest event happened. */
	readonly lastAt: bigint;
	/** The latest message. */
	readonly message: Told | undefined;
	/** Id of the event that became the leaf last. */
	readonly leaf: Told | undefined;
	/** When the latest event happened that tells members of the record. */
	readonly toldAt: bigint | undefined;
}

/** What a posted record that is current says about what events may still tell. */
export interface Posted {
	readonly status: Status;
	/** What {@link import("./store.ts").LiveState.postedAt} is. */
	readonly postedAt: bigint | undefined;
}

/**
 * Which events of a batch are to be added: those that are not stored, one for each id.
 *
 * @param revision that of the conversation's live state
 * @returns undefined when nothing of the batch may be written: see `Store.appendEvents`
 */
export function eventsToAdd(
	{ events, live }: NewEvents,
	revision: bigint,
	isStored: (event: NewEvent) => boolean,
): ReadonlySet<NewEvent> | undefined {
	if (live !== undefined) {
		if (live.expects !== revision) return undefined;
		if (events.some((event) => !event.isLeaf && isStored(event))) return undefined;
	}
	const added = new Map<string, NewEvent>();
	for (const event of events) if (!added.has(event.eventId) && !isStored(event)) added.set(event.eventId, event);
	return new Set(added.values());
}

/**
 * Adds a batch of events. Of what they tell the latest holds, and at equal times what arrives later.
 *
 * The sender moves the leaf to each event in the order of the batch, whatever its time: so an event counts as a leaf at
 * least as late as those before it, also if these were stored before.
 *
 * @param added what {@link eventsToAdd} gives; the others were stored before
 * @returns undefined when there was no event, and none is added
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
			toldAt: isLeaf ? activity?.toldAt : laterOf(happenedAt, activity?.toldAt),
		};
	}
	return activity;
}

/** The id of the leaf that events gave a record; undefined when the record's own is the latest. */
export function leafOver({ status, postedAt }: Posted, activity: Activity | undefined): string | undefined {
	const leaf = activity?.leaf;
	return leaf !== undefined && isOpenAt(status, postedAt, leaf.at) ? leaf.text : undefined;
}

/** Whether stored events tell of a posted record what is later than it. */
export function isOlderThanEvents({ status, postedAt }: Posted, activity: Activity | undefined): boolean {
	const toldAt = activity?.toldAt;
	return toldAt !== undefined && isOpenAt(status, postedAt, toldAt);
}

/** The activity's fields of an encoded `ConversationSummary`, to be appended to the others. */
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

/** A record that is deleting is the sender's last word. Another one holds until something later is told. */
function isOpenAt(status: Status, postedAt: bigint | undefined, time: bigint): boolean {
	return status !== Status.DELETING && (postedAt === undefined || time > postedAt);
}

function latest(before: Told | undefined, text: string, at: bigint): Told {
	return before !== undefined && before.at > at ? before : { text, at };
}

function laterOf(time: bigint, other: bigint | undefined): bigint {
	return other !== undefined && other > time ? other : time;
}
