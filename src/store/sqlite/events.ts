import type { SQLInputValue } from "node:sqlite";
import { BLOCK_BITS, type EventCondition, timeRangeOf } from "../event-condition.ts";
import type { EventQuery, StoredEvent } from "../events.ts";
import { storedEventsFrom } from "../rows.ts";
import { bigint, bindable, integer, type Row, text } from "../values.ts";
import type { Statements } from "./statements.ts";

const OF_ALL = "events e CROSS JOIN activities a ON a.id = e.activity";
const OF_OWNER = `events_of_owners o CROSS JOIN events e ON e.sequence = o.sequence
	CROSS JOIN activities a ON a.id = e.activity`;
const OF_ONE = "activities a CROSS JOIN events e INDEXED BY events_by_activity ON e.activity = a.id";
/** Looks the id up in each conversation, because no index has all ids in one order: such an index would slow appends. */
const BY_ID = "activities a CROSS JOIN events e INDEXED BY events_by_id ON e.activity = a.id";

/** Lists events by sequence number. */
export function listEvents(statements: Statements, query: EventQuery): StoredEvent[] {
	const { maxBytes = Number.POSITIVE_INFINITY } = query;
	const sql = listSql(query);
	const rows = statements.prepare(sql.text).iterate(...sql.parameters);
	const page: Row[] = [];
	let bytes = 0;
	for (const row of rows) {
		bytes += integer(row.size);
		if (page.length > 0 && bytes > maxBytes) break;
		page.push(row);
	}
	return withTexts(statements, page);
}

/** Returns those events that exist. */
export function readEvents(statements: Statements, sequences: readonly bigint[]): StoredEvent[] {
	const find = statements.prepare(`
		SELECT a.conversation_id, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin, a.owner
		FROM ${OF_ALL} WHERE e.sequence = ?
	`);
	const rows = sequences.map((sequence) => find.get(sequence));
	return withTexts(
		statements,
		rows.filter((row) => row !== undefined),
	);
}

/** A fragment of SQL with the values of its placeholders. */
interface Sql {
	readonly text: string;
	readonly parameters: readonly SQLInputValue[];
}

/** Returns the statement that lists events. */
export function listSql(query: EventQuery): Sql {
	const { after, before, newestFirst = false, conversationId, owner, conditions = [], limit } = query;
	const byId = conditions.some(({ kind }) => kind === "id");
	const ofOwner = owner !== undefined && conversationId === undefined && !byId;
	// The table of owners has the order of the log.
	const [ownerColumn, sequence] = ofOwner ? ["o.owner", "o.sequence"] : ["a.owner", "e.sequence"];
	const bounds = boundsSql(sequence, after, before, timeRangeOf(conditions));
	const tests = [...bounds, ...conditions.flatMap(conditionSql)];
	if (conversationId !== undefined) tests.push({ text: "a.conversation_id = ?", parameters: [conversationId] });
	if (owner !== undefined) tests.push({ text: `${ownerColumn} = ?`, parameters: [owner] });
	const ofAll = ofOwner ? OF_OWNER : OF_ALL;
	return {
		text: `
			SELECT a.conversation_id, e.sequence, e.received_at, e.happened_at, e.kind, e.source, e.sender, e.origin,
				a.owner, coalesce(e.unpacked_size, octet_length(e.text)) AS size
			FROM ${byId ? BY_ID : conversationId === undefined ? ofAll : OF_ONE}
			WHERE ${tests.map((test) => test.text).join(" AND ")}
			ORDER BY ${sequence} ${newestFirst ? "DESC" : "ASC"} LIMIT ?
		`,
		parameters: [...tests.flatMap(({ parameters }) => parameters), limit],
	};
}

/** Reads the text of each event by a query of its own, so that a damaged event does not fail the whole list. */
function withTexts(statements: Statements, rows: readonly Row[]): StoredEvent[] {
	const find = statements.prepare(
		"SELECT text, unpacked_size, checksum, secrets, redaction_version FROM events WHERE sequence = ?",
	);
	return storedEventsFrom(rows, text, ({ sequence }) => find.get(bigint(sequence)));
}

/**
 * Returns tests of the sequence: it is between two sequences, and between the first and the last block with times in a
 * range. There is one test for each side, because an index is searched by one.
 */
function boundsSql(
	column: string,
	after: bigint,
	before: bigint | undefined,
	range: ReturnType<typeof timeRangeOf>,
): Sql[] {
	const end = before ?? 2n ** 63n - 1n;
	if (range === undefined)
		return [{ text: `${column} > ? AND ${column} < ?`, parameters: [bindable(after), bindable(end)] }];
	const blocks = "event_times WHERE block >= ? AND last_at >= ? AND first_at < ?";
	const selected = [bindable(after >> BigInt(BLOCK_BITS)), bindable(range.from), bindable(range.to)];
	// Without such a block the bounds are null, and no event passes.
	return [
		{
			text: `${column} > max(?, (SELECT (min(block) << ${BLOCK_BITS}) - 1 FROM ${blocks}))`,
			parameters: [bindable(after), ...selected],
		},
		{
			text: `${column} < min(?, (SELECT (max(block) + 1) << ${BLOCK_BITS} FROM ${blocks}))`,
			parameters: [bindable(end), ...selected],
		},
	];
}

function conditionSql(condition: EventCondition): Sql[] {
	switch (condition.kind) {
		case "one_of": {
			const { field, values } = condition;
			return [{ text: `e.${field} IN (${values.map(() => "?").join()})`, parameters: values }];
		}
		case "none_of": {
			const { field, values } = condition;
			return [{ text: `e.${field} NOT IN (${values.map(() => "?").join()})`, parameters: values }];
		}
		case "id":
			return [{ text: "e.event_id = ?", parameters: [condition.value] }];
		case "happened": {
			const { from, to } = condition;
			return [
				...(from === undefined ? [] : [{ text: "e.happened_at >= ?", parameters: [bindable(from)] }]),
				...(to === undefined ? [] : [{ text: "e.happened_at < ?", parameters: [bindable(to)] }]),
			];
		}
	}
}
