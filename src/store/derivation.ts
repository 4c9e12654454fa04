import type { DerivedActivity } from "./activity-facts.ts";

/**
 * Data that is derived from stored records, such as their summaries, follows rules. When the rules change, the data of the
 * updates that were stored before is derived anew, in steps. After each step the store knows how far it has come.
 */

/** How far data of one kind has been derived. */
export interface Derivation {
	/** Version of the rules, a safe integer. New updates are stored with data by the rules of the running release. */
	readonly version: number;
	/** All updates up to this sequence have data by these rules; {@link COMPLETE} if all updates have. */
	readonly through: bigint;
}

/** Sequence above all others. */
export const COMPLETE = 2n ** 62n;

/** The summary of a stored update, derived anew. */
export interface DerivedSummary {
	readonly conversationId: string;
	readonly sequence: bigint;
	/** Encoded `ConversationSummary` of the record. */
	readonly summary: Uint8Array;
}

/** What stored events of a conversation add to its activity. */
export interface DerivedEvents extends DerivedActivity {
	readonly conversationId: string;
}

/** A step that is stored in one transaction. */
export interface DerivationStep extends Derivation {
	/** Name of the kind of data. */
	readonly name: string;
	/** Summaries that replace the stored ones, with the values that lists filter by if the update is the current one. */
	readonly summaries?: readonly DerivedSummary[];
	/** What is added to activities. A conversation without activity, because it has been removed, is left out. */
	readonly activities?: readonly DerivedEvents[];
	/** The responses of models that events show, in their stored form, where none is stored. */
	readonly responses?: readonly { readonly sequence: bigint; readonly llmResponseId: string }[];
}
