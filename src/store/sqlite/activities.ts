import type { Activity } from "../activity.ts";
import { errorJson } from "../error-column.ts";
import type { ConversationOrigin } from "../owners.ts";
import { activityFrom, originFrom } from "../rows.ts";
import { bigint, text } from "../values.ts";
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
 * Writes the activity of a conversation.
 *
 * @param known row id of the activity; undefined if it has no row yet
 * @returns the row id
 */
export function writeActivity(
	statements: Statements,
	conversationId: string,
	known: bigint | undefined,
	{ eventCount, lastAt, lastStateUpdateAt, leaf, message, firstMessage, error }: Activity,
	{ sender, owner }: ConversationOrigin,
): bigint {
	const id =
		known ??
		bigint(
			statements
				.prepare(`
					INSERT INTO activities (conversation_id, event_count, last_at, sender, owner) VALUES (?, 0, 0, ?, ?)
					RETURNING id
				`)
				.get(conversationId, sender ?? null, owner ?? null)?.id,
		);
	statements
		.prepare(`
			UPDATE activities SET
				event_count = ?, last_at = ?, last_state_update_at = ?, leaf_at = ?, leaf = ?, message_at = ?, message = ?,
				first_message_at = ?, first_message = ?, error_at = ?, error = ?, error_sequence = ?
			WHERE id = ?
		`)
		.run(
			eventCount,
			lastAt,
			lastStateUpdateAt ?? null,
			leaf?.at ?? null,
			leaf?.text ?? null,
			message?.at ?? null,
			message?.text ?? null,
			firstMessage?.at ?? null,
			firstMessage?.text ?? null,
			error?.at ?? null,
			error === undefined ? null : errorJson(error),
			error?.sequence ?? null,
			id,
		);
	return id;
}
