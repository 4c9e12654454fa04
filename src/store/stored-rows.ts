import type { UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { childrenIn } from "../record/record-relations.ts";
import type { AccessKeyRow } from "./access-keys.ts";
import type { Activity } from "./activity.ts";
import type { AuditEntry } from "./audit.ts";
import type { ConversationState, WrittenUpdate } from "./conversation-state.ts";
import type { Erasure } from "./erasure.ts";
import type { NewEvent } from "./events.ts";
import type { Gap } from "./gaps.ts";
import type { ConversationOrigin } from "./owners.ts";
import { type RecordColumn, readOrUnreadable, unpackRecord } from "./record-column.ts";
import type { RefusedPostRow } from "./refused-posts.ts";
import type { SenderName, StoredSender } from "./senders.ts";
import type { StoredRecord } from "./stored-record.ts";
import type { UsageBaseline } from "./usage-rows.ts";

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

export interface ConversationRow {
	readonly conversationId: string;
	readonly origin: ConversationOrigin;
	readonly state: ConversationState;
	/** Encoded summary of the current record. */
	readonly summary: Uint8Array;
}

export interface ActivityRow {
	readonly conversationId: string;
	readonly origin: ConversationOrigin;
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
export interface GapsRow {
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
