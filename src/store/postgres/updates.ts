import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { withErasures } from "../erased-updates.ts";
import { currentRecordFrom, updateFrom } from "../rows.ts";
import type { StoredUpdate, UpdateQuery } from "../updates.ts";
import { bigint, bindable, nullable, type Row } from "../values.ts";
import { erasureOf, erasuresQuery } from "./erasures.ts";
import { BASE_JOIN, RECORD_COLUMNS, RecordReader } from "./records.ts";
import { ACTIVITY_COLUMNS, activityOf, decoded, isConversationId } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Session } from "./transaction.ts";

/** SQL columns of update `u` and its conversation `c` that {@link updateFrom} reads. */
export const UPDATE_COLUMNS = `
	u.conversation_id, u.sequence, u.change, u.current, u.origin, u.previous_sequence, u.received_at, u.summary, u.activity,
	u.error_sequence, u.sender, c.sender AS first_sender, c.owner
`;

/** SQL join of an update `u` with its conversation. */
const CONVERSATION_JOIN = "JOIN conversation_updates.heads c ON c.conversation_id = u.conversation_id";

/** SQL FROM clause: conversations `c` with their current update `u`, its base `b` and the activity `a`. */
export const FROM_CURRENT = `
	FROM conversation_updates.heads c
	JOIN conversation_updates.updates u ON u.conversation_id = c.conversation_id AND u.sequence = c.sequence
	LEFT JOIN conversation_updates.activities a ON a.conversation_id = c.conversation_id
	${BASE_JOIN}
`;

/**
 * Returns the current update of a conversation, or the update that was current as of a sequence. The current record has
 * the conversation's newest leaf.
 */
export async function getUpdate(
	session: Session,
	conversationId: string,
	asOf: bigint | undefined,
	owner: string | undefined,
): Promise<StoredUpdate | undefined> {
	if (!isConversationId(conversationId)) return undefined;
	const stored = owner === undefined ? null : encodeText(owner);
	if (asOf !== undefined) return await getUpdateAsOf(session, conversationId, bindable(asOf), stored);
	const [[row] = []] = await session.query({
		text: `
			SELECT ${UPDATE_COLUMNS}, ${RECORD_COLUMNS}, ${ACTIVITY_COLUMNS}, c.status, c.posted_at
			${FROM_CURRENT} WHERE c.conversation_id = $1 AND ${hasOwner("c.owner", "$2")}
		`,
		values: [conversationId, stored],
	});
	return row && currentUpdateOf(row);
}

/** Returns SQL for whether a row has the owner that a parameter names; null names any. Rows of others are not read. */
function hasOwner(owner: string, parameter: string): string {
	return `(${parameter}::text IS NULL OR ${owner} = ${parameter})`;
}

async function getUpdateAsOf(
	session: Session,
	conversationId: string,
	asOf: bigint,
	owner: string | null,
): Promise<StoredUpdate | undefined> {
	const [[row] = []] = await session.query({
		text: `
			SELECT ${UPDATE_COLUMNS}, ${RECORD_COLUMNS}, (
				SELECT n.previous_sequence FROM conversation_updates.updates n
				WHERE n.conversation_id = $1 AND n.sequence > $2 ORDER BY n.sequence LIMIT 1
			) AS next_previous
			FROM (
				SELECT * FROM conversation_updates.updates
				WHERE conversation_id = $1 AND sequence <= $2 AND current AND ${hasOwner("owner", "$3")} ORDER BY sequence DESC LIMIT 1
			) u ${CONVERSATION_JOIN} ${BASE_JOIN}
		`,
		values: [conversationId, asOf, owner],
	});
	if (row === undefined) return undefined;
	const sequence = bigint(row.sequence);
	const next = nullable(bigint, row.next_previous);
	// The update found may be an older one that was kept as a base, while the one that was current as of the sequence was
	// pruned.
	const isPruned = sequence !== asOf && next !== undefined && next !== sequence;
	return isPruned ? undefined : updateFrom(row, decoded, new RecordReader().read(row));
}

/** Lists updates in order of sequence. */
export async function listUpdates(session: Session, query: UpdateQuery): Promise<StoredUpdate[]> {
	const { after, conversationId, owner, origin, limit, maxBytes, withRecords } = query;
	if (conversationId !== undefined && !isConversationId(conversationId)) return [];
	const sql = new Sql();
	const tests = [`sequence > ${sql.value(bindable(after))}`];
	if (conversationId !== undefined) tests.push(`conversation_id = ${sql.value(conversationId)}`);
	if (origin !== undefined && origin !== UpdateOrigin.UNSPECIFIED) tests.push(`origin = ${sql.value(origin)}`);
	if (owner !== undefined) tests.push(`owner = ${sql.value(encodeText(owner))}`);
	const fitsLimit =
		withRecords && maxBytes !== undefined ? `u.total <= ${sql.value(maxBytes)} OR u.number = 1` : "true";
	const [rows = [], erased = []] = await session.query(
		sql.query(`
			SELECT ${UPDATE_COLUMNS}, u.found ${withRecords ? `, ${RECORD_COLUMNS}` : ""}
			FROM (
				SELECT *, sum(size) OVER (ORDER BY sequence) AS total, row_number() OVER (ORDER BY sequence) AS number,
					count(*) OVER () AS found
				FROM (
					SELECT * FROM conversation_updates.updates
					WHERE ${tests.join(" AND ")} ORDER BY sequence LIMIT ${sql.value(limit)}
				) page
			) u ${CONVERSATION_JOIN} ${withRecords ? BASE_JOIN : ""}
			WHERE ${fitsLimit} ORDER BY u.sequence
		`),
		erasuresQuery(query),
	);
	const records = withRecords ? new RecordReader() : undefined;
	const updates = rows.map((row) => updateFrom(row, decoded, records?.read(row)));
	const isCut = rows.length === limit || BigInt(rows.length) < (nullable(bigint, rows[0]?.found ?? null) ?? 0n);
	return withErasures(updates, isCut, erased.map(erasureOf), limit);
}

/**
 * Returns a current update. The row must have the conversation's `status` and `posted_at`, its activity and the record.
 */
export function currentUpdateOf(row: Row): StoredUpdate {
	const record = currentRecordFrom(row, activityOf(row), new RecordReader().read(row));
	return updateFrom(row, decoded, record);
}
