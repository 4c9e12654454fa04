import type { CallSignal } from "../../call-signal.ts";

/** The part of a {@link CallSignal} that can cross to a thread. */
export interface SenderDeadline {
	readonly senderDeadline: CallSignal["deadline"];
}

export interface RecordStateRequest {
	readonly conversationId: string;
	readonly eventIds: readonly string[];
}
