import { ServiceError } from "../errors.ts";

/** Who posts. */
export interface Poster {
	/** Name of the access key or client certificate that the post was made with. */
	readonly sender: string;
	/** Owner of what the sender posts; undefined for none. */
	readonly owner: string | undefined;
}

/** Who posted a conversation first. The owner stays the same, unless the conversation is assigned to another one. */
export interface ConversationOrigin {
	/** Undefined for a conversation that was first stored when the service kept no senders, until its next post. */
	readonly sender: string | undefined;
	/** Undefined for no owner. */
	readonly owner: string | undefined;
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
}

/** The error for each post by an owner's key to a conversation that is not its owner's. */
const OTHER_OWNER = new ServiceError("permission_denied", "The conversation does not belong to the owner of this key");

/** Returns the error for a post to a conversation of this origin; undefined for a post that is allowed. */
export function ownerRefusal(
	poster: Poster | undefined,
	origin: ConversationOrigin | undefined,
): ServiceError | undefined {
	return mayPost(poster?.owner, origin) ? undefined : OTHER_OWNER;
}

/**
 * Whether a sender may post to a conversation of this origin.
 *
 * @param owner of what the sender posts
 */
export function mayPost(owner: string | undefined, origin: Pick<ConversationOrigin, "owner"> | undefined): boolean {
	return owner === undefined || origin === undefined || origin.owner === owner;
}
