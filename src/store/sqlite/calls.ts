import type { CallSignal } from "../../call-signal.ts";
import type { AppendRequest, PossibleRepetition } from "../repetition.ts";
import type { LogTable } from "../rows.ts";
import type {
	Appended,
	AppendedEvents,
	ConversationQuery,
	EventQuery,
	LiveState,
	NewEvents,
	RangeQuery,
	SequenceRange,
	StoredConversation,
	StoredEvent,
	StoredUpdate,
	UpdateQuery,
} from "../store.ts";
import type { WalEnd } from "./wal-end.ts";

/** Calls to the writer thread. */
export type WriterCalls = {
	append(request: AppendRequest & SenderDeadline): Appended | PossibleRepetition;
	/** Returns undefined in the case that `Store.appendEvents` describes. */
	appendEvents(batch: NewEvents & SenderDeadline): AppendedEvents | undefined;
	/** Removes updates by their sequence numbers. Returns the number of updates that it removed. */
	removeUpdates(sequences: readonly bigint[]): number;
	/** Removes conversations that were deleted long enough ago. Returns the number of removed updates and events. */
	removeDeleted(request: RemoveRequest): number;
	/** Removes events that are old enough. Returns the number of removed events. */
	removeEvents(request: RemoveRequest): number;
	/** Checks that the next append can be stored. */
	check(argument: undefined): void;
	saveRetentionTime(time: bigint): void;
	/** The end of the write-ahead log that was lost before the thread opened the database; undefined if nothing was. */
	walLoss(argument: undefined): WalLoss | undefined;
	close(argument: undefined): void;
};

/** The part of a {@link CallSignal} that can cross to a thread. */
export interface SenderDeadline {
	readonly senderDeadline: CallSignal["deadline"];
}

/** The end of a write-ahead log that SQLite could not use. */
export interface WalLoss extends WalEnd {
	/** Number of sequence numbers that are skipped in each log, because lost entries may have had them. */
	readonly skipped: bigint;
}

/** Asks to remove events that were received before a time, or deleted conversations whose current update was. */
export interface RemoveRequest {
	/** Only events or current updates with a sequence number below this one. */
	readonly below: bigint;
	readonly receivedBefore: bigint;
	/** Maximum number of updates and events to remove. A delta that is removed with its base may exceed it by one. */
	readonly limit: number;
}

/** Calls to the reader thread. */
export type ReaderCalls = {
	get(request: { readonly conversationId: string; readonly asOf: bigint | undefined }): StoredUpdate | undefined;
	listConversations(query: ConversationQuery): StoredConversation[];
	listUpdates(query: UpdateQuery): StoredUpdate[];
	listEvents(query: EventQuery): StoredEvent[];
	getLiveState(request: LiveStateRequest): LiveState;
	listUnapplied(limit: number): readonly string[];
	getRetentionTime(argument: undefined): bigint | undefined;
	range(request: { readonly log: LogTable; readonly query: RangeQuery }): SequenceRange;
	/** Returns a sequence number: entries below it were received before `time`, in microseconds since the Unix epoch. */
	firstReceivedSince(request: { readonly log: LogTable; readonly time: bigint }): bigint;
	findPrunable(request: FindPrunableRequest): Prunable;
	close(argument: undefined): void;
};

export interface LiveStateRequest {
	readonly conversationId: string;
	readonly eventIds: readonly string[];
}

/** Asks for updates that a retention policy no longer keeps, conversation by conversation. */
export interface FindPrunableRequest {
	/** Only conversations with a greater row id are searched. */
	readonly after: bigint;
	/** Maximum number of updates to return. */
	readonly limit: number;
	/** Updates below this sequence number that were received before `receivedBefore` are prunable. */
	readonly below: bigint;
	readonly receivedBefore: bigint;
	readonly updatesPerConversation: number | undefined;
}

export interface Prunable {
	readonly sequences: readonly bigint[];
	/** Row id after which the next search begins; undefined after the last conversation. */
	readonly next: bigint | undefined;
}
