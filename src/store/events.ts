import type { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { ReportedError } from "./activity-facts.ts";
import type { EventCondition } from "./event-condition.ts";
import type { Unreadable } from "./stored-record.ts";

/** The events of the store: what is appended, what is kept of it, and what reads ask for. */

/** An event as it is stored: JSON text without secrets in plain text. */
export interface ProtectedEvent {
	/** JSON text of the whole event, in UTF-8. */
	readonly text: Uint8Array;
	/** JSON Pointers (RFC 6901) of the secrets in the text that were encrypted or redacted when it arrived. */
	readonly secrets: readonly string[];
	/** Version of the rules that found the secrets; a safe integer above 0. */
	readonly redactionVersion: number;
}

/** An event to append. Times are microseconds since the Unix epoch. */
export interface NewEvent extends ProtectedEvent {
	/** Id of the event, unique in its conversation. */
	readonly eventId: string;
	readonly happenedAt: bigint;
	readonly kind: string;
	readonly source: string;
	/** Whether the event becomes the conversation's leaf; false for a state update, which sets members of the record. */
	readonly isLeaf: boolean;
	/** Beginning of the event's message text; undefined when it has none. */
	readonly message: string | undefined;
	/** Id of the response of a model that the event shows, in its stored form (`responseKey`); undefined without one. */
	readonly llmResponseId: string | undefined;
	/** The error that the event reports; left out when it reports none. */
	readonly error?: ReportedError | undefined;
	/** Id of the event that it follows; left out when it names none. */
	readonly parentId?: string | undefined;
	/** Id of the last event, according to the state that it reports; left out when it reports none. */
	readonly reportedLeaf?: string | undefined;
	/** The other columns of `text` when a store has compressed it (`RecordColumn`); left out when it has not. */
	readonly packed?: { readonly unpackedSize: number | null; readonly checksum: number } | undefined;
}

/** A stored event. Times are microseconds since the Unix epoch. */
export interface StoredEvent {
	/** Starts at 1; gaps are possible. */
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly happenedAt: bigint;
	readonly kind: string;
	readonly source: string;
	/** Who posted the event; undefined when it is not known. */
	readonly sender: string | undefined;
	/** POSTED, or RECONCILED for an event that was fetched from the agent server. */
	readonly origin: UpdateOrigin;
	/** Owner of the conversation now. */
	readonly owner: string | undefined;
	readonly event: ProtectedEvent | Unreadable;
}

export interface EventQuery {
	/** Only events after this sequence. Order: by sequence. */
	readonly after: bigint;
	/** Only events before this sequence. */
	readonly before?: bigint | undefined;
	/** Whether the newest event comes first. Default: the oldest. */
	readonly newestFirst?: boolean | undefined;
	/** Only events of this conversation. */
	readonly conversationId?: string | undefined;
	/** Only events of conversations of this owner. */
	readonly owner?: string | undefined;
	/** Conditions that must all hold. */
	readonly conditions?: readonly EventCondition[] | undefined;
	/** Maximum number of events to return, from 1 to 1000. */
	readonly limit: number;
	/** Maximum number of bytes of the returned texts. At least one event is returned, whatever its size. */
	readonly maxBytes?: number | undefined;
}
