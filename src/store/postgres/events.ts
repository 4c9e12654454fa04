import { BLOCK_BITS, type EventCondition, timeRangeOf } from "../event-condition.ts";
import type { EventQuery, StoredEvent } from "../events.ts";
import { storedEventsFrom } from "../rows.ts";
import { bindable, type Row } from "../values.ts";
import { decoded, isConversationId } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

/** Lists events in order of sequence. */
export async function listEvents(session: Session, query: EventQuery): Promise<StoredEvent[]> {
	if (query.conversationId !== undefined && !isConversationId(query.conversationId)) return [];
	const [rows = []] = await session.query(listQuery(query));
	return eventsFrom(rows);
}

/** Returns those events that exist. */
export async function readEvents(session: Session, sequences: readonly bigint[]): Promise<StoredEvent[]> {
	const [rows = []] = await session.query({
		text: `
			SELECT ${COLUMNS} FROM conversation_updates.events e
			JOIN conversation_updates.activities a ON a.conversation_id = e.conversation_id
			WHERE e.sequence = ANY ($1::bigint[])
		`,
		values: [sequences],
	});
	return eventsFrom(rows);
}

/** Columns of event `e` and activity `a` that {@link eventsFrom} reads. */
const COLUMNS = `
	e.conversation_id, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin, a.owner, e.text,
	e.unpacked_size, e.checksum, e.secrets, e.redaction_version
`;

function eventsFrom(rows: readonly Row[]): StoredEvent[] {
	return storedEventsFrom(rows, decoded, (row) => row);
}

/** Returns the query that lists events. */
export function listQuery(query: EventQuery): Query {
	const { after, before, newestFirst = false, conversationId, owner, conditions = [], limit, maxBytes } = query;
	const sql = new Sql();
	const tests = [`sequence > ${sql.value(bindable(after))}`];
	if (before !== undefined) tests.push(`sequence < ${sql.value(bindable(before))}`);
	const order = `sequence ${newestFirst ? "DESC" : "ASC"}`;
	if (conversationId !== undefined) tests.push(`conversation_id = ${sql.value(conversationId)}`);
	// Looks the id up in each conversation, because no index has all ids in one order: such an index would slow appends.
	else if (conditions.some(({ kind }) => kind === "id"))
		tests.push("conversation_id = ANY (ARRAY(SELECT conversation_id FROM conversation_updates.activities))");
	tests.push(...conditions.flatMap((condition) => conditionSql(condition, sql)));
	const range = timeRangeOf(conditions);
	if (range !== undefined) tests.push(...blocksSql(range, after, sql));
	if (owner !== undefined) tests.push(`owner = ${sql.value(encodeText(owner))}`);
	const fitsLimit = maxBytes === undefined ? "true" : `e.total <= ${sql.value(maxBytes)} OR e.number = 1`;
	return sql.query(`
		SELECT ${COLUMNS}
		FROM (
			SELECT *, sum(size) OVER (ORDER BY ${order}) AS total, row_number() OVER (ORDER BY ${order}) AS number
			FROM (
				SELECT * FROM conversation_updates.events
				WHERE ${tests.join(" AND ")} ORDER BY ${order} LIMIT ${sql.value(limit)}
			) page
		) e
		JOIN conversation_updates.activities a ON a.conversation_id = e.conversation_id
		WHERE ${fitsLimit} ORDER BY e.${order}
	`);
}

/** Returns tests that an event is between the first and the last block with times in a range. */
function blocksSql({ from, to }: { from: bigint; to: bigint }, after: bigint, sql: Sql): string[] {
	const block = sql.value(bindable(after >> BigInt(BLOCK_BITS)));
	const times = `last_at >= ${sql.value(bindable(from))} AND first_at < ${sql.value(bindable(to))}`;
	const blocks = `conversation_updates.event_times WHERE block >= ${block} AND ${times}`;
	return [
		`sequence >= (SELECT min(block) << ${BLOCK_BITS} FROM ${blocks})`,
		`sequence < (SELECT (max(block) + 1) << ${BLOCK_BITS} FROM ${blocks})`,
	];
}

function conditionSql(condition: EventCondition, sql: Sql): string[] {
	switch (condition.kind) {
		case "one_of": {
			const { field, values } = condition;
			return [`${field} = ANY (${sql.value(values.map(encodeText))}::text[])`];
		}
		case "none_of": {
			const { field, values } = condition;
			return [`${field} <> ALL (${sql.value(values.map(encodeText))}::text[])`];
		}
		case "id":
			return [`event_id = ${sql.value(encodeKey(condition.value))}`];
		case "happened": {
			const { from, to } = condition;
			return [
				...(from === undefined ? [] : [`happened_at >= ${sql.value(bindable(from))}`]),
				...(to === undefined ? [] : [`happened_at < ${sql.value(bindable(to))}`]),
			];
		}
	}
}
