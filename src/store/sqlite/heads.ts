import type { ConversationOrigin } from "../owners.ts";
import { headColumns, originColumns, originFrom, stateFrom } from "../rows.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Head } from "../written-group.ts";
import { insertInto } from "./entries.ts";
import type { Statements } from "./statements.ts";

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
