import type { Activity } from "./activity.ts";
import type { ConversationState, WrittenUpdate } from "./conversation-state.ts";
import type { RecordColumn } from "./record-column.ts";
import type { NewEvent, SequenceRange, Store, StoredRecord } from "./store.ts";
import { integer, type Row } from "./values.ts";

/**
 * What an engine keeps, in a form that every engine can read and write. Records and texts of events are in their packed
 * form, which all engines share, so that they are copied byte for byte, damaged ones too. What an engine derives from
 * them, such as the columns that lists filter by, is no part of it.
 */
export interface TransferRows {
	/** Conversations that have a record, by id. */
	readonly conversations: TransferConversation;
	/** What the events of conversations add up to, by id. */
	readonly activities: TransferActivity;
	/** By sequence. Their conversations come before them. */
	readonly updates: TransferUpdate;
	/** By sequence. The activities of their conversations come before them. */
	readonly events: TransferEvent;
	/** By conversation. */
	readonly prunedUpdates: PrunedConversation;
	/** By conversation. */
	readonly prunedEvents: PrunedConversation;
}

/** The kinds of rows, in the order in which they can be written. */
export const transferTables = [
	"conversations",
	"activities",
	"updates",
	"events",
	"prunedUpdates",
	"prunedEvents",
] as const satisfies readonly (keyof TransferRows)[];
export type TransferTable = (typeof transferTables)[number];

export interface TransferConversation {
	readonly conversationId: string;
	readonly state: ConversationState;
	/** Encoded summary of the current record. */
	readonly summary: Uint8Array;
}

export interface TransferActivity {
	readonly conversationId: string;
	readonly activity: Activity;
}

/** An update as it is stored: its record can be a delta. */
export interface TransferUpdate extends Omit<WrittenUpdate, "record"> {
	readonly record: RecordColumn & Omit<StoredRecord, "bytes">;
}

export interface TransferEvent
	extends Pick<NewEvent, "eventId" | "happenedAt" | "kind" | "source" | "redactionVersion"> {
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	/** As `packSecrets` gives them. */
	readonly secrets: string | null;
	readonly text: RecordColumn;
}

/** What was pruned of a log and a conversation. */
export interface PrunedConversation {
	readonly conversationId: string;
	readonly through: bigint;
	readonly removal: bigint;
}

/** Where a row stands in its table: its sequence, or the id of its conversation. */
export type RowKey = bigint | string;

export function keyOf(row: { readonly conversationId: string; readonly sequence?: bigint }): RowKey {
	return row.sequence ?? row.conversationId;
}

/** What a database holds, in few words. It differs after each append and each removal. */
export interface Contents {
	readonly counts: Readonly<Record<TransferTable, number>>;
	readonly updates: SequenceRange;
	readonly events: SequenceRange;
	/** The time of retention: see `Store.keepClock`. */
	readonly clock: bigint | undefined;
}

/** SQL that counts the rows of all tables, in a column for each. */
export function countsQuery(tables: Readonly<Record<TransferTable, { readonly table: string }>>): string {
	const counts = transferTables.map((name) => `(SELECT count(*) FROM ${tables[name].table}) AS "${name}"`);
	return `SELECT ${counts.join()}`;
}

/** What the row of {@link countsQuery} says. */
export function countsOf(row: Row): Contents["counts"] {
	return {
		conversations: integer(row.conversations),
		activities: integer(row.activities),
		updates: integer(row.updates),
		events: integer(row.events),
		prunedUpdates: integer(row.prunedUpdates),
		prunedEvents: integer(row.prunedEvents),
	};
}

/** Contents as a text that equal contents share. */
export function describeContents(contents: Contents): string {
	return JSON.stringify(contents, (_, value: unknown) => (typeof value === "bigint" ? value.toString() : value));
}

/** @throws Error when what a copy holds is not what it should hold */
export function requireContents(found: Contents, wanted: Contents): void {
	if (describeContents(found) !== describeContents(wanted))
		throw new Error(`the copy holds ${describeContents(found)} in place of ${describeContents(wanted)}`);
}

/** Most rows that are read and written at once. */
export const PAGE_ROWS = 1_000;
/** A page ends before its records exceed this many bytes, if it has more than one. */
export const PAGE_BYTES = 4 * 2 ** 20;

/** A database that is open for copying: no service writes to it as long as it is open. */
export interface TransferDatabase extends AsyncDisposable {
	/** @throws ServiceError `unavailable`, also when the database could have been written since it was opened */
	contents(): Promise<Contents>;
	/**
	 * Rows of a table in the order of their keys.
	 *
	 * @param after key that they follow; undefined for the first ones
	 * @returns at most {@link PAGE_ROWS} and about {@link PAGE_BYTES}; none when there are no more
	 */
	rows<Table extends TransferTable>(table: Table, after: RowKey | undefined): Promise<readonly TransferRows[Table][]>;
	/** What the store gives to those who read it. */
	readonly reads: {
		readonly updates: Pick<Store["updates"], "list">;
		readonly events: Pick<Store["events"], "list">;
	} & Pick<Store, "listConversations">;
}

/** A database that a copy is made in. No service opens it before the copy is finished. */
export interface CopyTarget extends TransferDatabase {
	/**
	 * Begins a copy, or goes on with one.
	 *
	 * @param source what the source holds
	 * @throws Error when the database holds something else than part of a copy of that
	 */
	begin(source: Contents): Promise<void>;
	/** Key of the last row of a table; undefined when it has none. */
	last(table: TransferTable): Promise<RowKey | undefined>;
	/** Writes rows that follow the last one, in one transaction. */
	write<Table extends TransferTable>(table: Table, rows: readonly TransferRows[Table][]): Promise<void>;
	/**
	 * Makes a complete copy the database of a service.
	 *
	 * @throws Error when the copy does not hold what the source holds
	 */
	finish(source: Contents): Promise<void>;
}
