import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { withErasures } from "../erased-updates.ts";
import { currentRecordFrom, updateFrom } from "../rows.ts";
import type { StoredUpdate, UpdateQuery } from "../updates.ts";
import { bigint, bindable, integer, type Row, text } from "../values.ts";
import { findActivity } from "./activities.ts";
import { listErasures } from "./erasures.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";

const COLUMNS = `
	c.conversation_id, c.status, c.posted_at, u.sequence, u.change, u.current, u.origin, u.previous_sequence,
	u.received_at, u.summary, u.activity, u.size, u.sender, c.sender AS first_sender, c.owner
`;
const OF_ALL = "updates u CROSS JOIN heads c ON c.id = u.conversation";
const OF_OWNER = `updates_of_owners o CROSS JOIN updates u ON u.sequence = o.sequence
	CROSS JOIN heads c ON c.id = u.conversation`;
const OF_ONE = `heads c CROSS JOIN updates u INDEXED BY updates_by_conversation
	ON c.conversation_id = ? AND u.conversation = c.id`;

/** Which update is read: see `Store.get`. */
export interface UpdateOf {
	readonly conversationId: string;
	readonly asOf: bigint | undefined;
	readonly owner: string | undefined;
}

/** Returns the current update of a conversation with the newest leaf, or the update that was current as of `asOf`. */
export function getUpdate(statements: Statements, query: UpdateOf): StoredUpdate | undefined {
	const { conversationId, asOf, owner } = query;
	// The record of another owner's conversation is not read at all: the time of the answer must not tell that it exists.
	if (owner !== undefined && !isOf(statements, conversationId, owner)) return undefined;
	using records = new RecordReader(statements);
	if (asOf !== undefined) return getUpdateAsOf(statements, records, conversationId, bindable(asOf));
	const row = statements
		.prepare(`
			SELECT ${COLUMNS} FROM heads c JOIN updates u ON u.sequence = c.sequence
			WHERE c.conversation_id = ?
		`)
		.get(conversationId);
	if (row === undefined) return undefined;
	const update = updateOf(row, records);
	return { ...update, record: currentRecordFrom(row, findActivity(statements, conversationId), update.record) };
}

function isOf(statements: Statements, conversationId: string, owner: string): boolean {
	const find = "SELECT 1 FROM heads WHERE conversation_id = ? AND owner = ?";
	return statements.prepare(find).get(conversationId, owner) !== undefined;
}

function getUpdateAsOf(
	statements: Statements,
	records: RecordReader,
	conversationId: string,
	asOf: bigint,
): StoredUpdate | undefined {
	const row = statements
		.prepare(`
			SELECT ${COLUMNS} FROM ${OF_ONE}
			WHERE u.sequence <= ? AND u.current = 1 ORDER BY u.sequence DESC LIMIT 1
		`)
		.get(conversationId, asOf);
	if (row === undefined || row.sequence === asOf) return row && updateOf(row, records);
	const next = statements
		.prepare(`SELECT u.previous_sequence FROM ${OF_ONE} WHERE u.sequence > ? ORDER BY u.sequence LIMIT 1`)
		.get(conversationId, asOf);
	// Pruning keeps the base of a delta longer than the updates that follow it. The found update was current as of `asOf`
	// only if the next one names it as its predecessor.
	const isPruned = next !== undefined && next.previous_sequence !== row.sequence;
	return isPruned ? undefined : updateOf(row, records);
}

/** Lists updates by sequence number, oldest first. */
export function listUpdates(statements: Statements, query: UpdateQuery): StoredUpdate[] {
	const { after, conversationId, owner, origin, limit, maxBytes = Number.POSITIVE_INFINITY, withRecords } = query;
	const isOfAll = conversationId === undefined;
	const ofOrigin = origin === undefined || origin === UpdateOrigin.UNSPECIFIED ? [] : [origin];
	const ofOwner = owner === undefined ? [] : [owner];
	const ofAll = owner === undefined ? OF_ALL : OF_OWNER;
	// The table of owners has the order of the log.
	const [ownerColumn, sequence] =
		isOfAll && owner !== undefined ? ["o.owner", "o.sequence"] : ["c.owner", "u.sequence"];
	const rows = statements
		.prepare(`
			SELECT ${COLUMNS} FROM ${isOfAll ? ofAll : OF_ONE}
			WHERE ${sequence} > ? ${ofOrigin.length > 0 ? "AND u.origin = ?" : ""}
				${ofOwner.length > 0 ? `AND ${ownerColumn} = ?` : ""}
			ORDER BY ${sequence} LIMIT ?
		`)
		.iterate(...(isOfAll ? [] : [conversationId]), bindable(after), ...ofOrigin, ...ofOwner, limit);
	using records = new RecordReader(statements);
	const updates: StoredUpdate[] = [];
	let bytes = 0;
	let isCut = false;
	for (const row of rows) {
		bytes += withRecords ? integer(row.size) : 0;
		isCut = updates.length > 0 && bytes > maxBytes;
		if (isCut) break;
		updates.push(updateOf(row, withRecords ? records : undefined));
	}
	return withErasures(updates, isCut || updates.length === limit, listErasures(statements, query), limit);
}

function updateOf(row: Row, records: RecordReader | undefined): StoredUpdate {
	return updateFrom(row, text, records?.read(bigint(row.sequence)));
}
