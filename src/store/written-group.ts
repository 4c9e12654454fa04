import type { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { Activity } from "./activity.ts";
import type { ConversationState, WrittenUpdate } from "./conversation-state.ts";
import type { NewEvent } from "./events.ts";
import type { WrittenGaps } from "./gaps.ts";
import type { ConversationOrigin } from "./owners.ts";
import type { CountedPosts } from "./senders.ts";

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
	/** Origins of the changed conversations, by their ids. They are written with a conversation's first row. */
	readonly origins: Map<string, ConversationOrigin>;
	/** The senders of conversations that were stored without one, by the ids of these. */
	readonly senders: Map<string, string>;
	/** Changes of the gaps of conversations, by the ids of these. */
	readonly gaps: Map<string, WrittenGaps>;
	/** What the posts of the group add to their senders. */
	readonly posts: CountedPosts;
}

/** What the next append of a conversation depends on. */
export interface Head {
	readonly state: ConversationState;
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
