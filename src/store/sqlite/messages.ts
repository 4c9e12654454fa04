import type { ConversationQuery, StoredConversation, StoredUpdate, UpdateQuery } from "../store.ts";

/**
 * What the main thread and its workers tell each other. Byte strings travel packed beside the message; a comment at
 * each member says which ones belong to it, in order.
 */

/** An update to append. Bytes: those of the encoded update. */
export interface AppendRequest {
	readonly kind: "append";
}

/** Removes history by sequence. Answered with how many updates it removed. */
export interface RemoveRequest {
	readonly kind: "remove";
	readonly sequences: readonly number[];
}

/**
 * Removes whole conversations whose current update is a deletion that is old enough, and listed. Answered like a
 * removal.
 */
export interface RemoveExpiredRequest {
	readonly kind: "removeExpired";
	/** Conversations whose current sequence is below this one. */
	readonly below: number;
	readonly receivedBefore: bigint;
	/** Most updates to remove. */
	readonly limit: number;
}

/** Brings lists up to date with every update that was sent before. */
export interface CatchUpRequest {
	readonly kind: "catchUp";
}

export interface CheckRequest {
	readonly kind: "check";
}

/** Ends the worker after what was sent before. */
export interface CloseRequest {
	readonly kind: "close";
}

/** Copies the rest of the write-ahead log into the database. */
export interface FinishCopyRequest {
	readonly kind: "finishCopy";
}

export type WriteRequest =
	| AppendRequest
	| RemoveRequest
	| RemoveExpiredRequest
	| CatchUpRequest
	| FinishCopyRequest
	| CheckRequest
	| CloseRequest;

/** Copies most of the write-ahead log into the database if it is long. Answered with whether it was. */
export type CopyRequest = { readonly kind: "copy" } | CloseRequest;

export interface GetRequest {
	readonly kind: "get";
	readonly conversationId: string;
	readonly asOf: bigint | undefined;
}

export interface ListConversationsRequest {
	readonly kind: "listConversations";
	readonly query: ConversationQuery;
}

export interface ListUpdatesRequest {
	readonly kind: "listUpdates";
	readonly query: UpdateQuery;
}

export interface RangeRequest {
	readonly kind: "range";
}

/** Asks for the first sequence that was not received before a time. */
export interface CutoffRequest {
	readonly kind: "cutoff";
	readonly receivedBefore: bigint;
}

/** Asks for history that a policy no longer keeps, conversation by conversation. */
export interface FindPrunableRequest {
	readonly kind: "findPrunable";
	/** Conversations numbered above this are looked at. */
	readonly after: number;
	/** Most updates to find. */
	readonly limit: number;
	/** Updates below this sequence that were received before `receivedBefore` are prunable. */
	readonly below: number;
	readonly receivedBefore: bigint;
	readonly updatesPerConversation: number | undefined;
}

export interface Prunable {
	readonly sequences: readonly number[];
	/** Where to go on; undefined after the last conversation. */
	readonly next: number | undefined;
}

export type ReadRequest =
	| GetRequest
	| ListConversationsRequest
	| ListUpdatesRequest
	| RangeRequest
	| CutoffRequest
	| FindPrunableRequest
	| CheckRequest
	| CloseRequest;

/** What `get` and `listUpdates` answer. Bytes: the record of each update, where the query asked for records. */
export type UpdateAnswer = Omit<StoredUpdate, "record">;
/** What `listConversations` answers. Bytes: the summary of each, followed by its record where asked for. */
export type ConversationAnswer = Omit<StoredConversation, "record" | "summary">;
