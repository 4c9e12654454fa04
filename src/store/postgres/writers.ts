import type { Query } from "./transaction.ts";

/** Writes a writer's row without a group, also when there is none; gives the row. */
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

/** Forgets the writers of processes that have ended. */
export const forgetWriters: Query = {
	text: "DELETE FROM conversation_updates.writers WHERE written_at < now() - interval '1 day'",
};
