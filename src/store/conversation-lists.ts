import type { Condition, ListOrder } from "./condition.ts";
import type { StoredRecord, Unreadable } from "./stored-record.ts";

/** Lists of conversations, and their numbers. */

export interface ConversationQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
	/** Default: `updated`. */
	readonly order?: ListOrder | undefined;
	/** Only conversations whose current update has a sequence below this one: where the next page begins. */
	readonly before?: bigint | undefined;
	/** Of another order than `updated`: the value at which the next page begins. Set if `before` is. */
	readonly beforeValue?: bigint | number | undefined;
	/** Maximum number of conversations to return, from 1 to 1000. */
	readonly limit: number;
	readonly withRecords: boolean;
}

/** A conversation with its current record, as lists return it. */
export interface StoredConversation {
	/** The value by which the list is ordered; undefined in the order `updated`. Only `cost` has a fraction. */
	readonly orderValue?: bigint | number | undefined;
	readonly conversationId: string;
	/** Sequence of the current update. Of a conversation without a record: see `isSequence`. */
	readonly sequence: bigint;
	/** Encoded `ConversationSummary` of the record, or of what events tell, with the present activity of the conversation. */
	readonly summary: Uint8Array;
	/** Undefined when the query did not ask for records, or there is none. */
	readonly record: StoredRecord | Unreadable | undefined;
}

/** What conversations are counted by: a value of each, or the keys or the values of tags. Undefined: all together. */
export type CountGroup =
	| { readonly by: "executionStatus" | "agentKind" | "model" | "sender" | "owner" | "tagKey" }
	| { readonly by: "tag"; readonly key: string };

export interface CountQuery {
	/** Conditions that must all hold. */
	readonly conditions: readonly Condition[];
	readonly group: CountGroup | undefined;
	/** Maximum number of counts to return. */
	readonly limit: number;
}

/** Number of conversations with a value: a text, or the number of a status. */
export interface StoredCount {
	/** Empty where a conversation has no value. A long one may be cut, with a digest in place of the rest. */
	readonly value: string | number;
	readonly count: number;
}

export interface StoredCounts {
	/** The largest first. Empty without a group. */
	readonly counts: readonly StoredCount[];
	/** Number of conversations that meet the conditions. */
	readonly total: number;
}
