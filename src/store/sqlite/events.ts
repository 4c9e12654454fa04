import type { EventCondition } from "../event-condition.ts";
import { readOrUnreadable } from "../record-column.ts";
import { eventColumnsFrom, protectedEventFrom } from "../rows.ts";
import type { EventQuery, ProtectedEvent, StoredEvent, Unreadable } from "../store.ts";
import { bigint, bindable, integer, nullable, text } from "../values.ts";
import type { Sql } from "./condition-sql.ts";
import type { Statements } from "./statements.ts";

const OF_ALL = "events e CROSS JOIN activities a ON a.id = e.activity";
const OF_OWNER = `events_of_owners o CROSS JOIN events e ON e.sequence = o.sequence
	CROSS JOIN activities a ON a.id = e.activity`;
const OF_ONE =
	"activities a CROSS JOIN events e INDEXED BY events_by_activity ON a.conversation_id = ? AND e.activity = a.id";

/** Lists events by sequence number. */
export function listEvents(statements: Statements, query: EventQuery): StoredEvent[] {
	const {
		after,
		before,
		newestFirst = false,
		conversationId,
		owner,
		conditions = [],
		limit,
		maxBytes = Number.POSITIVE_INFINITY,
	} = query;
	const isOfAll = conversationId === undefined;
	const ofAll = owner === undefined ? OF_ALL : OF_OWNER;
	// The table of owners has the order of the log.
	const [ownerColumn, sequence] =
		isOfAll && owner !== undefined ? ["o.owner", "o.sequence"] : ["a.owner", "e.sequence"];
	const tests = conditions.flatMap(conditionSql);
	if (before !== undefined) tests.push({ text: `${sequence} < ?`, parameters: [bindable(before)] });
	if (owner !== undefined) tests.push({ text: `${ownerColumn} = ?`, parameters: [owner] });
	const rows = statements
		.prepare(`
			SELECT a.conversation_id, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin, a.owner,
				coalesce(e.unpacked_size, octet_length(e.text)) AS size
			FROM ${isOfAll ? ofAll : OF_ONE}
			WHERE ${sequence} > ? ${tests.map((test) => `AND ${test.text}`).join(" ")} 
			ORDER BY ${sequence} ${newestFirst ? "DESC" : "ASC"} LIMIT ?
		`)
		.iterate(
			...(isOfAll ? [] : [conversationId]),
			bindable(after),
			...tests.flatMap(({ parameters }) => parameters),
			limit,
		);
	const events: StoredEvent[] = [];
	let bytes = 0;
	for (const row of rows) {
		bytes += integer(row.size);
		if (events.length > 0 && bytes > maxBytes) break;
		events.push({
			...eventColumnsFrom(row, text),
			owner: nullable(text, row.owner),
			event: readEvent(statements, bigint(row.sequence)),
		});
	}
	return events;
}

/** Returns those events that exist. */
export function readEvents(statements: Statements, sequences: readonly bigint[]): StoredEvent[] {
	const find = statements.prepare(`
		SELECT a.conversation_id, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin, a.owner
		FROM ${OF_ALL} WHERE e.sequence = ?
	`);
	return sequences.flatMap((sequence) => {
		const row = find.get(sequence);
		if (row === undefined) return [];
		return [
			{
				...eventColumnsFrom(row, text),
				owner: nullable(text, row.owner),
				event: readEvent(statements, sequence),
			},
		];
	});
}

/** Reads the text of one event by a query of its own, so that a damaged event does not fail the whole list. */
function readEvent(statements: Statements, sequence: bigint): ProtectedEvent | Unreadable {
	return readOrUnreadable(() => {
		const row = statements
			.prepare("SELECT text, unpacked_size, checksum, secrets, redaction_version FROM events WHERE sequence = ?")
			.get(sequence);
		return protectedEventFrom(row);
	});
}

function conditionSql(condition: EventCondition): Sql[] {
	if (condition.kind === "one_of") {
		const { field, values } = condition;
		return [{ text: `e.${field} IN (${values.map(() => "?").join()})`, parameters: values }];
	}
	if (condition.kind === "none_of") {
		const { field, values } = condition;
		return [{ text: `e.${field} NOT IN (${values.map(() => "?").join()})`, parameters: values }];
	}
	const { from, to } = condition;
	return [
		...(from === undefined ? [] : [{ text: "e.happened_at >= ?", parameters: [bindable(from)] }]),
		...(to === undefined ? [] : [{ text: "e.happened_at < ?", parameters: [bindable(to)] }]),
	];
}
