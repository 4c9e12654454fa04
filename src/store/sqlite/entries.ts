import type { SQLInputValue } from "node:sqlite";
import { BLOCK_BITS } from "../event-condition.ts";
import { eventColumns, updateColumns } from "../rows.ts";
import type { EventRow, UpdateRow } from "../stored-rows.ts";
import { type TableName, tableOf } from "../tables.ts";
import type { Statements } from "./statements.ts";

/** A row to insert. A column that it lacks is null. */
type Columns = Readonly<Record<string, SQLInputValue | boolean | readonly string[] | undefined>>;

const inserts = new Map<string, { readonly names: readonly string[]; readonly sql: string }>();

/**
 * Inserts a row into a table.
 *
 * @param ifExists as for `Session.insert`
 */
export function insertInto(statements: Statements, table: TableName, row: Columns, ifExists = ""): void {
	const { names, sql } = inserts.getOrInsertComputed(`${table} ${ifExists}`, () => {
		const { columns, key } = tableOf("sqlite", table);
		const all = Object.keys(columns);
		const insert = `INSERT INTO ${table} AS t (${all.join()}) VALUES (${all.map(() => "?").join()})`;
		return {
			names: all,
			sql: ifExists === "" ? insert : `${insert} ON CONFLICT (${key.join()}) DO ${ifExists}`,
		};
	});
	statements.prepare(sql).run(...names.map((name) => bound(row[name])));
}

/** Returns a value as the driver takes it. A list becomes JSON. */
export function bound(value: Columns[string]): SQLInputValue {
	if (typeof value === "boolean") return BigInt(value);
	return isList(value) ? JSON.stringify(value) : (value ?? null);
}

function isList(value: Columns[string]): value is readonly string[] {
	return Array.isArray(value);
}

/**
 * @param conversation row id of the update's conversation
 * @param owner that of the conversation
 */
export function insertUpdate(
	statements: Statements,
	conversation: bigint,
	owner: string | undefined,
	update: UpdateRow,
): void {
	insertInto(statements, "updates", { ...updateColumns(update), conversation });
	if (owner !== undefined) insertInto(statements, "updates_of_owners", { owner, sequence: update.sequence });
}

/**
 * Inserts an event. The caller also calls {@link widenEventTimes}.
 *
 * @param activity row id of its conversation's activity
 * @param owner that of the conversation
 */
export function insertEvent(
	statements: Statements,
	activity: bigint,
	owner: string | undefined,
	event: EventRow,
): void {
	insertInto(statements, "events", { ...eventColumns(event), activity });
	if (owner !== undefined) insertInto(statements, "events_of_owners", { owner, sequence: event.sequence });
}

/** Widens the ranges of time of the blocks of new events. */
export function widenEventTimes(
	statements: Statements,
	events: Iterable<{ readonly sequence: bigint; readonly happenedAt: bigint }>,
): void {
	const blocks = new Map<bigint, { first: bigint; last: bigint }>();
	for (const { sequence, happenedAt } of events) {
		const times = blocks.getOrInsert(sequence >> BigInt(BLOCK_BITS), { first: happenedAt, last: happenedAt });
		if (happenedAt < times.first) times.first = happenedAt;
		if (happenedAt > times.last) times.last = happenedAt;
	}
	for (const [block, { first, last }] of blocks)
		statements
			.prepare(`
				INSERT INTO event_times (block, first_at, last_at) VALUES (?, ?, ?)
				ON CONFLICT DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)
				WHERE excluded.first_at < first_at OR excluded.last_at > last_at
			`)
			.run(block, first, last);
}
