import type { Activity } from "../activity.ts";
import { activityFrom } from "../rows.ts";
import { bigint, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** An activity with the id of its row. */
export interface StoredActivity extends Activity {
	readonly id: bigint;
}

/** The activity of a conversation; undefined when no event of it came. */
export function findActivity(statements: Statements, conversationId: string): StoredActivity | undefined {
	const row = statements.prepare("SELECT * FROM activities WHERE conversation_id = ?").get(conversationId);
	return row && { id: bigint(row.id), ...activityFrom(row, text) };
}

/** Makes the row of a conversation's activity, and gives its id. */
export function insertActivity(statements: Statements, conversationId: string): bigint {
	const row = statements
		.prepare("INSERT INTO activities (conversation_id, event_count, last_at) VALUES (?, 0, 0) RETURNING id")
		.get(conversationId);
	return bigint(row?.id);
}

export function updateActivity(statements: Statements, id: bigint, activity: Activity): void {
	const { eventCount, lastAt, toldAt, leaf, message } = activity;
	statements
		.prepare(`
			UPDATE activities SET
				event_count = ?, last_at = ?, told_at = ?, leaf_at = ?, leaf = ?, message_at = ?, message = ?
			WHERE id = ?
		`)
		.run(
			eventCount,
			lastAt,
			toldAt ?? null,
			leaf?.at ?? null,
			leaf?.text ?? null,
			message?.at ?? null,
			message?.text ?? null,
			id,
		);
}
