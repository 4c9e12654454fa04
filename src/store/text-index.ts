import type { Condition } from "./condition.ts";

/**
 * The index of search. A document is what is found: the texts of an event, or the title of a conversation. Search knows
 * the words of each document, but not their order. Those of a title are in the view of conversations. An indexer writes those
 * of events to the index, in steps, of which each says how far it comes. What is removed from the log is removed from the index
 * in the same transaction.
 */

/** How far the index comes. */
export interface IndexProgress {
	/** Version of the rules by which words are taken from texts; 0 before the first step. */
	readonly version: number;
	/** The texts of all events up to this sequence are indexed. */
	readonly events: bigint;
}

/** What a critic says in an event: a number of a score, and a text without secrets. */
export interface CriticResult {
	readonly value: number;
	readonly comment: string;
}

/** What is indexed of an event with hidden secrets: its texts, and what a critic says in it. */
export interface EventContent {
	readonly texts: readonly string[];
	readonly criticResult?: CriticResult | undefined;
}

/** The words of an event's texts, and what is told by it. */
export interface EventWords {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly criticResult?: CriticResult | undefined;
	/** Each once, separated by spaces: of letters, digits and marks, or one symbol that is not ASCII. */
	readonly words: string;
}

/** What the indexer adds in one transaction. Events that have been removed meanwhile are left out. */
export interface IndexStep {
	/** The progress before the step. If it is another one, nothing is written. */
	readonly expects: IndexProgress;
	readonly next: IndexProgress;
	readonly events: readonly EventWords[];
}

/** A word that a document must have. */
export interface IndexTerm {
	readonly word: string;
	/** Whether any word that begins with this one will do. */
	readonly isPrefix: boolean;
}

/**
 * A place in the order of documents: that of an event, or of a title among the events. A title stands just after the newest
 * event of its conversation. So the order follows from what is stored, whenever and how often the index was written.
 */
export interface DocumentPosition {
	/** Sequence of the event. For a title, that of the newest event of its conversation; 0 without one. */
	readonly event: bigint;
	/** Sequence of the current update of the title's conversation; 0 for an event. */
	readonly title: bigint;
}

/** A document that has the words of a query. */
export interface FoundDocument extends DocumentPosition {
	readonly conversationId: string;
}

/** Selects documents of conversations that have a record, newest first. */
export interface DocumentQuery {
	/** At least one. */
	readonly required: readonly IndexTerm[];
	readonly excluded: readonly IndexTerm[];
	/** Conditions that the conversation must meet. */
	readonly conditions: readonly Condition[];
	/** Only documents before this position. */
	readonly before?: DocumentPosition | undefined;
	/** Only documents at this position or after it. */
	readonly from?: DocumentPosition | undefined;
	/** Only documents of these conversations: of each its title, and at most `limit` events. */
	readonly of?: readonly string[] | undefined;
	/** No documents of these conversations. */
	readonly except?: readonly string[] | undefined;
	/** Maximum number of documents. */
	readonly limit: number;
}

/** The progress of an index that is to be written anew. */
export const NO_PROGRESS: IndexProgress = { version: 0, events: 0n };

/** Orders documents, newest first. */
export function newestFirst(a: DocumentPosition, b: DocumentPosition): number {
	const [newer, older] = a.event === b.event ? [a.title, b.title] : [a.event, b.event];
	if (newer === older) return 0;
	return newer > older ? -1 : 1;
}
