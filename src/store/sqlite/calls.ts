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

/** The calls that the writing thread answers. */
export type WriterCalls = {
	append(request: AppendRequest): Appended | PossibleRepetition;
	/** Undefined: the conversation's live state is not the expected one. */
	appendEvents(batch: NewEvents): AppendedEvents | undefined;
	/** Removes history by sequence. Answers how many updates it removed. */
	removeUpdates(sequences: readonly bigint[]): number;
	/** Removes conversations whose deletion is old enough. Answers how many updates and events it removed. */
	removeDeleted(request: RemoveRequest): number;
	/** Removes events that are old enough. Answers how many it removed. */
	removeEvents(request: RemoveRequest): number;
	/** Proves that the next append can be stored. */
	check(argument: undefined): void;
	keepClock(time: bigint): void;
	/** What was lost of the write-ahead log when the thread opened the database; undefined for nothing. */
	walLoss(argument: undefined): WalLoss | undefined;
	close(argument: undefined): void;
};

/** The end of a write-ahead log that SQLite has not used. */
export interface WalLoss extends WalEnd {
	/** How many sequences of each log are not given, because entries that are gone may have had them. */
	readonly skipped: bigint;
}

/** Asks to remove what was received before a time: events, or conversations whose current update was. */
export interface RemoveRequest {
	/** Only what has a sequence below this one. */
	readonly below: bigint;
	readonly receivedBefore: bigint;
	/** Most updates and events to remove. */
	readonly limit: number;
}

/** The calls that the reading thread answers. */
export type ReaderCalls = {
	get(request: { readonly conversationId: string; readonly asOf: bigint | undefined }): StoredUpdate | undefined;
	listConversations(query: ConversationQuery): StoredConversation[];
	listUpdates(query: UpdateQuery): StoredUpdate[];
	listEvents(query: EventQuery): StoredEvent[];
	getLiveState(request: LiveStateRequest): LiveState;
	listUnapplied(limit: number): readonly string[];
	clock(argument: undefined): bigint | undefined;
	range(request: { readonly log: LogTable; readonly query: RangeQuery }): SequenceRange;
	/** The first sequence that was not received before a time (microseconds since the Unix epoch). */
	firstReceivedAfter(request: { readonly log: LogTable; readonly time: bigint }): bigint;
	findPrunable(request: FindPrunableRequest): Prunable;
	close(argument: undefined): void;
};

export interface LiveStateRequest {
	readonly conversationId: string;
	readonly eventIds: readonly string[];
}

/** Asks for history that a policy no longer keeps, conversation by conversation. */
export interface FindPrunableRequest {
	/** Conversations whose row ids are greater are looked at. */
	readonly after: bigint;
	/** Most updates to find. */
	readonly limit: number;
	/** Updates below this sequence that were received before `receivedBefore` are prunable. */
	readonly below: bigint;
	readonly receivedBefore: bigint;
	readonly updatesPerConversation: number | undefined;
}

export interface Prunable {
	readonly sequences: readonly bigint[];
	/** The row id after which to go on; undefined after the last conversation. */
	readonly next: bigint | undefined;
}
