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

/** Lets a group be written no more: statements of it that are still on their way to the server will fail there. */
export function endGroup(id: string, group: bigint): Query {
	return {
		text: `
			UPDATE conversation_updates.writers SET last_group = $2::bigint + 1 WHERE id = $1 AND last_group < $2::bigint
		`,
		values: [id, group],
	};
}

/** Forgets the writers of processes that have ended. */
export const forgetWriters: Query = {
	text: "DELETE FROM conversation_updates.writers WHERE written_at < now() - interval '1 day'",
};
