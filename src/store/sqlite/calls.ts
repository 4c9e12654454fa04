import type { CallSignal } from "../../call-signal.ts";

/** The part of a {@link CallSignal} that can cross to a thread. */
export interface SenderDeadline {
	readonly senderDeadline: CallSignal["deadline"];
}

/** Asks to remove events that were received before a time, or deleted conversations whose current update was. */
export interface RemoveRequest {
	/** Only events or current updates with a sequence number below this one. */
	readonly below: bigint;
	readonly receivedBefore: bigint;
	/** Maximum number of updates and events to remove. A delta that is removed with its base may exceed it by one. */
	readonly limit: number;
}

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
