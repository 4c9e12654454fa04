import type { NewAuditEntry } from "../store/access.ts";
import { idDigest } from "../store/erasure.ts";
import type { Principal } from "./keys.ts";

/** What the audit names. Endpoints and budgets have further actions. */
type AuditAction =
	| "key.created"
	| "key.revoked"
	| "conversations.assigned"
	| "conversation.erased"
	| "conversation.paused"
	| "refused_posts.replayed"
	| "score.changed"
	| "score.deleted"
	| "secrets.read"
	| `endpoint.${string}`
	| `delivery.${string}`
	| `budget.${string}`;

export type AuditedCaller = Pick<Principal, "name"> & Partial<Pick<Principal, "owner">>;

/**
 * Returns an entry of the present time.
 *
 * @param subject a name, or for a conversation {@link subjectOf} its id, so that an erasure need not change the entry
 */
export function entryOf(
	action: AuditAction,
	{ name, owner = "" }: AuditedCaller,
	subject: string,
	details = "",
): NewAuditEntry {
	return { at: BigInt(Date.now()) * 1000n, action, caller: name, owner, subject, details };
}

/** Returns the subject of an entry about a conversation; an empty id stands for many. */
export function subjectOf(conversationId: string): string {
	return conversationId === "" ? "" : idDigest(conversationId.toLowerCase());
}
