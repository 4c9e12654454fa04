import type { SQLInputValue } from "node:sqlite";
import type { Activity } from "../activity.ts";
import { BLOCK_BITS } from "../condition.ts";
import type { Head } from "../group.ts";
import type { ConversationOrigin } from "../owners.ts";
import {
	activityColumns,
	activityFrom,
	eventColumns,
	headColumns,
	originColumns,
	originFrom,
	stateFrom,
	updateColumns,
} from "../rows.ts";
import type { EventRow, UpdateRow } from "../stored-rows.ts";
import { type TableName, tableOf } from "../tables.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** A row to insert. A column that it lacks is null. */
type Columns = Readonly<Record<string, SQLInputValue | boolean | List | undefined>>;
type List = readonly string[] | readonly bigint[];

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
	if (!isList(value)) return value ?? null;
	return `[${value.map((one) => (typeof one === "bigint" ? one : JSON.stringify(one))).join()}]`;
}

function isList(value: Columns[string]): value is List {
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

/** The head of a conversation that has a record: what the next append depends on. */
export interface KnownHead extends Head {
	readonly id: bigint;
	readonly row: Row;
	readonly origin: ConversationOrigin;
}

/** Finds the head of a conversation; returns undefined when it has no record. */
export function findHead(statements: Statements, conversationId: string): KnownHead | undefined {
	const row = statements.prepare("SELECT * FROM heads WHERE conversation_id = ?").get(conversationId);
	if (row === undefined) return undefined;
	return {
		id: bigint(row.id),
		row,
		state: stateFrom(row, text),
		origin: originFrom(row, text),
		source: nullable(text, row.source_id),
		parent: nullable(text, row.parent_id),
	};
}

/** Inserts the head of a conversation. Returns its row id. */
export function insertHead(
	statements: Statements,
	conversationId: string,
	head: Head,
	origin: ConversationOrigin,
): bigint {
	insertInto(statements, "heads", { ...headColumns(conversationId, head), ...originColumns(origin) });
	return bigint(statements.prepare("SELECT last_insert_rowid() AS id").get()?.id);
}

/** Writes what changes of a head: SQLite writes the index of each column that a statement names. */
export function updateHead(statements: Statements, { id, row }: KnownHead, conversationId: string, after: Head): void {
	const changed = Object.entries(headColumns(conversationId, after))
		.map(([name, value]) => [name, typeof value === "boolean" ? BigInt(value) : value] as const)
		.filter(([name, value]) => row[name] !== value);
	if (changed.length === 0) return;
	const assignments = changed.map(([name]) => `${name} = ?`);
	statements
		.prepare(`UPDATE heads SET ${assignments.join()} WHERE id = ?`)
		.run(...changed.map(([, value]) => value), id);
}

/** Finds the activity of a conversation, with its row id; returns undefined when it has none. */
export function findActivity(
	statements: Statements,
	conversationId: string,
): (Activity & { readonly id: bigint; readonly origin: ConversationOrigin }) | undefined {
	const row = statements.prepare("SELECT * FROM activities WHERE conversation_id = ?").get(conversationId);
	return row && { id: bigint(row.id), origin: originFrom(row, text), ...activityFrom(row, text) };
}

/**
 * Writes the activity of a conversation. One that exists keeps its origin.
 *
 * @param known row id of the activity; undefined if it has no row yet
 * @returns the row id
 */
export function writeActivity(
	statements: Statements,
	conversationId: string,
	known: bigint | undefined,
	activity: Activity,
	origin: ConversationOrigin,
): bigint {
	const columns = activityColumns(conversationId, activity);
	if (known === undefined) {
		insertInto(statements, "activities", { ...columns, ...originColumns(origin) });
		return bigint(statements.prepare("SELECT last_insert_rowid() AS id").get()?.id);
	}
	const { conversation_id, ...changed } = columns;
	const assignments = Object.keys(changed).map((name) => `${name} = ?`);
	statements.prepare(`UPDATE activities SET ${assignments.join()} WHERE id = ?`).run(...Object.values(changed), known);
	return known;
}
