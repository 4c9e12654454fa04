import type { Activity } from "../activity.ts";
import { activityFrom } from "../rows.ts";
import { bigint, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** The activity of a conversation, with the id of its row; undefined when no event of it came. */
export function findActivity(
	statements: Statements,
	conversationId: string,
): (Activity & { readonly id: bigint }) | undefined {
	const row = statements.prepare("SELECT * FROM activities WHERE conversation_id = ?").get(conversationId);
	return row && { id: bigint(row.id), ...activityFrom(row, text) };
}

/** Writes the activity of a conversation; gives the id of its row. */
export function writeActivity(statements: Statements, conversationId: string, activity: Activity): bigint {
	const { eventCount, lastAt, toldAt, leaf, message } = activity;
	const row = statements
		.prepare(`
			INSERT INTO activities (conversation_id, event_count, last_at, told_at, leaf_at, leaf, message_at, message)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (conversation_id) DO UPDATE SET
				event_count = excluded.event_count, last_at = excluded.last_at, told_at = excluded.told_at,
				leaf_at = excluded.leaf_at, leaf = excluded.leaf,
				message_at = excluded.message_at, message = excluded.message
			RETURNING id
		`)
		.get(
			conversationId,
			eventCount,
			lastAt,
			toldAt ?? null,
			leaf?.at ?? null,
			leaf?.text ?? null,
			message?.at ?? null,
			message?.text ?? null,
		);
	return bigint(row?.id);
}
