import type { Activity } from "../activity.ts";
import type { ConversationState } from "../conversation-state.ts";
import { bigint, integer, nullable, type Row, text } from "../values.ts";
import { decodeText } from "./stored-text.ts";

/** Rows of the tables as the rules of the store take them. */

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

/** Whether a text can be the id of a stored conversation. */
export function isConversationId(id: string): boolean {
	return UUID.test(id);
}

/** A column of booleans. */
export function boolean(value: unknown): boolean {
	if (typeof value !== "boolean") throw new TypeError(`the database holds ${typeof value} in place of a boolean`);
	return value;
}

/** A column of texts in their stored form. */
export function decoded(value: unknown): string {
	return decodeText(text(value));
}

/** SQL for the columns of `c` that {@link stateOf} reads. */
export const STATE_COLUMNS = `
	c.sequence, c.status, c.order_time, c.newest_sequence, c.newest_updated_at, c.newest_size, c.revision, c.posted_at,
	c.is_behind, c.told
`;

/** The state of a conversation; undefined when it has no record. */
export function stateOf(row: Row): ConversationState | undefined {
	if (row.sequence === null) return undefined;
	const sequence = nullable(bigint, row.newest_sequence);
	return {
		sequence: bigint(row.sequence),
		status: integer(row.status),
		orderTime: nullable(bigint, row.order_time),
		newest:
			sequence === undefined
				? undefined
				: { sequence, updatedAt: nullable(bigint, row.newest_updated_at), size: integer(row.newest_size) },
		revision: bigint(row.revision),
		postedAt: nullable(bigint, row.posted_at),
		isBehind: boolean(row.is_behind),
		told: nullable(decoded, row.told),
	};
}

/** SQL for the columns of `a` that {@link activityOf} reads. */
export const ACTIVITY_COLUMNS = "a.event_count, a.last_at, a.told_at, a.leaf_at, a.leaf, a.message_at, a.message";

/** The activity of a conversation; undefined when no event of it came. */
export function activityOf(row: Row): Activity | undefined {
	if (row.event_count === null) return undefined;
	return {
		eventCount: bigint(row.event_count),
		lastAt: bigint(row.last_at),
		message: toldOf(row, "message"),
		leaf: toldOf(row, "leaf"),
		toldAt: nullable(bigint, row.told_at),
	};
}

function toldOf(row: Row, column: "message" | "leaf"): Activity["leaf"] {
	const value = nullable(decoded, row[column]);
	return value === undefined ? undefined : { text: value, at: bigint(row[`${column}_at`]) };
}
