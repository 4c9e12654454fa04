import type { Activity } from "../activity.ts";
import type { ConversationState } from "../conversation-state.ts";
import { activityFrom, stateFrom } from "../rows.ts";
import { type Row, text } from "../values.ts";

/** Rows of the tables as the rules of the store take them. */

/** A column of booleans. */
export function boolean(value: unknown): boolean {
	return value === 1n;
}

/** The state of a conversation, from its row. */
export function stateOf(row: Row): ConversationState {
	return stateFrom(row, text, boolean);
}

/** An activity, from its row. */
export function activityOf(row: Row): Activity {
	return activityFrom(row, text);
}
