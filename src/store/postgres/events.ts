import type { EventCondition } from "../event-condition.ts";
import { readOrUnreadable } from "../record-column.ts";
import { eventColumnsFrom, protectedEventFrom } from "../rows.ts";
import type { EventQuery, StoredEvent } from "../store.ts";
import { bindable, nullable, type Row } from "../values.ts";
import { decoded, isConversationId } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Session } from "./transaction.ts";

/** Lists events in order of sequence. */
export async function listEvents(session: Session, query: EventQuery): Promise<StoredEvent[]> {
	const { after, before, newestFirst = false, conversationId, owner, conditions = [], limit, maxBytes } = query;
	if (conversationId !== undefined && !isConversationId(conversationId)) return [];
	const sql = new Sql();
	const tests = [`sequence > ${sql.value(bindable(after))}`];
	if (before !== undefined) tests.push(`sequence < ${sql.value(bindable(before))}`);
	const order = `sequence ${newestFirst ? "DESC" : "ASC"}`;
	if (conversationId !== undefined) tests.push(`conversation_id = ${sql.value(conversationId)}`);
	tests.push(...conditions.flatMap((condition) => conditionSql(condition, sql)));
	if (owner !== undefined) tests.push(`owner = ${sql.value(encodeText(owner))}`);
	const fitsLimit = maxBytes === undefined ? "true" : `e.total <= ${sql.value(maxBytes)} OR e.number = 1`;
	const [rows = []] = await session.query(
		sql.query(`
			SELECT ${COLUMNS} FROM (
				SELECT *, sum(size) OVER (ORDER BY ${order}) AS total, row_number() OVER (ORDER BY ${order}) AS number
				FROM (
					SELECT * FROM conversation_updates.events
					WHERE ${tests.join(" AND ")} ORDER BY ${order} LIMIT ${sql.value(limit)}
				) page
			) e
			JOIN conversation_updates.activities a ON a.conversation_id = e.conversation_id
			WHERE ${fitsLimit} ORDER BY e.${order}
		`),
	);
	return rows.map(eventFrom);
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
	return rows.map(eventFrom);
}

/** Columns of event `e` and activity `a` that {@link eventFrom} reads. */
const COLUMNS = `
	e.conversation_id, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin, a.owner, e.text,
	e.unpacked_size, e.checksum, e.secrets, e.redaction_version
`;

function eventFrom(row: Row): StoredEvent {
	return {
		...eventColumnsFrom(row, decoded),
		owner: nullable(decoded, row.owner),
		// A damaged event does not make the whole query fail.
		event: readOrUnreadable(() => protectedEventFrom(row)),
	};
}

function conditionSql(condition: EventCondition, sql: Sql): string[] {
	if (condition.kind === "one_of") {
		const { field, values } = condition;
		return [`${field} = ANY (${sql.value(values.map(encodeText))}::text[])`];
	}
	if (condition.kind === "none_of") {
		const { field, values } = condition;
		return [`${field} <> ALL (${sql.value(values.map(encodeText))}::text[])`];
	}
	const { from, to } = condition;
	return [
		...(from === undefined ? [] : [`happened_at >= ${sql.value(bindable(from))}`]),
		...(to === undefined ? [] : [`happened_at < ${sql.value(bindable(to))}`]),
	];
}
