import type { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { childrenIn } from "../record/record-relations.ts";
import type { UsageRow } from "../usage/ledger.ts";
import type { AccessKeyRow } from "./access-keys.ts";
import type { Activity } from "./activity.ts";
import type { AuditEntry } from "./audit.ts";
import type { NewEvent, StoredUpdate, UpdateQuery } from "./entries.ts";
import type { Erasure } from "./erasure.ts";
import type { Gap } from "./gaps.ts";
import type { HeadState, WrittenUpdate } from "./head.ts";
import type { Ownership } from "./owners.ts";
import { type RecordColumn, readOrUnreadable, unpackRecord } from "./record-column.ts";
import type { RefusedPostRow } from "./refused-posts.ts";
import type { SenderName, StoredSender } from "./senders.ts";
import type { SequenceLog, SequenceRange } from "./sequence-log.ts";
import type { StoredRecord } from "./values.ts";

/**
 * The rows of a database in a form that every engine can read and write. Records and event texts are in the packed form
 * that all engines share, even damaged ones. Derived data, such as the columns that lists filter by, is not included.
 */
export interface StoredRows {
	/** Conversations that have a record, ordered by id. */
	readonly conversation: ConversationRow;
	/** The activities of conversations, ordered by conversation id. */
	readonly activity: ActivityRow;
	/** Ordered by sequence. To be written after their conversations. */
	readonly update: UpdateRow;
	/** Ordered by sequence. To be written after the activities of their conversations. */
	readonly event: EventRow;
	/** Ordered by conversation id. */
	readonly usage: UsageBaseline;
	/** Ordered by conversation id. */
	readonly prunedUpdates: PrunedRow;
	/** Ordered by conversation id. */
	readonly prunedEvents: PrunedRow;
	/** Conversations with gaps, ordered by id. To be written after the conversations. */
	readonly gaps: GapsRow;
	/** Ordered by name. Only an export of everything with access keys has them. */
	readonly accessKey: AccessKeyRow;
	/** Ordered by owner and name. */
	readonly sender: StoredSender;
	/** Ordered by id. */
	readonly refusedPost: RefusedPostRow;
	/** Ordered by sequence. */
	readonly erasure: Erasure;
	/** Ordered by number. */
	readonly audit: AuditEntry;
	/** Ordered by id. The position of an endpoint is before what waits in its queue, which is not exported. */
	readonly endpoint: SettingRow;
	/** Ordered by id. */
	readonly budget: SettingRow;
	/** What endpoints were told without an update, ordered by id. */
	readonly notice: SettingRow;
}

/** A row whose columns are exported as they are, by their names. */
export interface SettingRow {
	readonly id: string;
	readonly columns: Readonly<Record<string, string | bigint | Uint8Array | undefined>>;
}

/** The tables of the kinds of {@link SettingRow}. */
export const SETTING_TABLES = { endpoint: "endpoints", budget: "budgets", notice: "notices" } as const;
export type SettingKind = keyof typeof SETTING_TABLES;

/** The kinds of rows, in the order in which they must be written. */
export const rowKinds = [
	"conversation",
	"activity",
	"update",
	"event",
	"usage",
	"prunedUpdates",
	"prunedEvents",
	"gaps",
	"accessKey",
	"sender",
	"refusedPost",
	"erasure",
	"audit",
	"endpoint",
	"budget",
	"notice",
] as const satisfies readonly (keyof StoredRows)[];
export type RowKind = (typeof rowKinds)[number];

interface ConversationRow {
	readonly conversationId: string;
	readonly origin: Ownership;
	readonly state: HeadState;
	/** Encoded summary of the current record. */
	readonly summary: Uint8Array;
}

interface ActivityRow {
	readonly conversationId: string;
	readonly origin: Ownership;
	readonly activity: Activity;
}

/** An update as it is stored; its record can be a delta. */
export interface UpdateRow extends Omit<WrittenUpdate, "record" | "errorSequence"> {
	readonly record: RecordColumn & Omit<StoredRecord, "bytes">;
}

/** Returns the children that the record of an update names; none if the record is damaged. */
export function childrenOf({ record, base }: UpdateRow): readonly string[] {
	const bytes = readOrUnreadable(() => ({ bytes: unpackRecord(record) }));
	return "unreadable" in bytes ? [] : childrenIn(bytes.bytes, base !== undefined);
}

export interface EventRow
	extends Pick<NewEvent, "eventId" | "happenedAt" | "kind" | "source" | "llmResponseId" | "redactionVersion"> {
	readonly sequence: bigint;
	readonly conversationId: string;
	readonly receivedAt: bigint;
	readonly sender: string | undefined;
	readonly origin: UpdateOrigin;
	/** The result of `packSecrets`. */
	readonly secrets: string | null;
	readonly text: RecordColumn;
}

/** How far a conversation has been pruned in a log. */
export interface PrunedRow {
	readonly conversationId: string;
	/** Largest pruned sequence of the conversation. */
	readonly through: bigint;
	/** Number of the last removal of its entries. */
	readonly removal: bigint;
	/** Owner of the conversation at that removal. */
	readonly owner: string | undefined;
}

/** The gaps of a conversation, which need not have anything else. */
interface GapsRow {
	readonly conversationId: string;
	/** Ordered as `gapsFrom` orders them. */
	readonly gaps: readonly Gap[];
}

/**
 * The key that orders the rows of a kind: the sequence, the id of a refused post or of a setting, the number of an entry of
 * the audit, the id of the conversation, {@link senderKey}, or the name of the access key.
 */
export type RowKey = bigint | string;

export function keyOf(row: StoredRows[RowKind]): RowKey {
	if ("columns" in row) return row.id;
	if ("name" in row) return row.name;
	if ("number" in row) return row.number;
	if ("reasons" in row) return row.id;
	if ("usualInterval" in row) return senderKey(row);
	return "sequence" in row ? row.sequence : row.conversationId;
}

/** SQL of {@link senderKey}. */
export const SENDER_KEY = "owner || '/' || sender";

/** Returns the key that orders senders. The name of an owner has no slash. */
function senderKey({ sender, owner }: SenderName): string {
	return `${owner}/${sender}`;
}

/** How many rows of each kind a database has. */
export type Counts = Readonly<Record<RowKind, number>>;

/** The sequences of both logs, and the time of retention (see `Store.saveRetentionTime`). */
export interface Ranges {
	readonly updates: SequenceRange;
	readonly events: SequenceRange;
	readonly retentionTime: bigint | undefined;
}

/** Sequences after which an export begins. */
export interface After {
	readonly update: bigint;
	readonly event: bigint;
}

/** The beginning of both logs. */
export const BEGINNING: After = { update: 0n, event: 0n };

/** Maximum number of rows that are read and written at once. */
export const PAGE_ROWS = 1_000;
/** Maximum number of bytes of the uncompressed records or texts of a page. A single row may exceed it. */
export const PAGE_BYTES = 4 * 2 ** 20;

/** A database that can be exported. All its methods see it as it was at one moment. */
export interface ExportSource extends AsyncDisposable {
	ranges(): Promise<Ranges>;
	/** Counts the rows of each kind; of the updates, erasures and events only those after a sequence. */
	counts(after: After): Promise<Counts>;
	/**
	 * Returns a page of rows of a kind in the order of their keys.
	 *
	 * @param after key after which the page begins; undefined for the first page
	 * @returns at most {@link PAGE_ROWS} rows and about {@link PAGE_BYTES} bytes; none when there are no more
	 */
	rows<Kind extends RowKind>(kind: Kind, after: RowKey | undefined): Promise<readonly StoredRows[Kind][]>;
	/** The store's read of updates, which returns whole records. */
	readonly listUpdates: SequenceLog<StoredUpdate, UpdateQuery>["list"];
}

/** An empty database into which an export is imported. No service can open it before the import is finished. */
export interface ImportTarget extends AsyncDisposable {
	/**
	 * Begins an import.
	 *
	 * @throws Error when the database holds data
	 */
	begin(): Promise<void>;
	/** Writes rows of a kind, in one transaction. */
	write<Kind extends RowKind>(kind: Kind, rows: readonly StoredRows[Kind][]): Promise<void>;
	/**
	 * Turns the complete import into a database that a service can open.
	 *
	 * @throws Error when the database has other ranges or counts afterwards
	 */
	finish(ranges: Ranges, counts: Counts): Promise<void>;
}

/** Returns a count for each kind. */
export function countsBy(count: (kind: RowKind) => number): Counts {
	return {
		conversation: count("conversation"),
		activity: count("activity"),
		update: count("update"),
		event: count("event"),
		usage: count("usage"),
		prunedUpdates: count("prunedUpdates"),
		prunedEvents: count("prunedEvents"),
		gaps: count("gaps"),
		accessKey: count("accessKey"),
		sender: count("sender"),
		refusedPost: count("refusedPost"),
		erasure: count("erasure"),
		audit: count("audit"),
		endpoint: count("endpoint"),
		budget: count("budget"),
		notice: count("notice"),
	};
}

/** @throws Error when a database does not have the wanted counts or ranges */
export function requireContents(found: readonly [Ranges, Counts], wanted: readonly [Ranges, Counts]): void {
	const [foundText, wantedText] = [found, wanted].map(describe);
	if (foundText !== wantedText) throw new Error(`the database holds ${foundText}, expected ${wantedText}`);
}

function describe([{ updates, events, retentionTime }, counts]: readonly [Ranges, Counts]): string {
	const range = ({ newest, prunedThrough, lastRemoval }: SequenceRange) => [newest, prunedThrough, lastRemoval];
	return [...range(updates), ...range(events), retentionTime ?? "none", ...rowKinds.map((kind) => counts[kind])].join();
}

/** The usage of a conversation that is kept when the view is reset. */
export interface UsageBaseline {
	/** A random one if the conversation was erased. */
	readonly conversationId: string;
	readonly sender: string;
	readonly owner: string;
	readonly source: string | undefined;
	readonly lifeBeganAt: bigint | undefined;
	/** The result of `formatSeen`; empty if the conversation was erased. */
	readonly ledger: string;
	/** Ordered by their keys. */
	readonly rows: readonly UsageRow[];
}
