import { ServiceError } from "../errors.ts";
import type { NewAuditEntry } from "./access.ts";
import type { Session } from "./session.ts";
import { nullable, text } from "./values.ts";

/** Who posts. */
export interface Poster {
	/** Name of the access key or client certificate that the post was made with. */
	readonly sender: string;
	/** Owner of what the sender posts; undefined for none. */
	readonly owner: string | undefined;
}

/** Who posted a conversation first. The owner stays the same, unless the conversation is assigned to another one. */
export interface Ownership {
	/** Undefined for a conversation that was first stored when the service kept no senders, until its next post. */
	readonly sender: string | undefined;
	/** Undefined for no owner. */
	readonly owner: string | undefined;
}

/** The ownership of a conversation that was removed, according to its usage. Empty without a sender or an owner. */
export interface RemovedOwnership {
	readonly sender: string;
	readonly owner: string;
}

/**
 * Returns the ownership of a conversation. One that was removed has that of its usage, and one that was erased has its owner,
 * so that it stays its owner's.
 */
export function ownershipOf({
	ownership,
	removed,
	erasure,
}: {
	readonly ownership: Ownership | undefined;
	readonly removed: RemovedOwnership | undefined;
	readonly erasure: { readonly owner: string | undefined } | undefined;
}): Ownership | undefined {
	if (ownership !== undefined) return ownership;
	if (removed !== undefined) return { sender: removed.sender || undefined, owner: removed.owner || undefined };
	return erasure && { sender: undefined, owner: erasure.owner };
}

/**
 * Which conversations get an owner: those with these ids, those without an owner of a sender, those without an owner whose
 * sender is not known (all of them, or those of these ids), or all without an owner.
 */
export type Unassigned =
	| { readonly ids: readonly string[] }
	| { readonly sender: string }
	| { readonly withoutSender: "all" | readonly string[] }
	| "all without an owner";

/** A step of an assignment. */
export interface OwnerAssignment {
	/** The new owner; not empty. */
	readonly owner: string;
	readonly of: Unassigned;
	/** Maximum number of conversations to change. */
	readonly limit: number;
	/** Written with the change, with the number of conversations as its details; left out for none. */
	readonly audit?: Omit<NewAuditEntry, "details"> | undefined;
}

/** The error for each post by an owner's key to a conversation that is not its owner's. */
const OTHER_OWNER = new ServiceError("permission_denied", "The conversation does not belong to the owner of this key");

/** Returns the error for a post to a conversation of this ownership; undefined for a post that is allowed. */
export function ownerRefusal(poster: Poster | undefined, ownership: Ownership | undefined): ServiceError | undefined {
	return mayPost(poster?.owner, ownership) ? undefined : OTHER_OWNER;
}

/**
 * Whether a sender may post to a conversation of this ownership.
 *
 * @param owner of what the sender posts
 */
export function mayPost(owner: string | undefined, ownership: Pick<Ownership, "owner"> | undefined): boolean {
	return owner === undefined || ownership === undefined || ownership.owner === owner;
}

/** Returns who posted a conversation first, and its owner; undefined when nothing of it is stored. */
export async function getOwnership(
	{ all, isIn, dialect: { schema } }: Session,
	conversationId: string,
): Promise<Ownership | undefined> {
	const [row] = await all(
		`SELECT sender, owner FROM ${schema}heads WHERE ${isIn("conversation_id")}
		UNION ALL SELECT sender, owner FROM ${schema}activities WHERE ${isIn("conversation_id")} LIMIT 1`,
		[conversationId],
		[conversationId],
	);
	return row && { sender: nullable(text, row.sender), owner: nullable(text, row.owner) };
}
