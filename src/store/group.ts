import type { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Activity } from "./activity.ts";
import type { GroupRequest, StoredPost } from "./duplicates.ts";
import type { NewEvent } from "./entries.ts";
import type { Erasure } from "./erasure.ts";
import type { Gaps, MissingEvents, WrittenGaps } from "./gaps.ts";
import type { HeadState, WrittenUpdate } from "./head.ts";
import type { Ownership, RemovedOwnership } from "./owners.ts";
import type { CountedPosts } from "./senders.ts";
import type { StoredRecord, Unreadable } from "./values.ts";

/** What an engine reads before it plans a group. */
export interface GroupQuery {
	readonly conversationIds: readonly string[];
	/** Those of the conversations whose {@link KnownConversation.base} is needed. */
	readonly versions: ReadonlySet<string>;
	/** The events of the group. */
	readonly events: readonly EventName[];
	/** Further events, which those and the records of the group name. */
	readonly named: readonly EventName[];
}

interface EventName {
	readonly conversationId: string;
	readonly eventId: string;
}

/** Returns what an engine reads before it plans a group. */
export function groupQuery(requests: readonly GroupRequest[]): GroupQuery {
	const batches = requests.flatMap((request) => ("update" in request ? [] : [request]));
	return {
		conversationIds: [...new Set(requests.map(conversationOf))],
		versions: new Set(
			batches.flatMap(({ conversationId, effect }) => (effect?.version === undefined ? [] : [conversationId])),
		),
		events: batches.flatMap(({ conversationId, events }) => events.map(({ eventId }) => ({ conversationId, eventId }))),
		named: requests.flatMap(namedEvents),
	};
}

/** Returns the events that a request names and does not bring. */
function namedEvents(request: GroupRequest): EventName[] {
	const conversationId = conversationOf(request);
	if ("update" in request) {
		const { leaf } = request.update;
		return leaf === undefined ? [] : [{ conversationId, eventId: leaf }];
	}
	const own = new Set(request.events.map(({ eventId }) => eventId));
	const named = new Set<string>();
	for (const { parentId, reportedLeaf } of request.events)
		for (const id of [parentId, reportedLeaf]) if (id !== undefined && !own.has(id)) named.add(id);
	return [...named].map((eventId) => ({ conversationId, eventId }));
}

export function conversationOf(request: GroupRequest): string {
	return "update" in request ? request.update.conversationId : request.conversationId;
}

/** The state of a conversation while a group is planned: read once, then changed with each append. */
export interface KnownConversation {
	/** Undefined when the conversation has no record. */
	state: HeadState | undefined;
	/** Undefined when the conversation has had no event. */
	activity: Activity | undefined;
	/** The newest posted update; undefined when there is none, or when pruning has removed it. */
	newestPosted: (Omit<StoredPost, "read"> & { record?: StoredRecord | Unreadable | undefined }) | undefined;
	/** The whole record: the current one or its base. */
	base: { readonly sequence: bigint; readonly size: number; readonly record?: StoredRecord } | undefined;
	/** The current record if it is a delta. */
	delta: StoredRecord | undefined;
	/** Ids of those events of the query, or that it names, that are stored already. */
	readonly eventIds: Set<string>;
	gaps: Gaps;
	/** The conversation of which this one is a fork, according to the current record. */
	source: string | undefined;
	/** Its parent, likewise. */
	parent: string | undefined;
	/** Undefined when the conversation was not removed. */
	readonly removed: RemovedOwnership | undefined;
	/** Who posted the conversation first; undefined when nothing of it is stored. */
	ownership: Ownership | undefined;
	/** Forks that have a gap for an event of the group in this conversation, by the id of the event. */
	readonly forks: ReadonlyMap<string, readonly string[]>;
	/** Set if nothing of the conversation is stored because it was erased. */
	readonly erasure: Erasure | undefined;
}

/** What a plan may have to read further. */
export interface PlanReads {
	/** Returns a record in its stored form, whole or a delta; undefined if there is no such update. */
	readonly record: (sequence: bigint) => Promise<StoredRecord | Unreadable | undefined>;
	/**
	 * Returns those of the missing events that are no gaps: all, if events of the conversation have been pruned. Those of a fork,
	 * if one of its sources has them, has been pruned or is not known. A source of another owner is not known.
	 */
	readonly explained: (missing: MissingEvents) => Promise<ReadonlySet<string>>;
}

/** The rows that a group writes. */
export interface WrittenGroup {
	/** In order of their sequences. */
	readonly updates: WrittenUpdate[];
	/** In order of their sequences. */
	readonly events: WrittenEvent[];
	/** Heads of the changed conversations with a record, by the ids of these. */
	readonly heads: Map<string, Head>;
	/** Changed activities, by the ids of their conversations. */
	readonly activities: Map<string, Activity>;
	/** The conversations that new records name as children, by the ids of those of the records. */
	readonly children: Map<string, Set<string>>;
	/** The ownerships of the changed conversations, by their ids. They are written with a conversation's first row. */
	readonly ownerships: Map<string, Ownership>;
	/** The senders of conversations that were stored without one, by the ids of these. */
	readonly senders: Map<string, string>;
	/** Changes of the gaps of conversations, by the ids of these. */
	readonly gaps: Map<string, WrittenGaps>;
	/** What the posts of the group add to their senders. */
	readonly posts: CountedPosts;
}

/** What the next append of a conversation depends on. */
export interface Head {
	readonly state: HeadState;
	/** The conversation of which this one is a fork, according to the current record. */
	readonly source: string | undefined;
	/** Its parent, likewise. Both are undefined when the other conversation was erased. */
	readonly parent: string | undefined;
}

export interface WrittenEvent {
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly sender: string | undefined;
	readonly origin: UpdateOrigin;
	readonly event: NewEvent;
}
