import type { Activity } from "../activity.ts";
import type { ConversationOrigin } from "../owners.ts";
import { activityColumns, activityFrom, originColumns, originFrom } from "../rows.ts";
import { bigint, text } from "../values.ts";
import { insertInto } from "./entries.ts";
import type { Statements } from "./statements.ts";

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
