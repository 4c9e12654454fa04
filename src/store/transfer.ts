import type { Activity } from "./activity.ts";
import type { ConversationState, WrittenUpdate } from "./conversation-state.ts";
import type { RecordColumn } from "./record-column.ts";
import type { NewEvent, SequenceRange, Store, StoredRecord } from "./store.ts";
import { integer, type Row } from "./values.ts";

/**
 * The rows of a database in a form that every engine can read and write. Records and event texts are in the packed form
 * that all engines share, so that they are copied byte for byte, even damaged ones. Derived data, such as the columns
 * that lists filter by, is not included.
 */
export interface TransferRows {
	/** Conversations that have a record, ordered by id. */
	readonly conversations: TransferConversation;
	/** The activities of conversations, ordered by conversation id. */
	readonly activities: TransferActivity;
	/** Ordered by sequence. To be written after their conversations. */
	readonly updates: TransferUpdate;
	/** Ordered by sequence. To be written after the activities of their conversations. */
	readonly events: TransferEvent;
	/** Ordered by conversation id. */
	readonly prunedUpdates: PrunedConversation;
	/** Ordered by conversation id. */
	readonly prunedEvents: PrunedConversation;
}

/** The kinds of rows, in the order in which they must be written. */
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

/** An update as it is stored; its record can be a delta. */
export interface TransferUpdate extends Omit<WrittenUpdate, "record"> {
	readonly record: RecordColumn & Omit<StoredRecord, "bytes">;
}

export interface TransferEvent
	extends Pick<NewEvent, "eventId" | "happenedAt" | "kind" | "source" | "redactionVersion"> {
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	/** The result of `packSecrets`. */
	readonly secrets: string | null;
	readonly text: RecordColumn;
}

/** How far a conversation has been pruned in a log. */
export interface PrunedConversation {
	readonly conversationId: string;
	/** Largest pruned sequence of the conversation. */
	readonly through: bigint;
	/** Number of the last removal of its entries. */
	readonly removal: bigint;
}

/** The key that orders the rows of a table: the sequence, or the id of the conversation. */
export type RowKey = bigint | string;

export function keyOf(row: { readonly conversationId: string; readonly sequence?: bigint }): RowKey {
	return row.sequence ?? row.conversationId;
}

/** A short description of what a database holds. Each append and each removal changes it. */
export interface Contents {
	readonly counts: Readonly<Record<TransferTable, number>>;
	readonly updates: SequenceRange;
	readonly events: SequenceRange;
	/** Time of retention: see `Store.saveRetentionTime`. */
	readonly retentionTime: bigint | undefined;
}

/** Returns SQL that counts the rows of all tables, each in a column of its own. */
export function countsQuery(tables: Readonly<Record<TransferTable, { readonly table: string }>>): string {
	const counts = transferTables.map((name) => `(SELECT count(*) FROM ${tables[name].table}) AS "${name}"`);
	return `SELECT ${counts.join()}`;
}

/** Reads the row that {@link countsQuery} returns. */
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

/** Returns contents as JSON text. Equal contents have equal texts. */
export function describeContents(contents: Contents): string {
	return JSON.stringify(contents, (_, value: unknown) => (typeof value === "bigint" ? value.toString() : value));
}

/** @throws Error when a copy does not hold the wanted contents */
export function requireContents(found: Contents, wanted: Contents): void {
	if (describeContents(found) !== describeContents(wanted))
		throw new Error(`the database holds ${describeContents(found)}, expected ${describeContents(wanted)}`);
}

/** Maximum number of rows that are read and written at once. */
export const PAGE_ROWS = 1_000;
/** Maximum number of bytes of the uncompressed records or texts of a page. A single row may exceed it. */
export const PAGE_BYTES = 4 * 2 ** 20;

/** A database that is open for copying. No service writes to it while it is open. */
export interface TransferDatabase extends AsyncDisposable {
	/** @throws ServiceError `unavailable`, also when the database may have been written since it was opened */
	contents(): Promise<Contents>;
	/**
	 * Returns a page of rows of a table in the order of their keys.
	 *
	 * @param after key after which the page begins; undefined for the first page
	 * @returns at most {@link PAGE_ROWS} rows and about {@link PAGE_BYTES} bytes; none when there are no more
	 */
	rows<Table extends TransferTable>(table: Table, after: RowKey | undefined): Promise<readonly TransferRows[Table][]>;
	/** The reads of the store that the comparison of a copy uses. */
	readonly reads: {
		readonly updates: Pick<Store["updates"], "list">;
		readonly events: Pick<Store["events"], "list">;
	} & Pick<Store, "listConversations">;
}

/** The target of a copy. No service can open it before the copy is finished. */
export interface CopyTarget extends TransferDatabase {
	/**
	 * Begins a copy, or continues one that was interrupted.
	 *
	 * @param source contents of the source
	 * @throws Error when the database holds anything but a part of a copy of these contents
	 */
	begin(source: Contents): Promise<void>;
	/** Returns the key of the last row of a table; undefined when it has none. */
	last(table: TransferTable): Promise<RowKey | undefined>;
	/** Writes rows after the last one of a table, in one transaction. */
	write<Table extends TransferTable>(table: Table, rows: readonly TransferRows[Table][]): Promise<void>;
	/**
	 * Turns the complete copy into a database that a service can open.
	 *
	 * @throws Error when the contents of the copy differ from those of the source
	 */
	finish(source: Contents): Promise<void>;
}
