import type {
	Appended,
	ConversationQuery,
	NewUpdate,
	RangeQuery,
	SequenceRange,
	StoredConversation,
	StoredUpdate,
	UpdateQuery,
} from "../store.ts";

/** The calls that the writing thread answers. */
export type WriterCalls = {
	append(request: AppendRequest): Appended | PossibleRepetition;
	/** Removes history by sequence. Answers how many updates it removed. */
	removeUpdates(sequences: readonly bigint[]): number;
	/** Removes conversations whose deletion is old enough. Answers how many updates it removed. */
	removeDeleted(request: RemoveDeletedRequest): number;
	/** Proves that the next append can be stored. */
	check(argument: undefined): void;
	close(argument: undefined): void;
};

export interface AppendRequest {
	readonly update: NewUpdate;
	/** What the answer to a {@link PossibleRepetition} is. */
	readonly judged: JudgedRepetition | undefined;
}

/** The newest update of the conversation may be the same record, in other bytes. Nothing was written. */
export interface PossibleRepetition {
	readonly possiblyRepeats: bigint;
	readonly record: Uint8Array;
}

/** Whether an update repeats the one with this sequence; `any`: it counts as no repetition of whatever is the newest. */
export type JudgedRepetition =
	| { readonly sequence: bigint; readonly same: boolean }
	| { readonly sequence: "any"; readonly same: false };

export interface RemoveDeletedRequest {
	/** Conversations whose current sequence is below this one. */
	readonly below: bigint;
	readonly receivedBefore: bigint;
	/** Most updates to remove. */
	readonly limit: number;
}

/** The calls that the reading thread answers. */
export type ReaderCalls = {
	get(request: { readonly conversationId: string; readonly asOf: bigint | undefined }): StoredUpdate | undefined;
	listConversations(query: ConversationQuery): StoredConversation[];
	listUpdates(query: UpdateQuery): StoredUpdate[];
	range(query: RangeQuery): SequenceRange;
	/** The first sequence that was not received before a time (microseconds since the Unix epoch). */
	firstReceivedAfter(time: bigint): bigint;
	findPrunable(request: FindPrunableRequest): Prunable;
	close(argument: undefined): void;
};

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
