import type { Activity } from "./activity.ts";
import type { ConversationState } from "./conversation-state.ts";
import type { StoredPost } from "./duplicates.ts";
import type { Erasure } from "./erasure.ts";
import type { Gaps } from "./gaps.ts";
import type { ConversationOrigin, RemovedOrigin } from "./owners.ts";
import type { StoredRecord, Unreadable } from "./stored-record.ts";

/** The state of a conversation while a group is planned: read once, then changed with each append. */
export interface KnownConversation {
	/** Undefined when the conversation has no record. */
	state: ConversationState | undefined;
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
	readonly removed: RemovedOrigin | undefined;
	/** Who posted the conversation first; undefined when nothing of it is stored. */
	origin: ConversationOrigin | undefined;
	/** Forks that have a gap for an event of the group in this conversation, by the id of the event. */
	readonly forks: ReadonlyMap<string, readonly string[]>;
	/** Set if nothing of the conversation is stored because it was erased. */
	readonly erasure: Erasure | undefined;
}
