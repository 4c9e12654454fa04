import type { Query } from "./transaction.ts";

/** Returns the query that updates the time in a writer's row, or inserts the row without a group, and returns the row. */
export function touchWriter(id: string): Query {
	return {
		text: `
			INSERT INTO conversation_updates.writers (id, last_group, first_update, first_event, written_at)
			VALUES ($1, 0, 0, 0, now())
			ON CONFLICT (id) DO UPDATE SET written_at = excluded.written_at RETURNING *
		`,
		values: [id],
	};
}

/** Returns the query that gives up a group unless it was committed: later statements of the group will fail. */
export function endGroup(id: string, group: bigint): Query {
	return {
		text: `
			UPDATE conversation_updates.writers SET last_group = $2::bigint + 1 WHERE id = $1 AND last_group < $2::bigint
		`,
		values: [id, group],
	};
}

/** Deletes the rows of writers that wrote nothing for a day, such as those of processes that have ended. */
export const deleteIdleWriters: Query = {
	text: "DELETE FROM conversation_updates.writers WHERE written_at < now() - interval '1 day'",
};
