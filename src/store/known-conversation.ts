import type { Activity } from "./activity.ts";
import type { ConversationState } from "./conversation-state.ts";
import type { StoredPost } from "./duplicates.ts";
import type { Erasure } from "./erasure.ts";
import type { GapOf, Gaps } from "./gaps.ts";
import { type ConversationOrigin, mayPost } from "./owners.ts";
import { type AcceptedPost, gapOfAccepted } from "./refused-posts.ts";
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
	/** The origin of a conversation that was removed, according to its usage; empty without a sender or an owner. */
	readonly removed: { readonly sender: string; readonly owner: string } | undefined;
	/** Who posted the conversation first; undefined when nothing of it is stored. */
	origin: ConversationOrigin | undefined;
	/** Forks that have a gap for an event of the group in this conversation, by the id of the event. */
	readonly forks: ReadonlyMap<string, readonly string[]>;
	/** Set if nothing of the conversation is stored because it was erased. */
	readonly erasure: Erasure | undefined;
}

/**
 * Returns the origin of a conversation. One that was removed has that of its usage, and one that was erased has its owner,
 * so that it stays its owner's.
 */
export function originOf({
	origin,
	removed,
	erasure,
}: Pick<KnownConversation, "origin" | "removed" | "erasure">): ConversationOrigin | undefined {
	if (origin !== undefined) return origin;
	if (removed !== undefined) return { sender: removed.sender || undefined, owner: removed.owner || undefined };
	return erasure && { sender: undefined, owner: erasure.owner };
}

/**
 * Judges a batch that is to be accepted, by what is stored of its conversation.
 *
 * @returns the gap that the batch leaves; otherwise why it is not stored
 */
export function judgeAccepted(
	post: AcceptedPost,
	known: Pick<KnownConversation, "origin" | "removed" | "erasure" | "activity">,
): GapOf | "erased" | "of another owner" {
	if (!mayPost(post.owner, originOf(known))) return "of another owner";
	return known.erasure === undefined ? gapOfAccepted(post, known.activity?.leaf?.text) : "erased";
}
