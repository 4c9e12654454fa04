import type { ConversationState } from "../conversation-state.ts";
import type { ConversationOrigin } from "../owners.ts";
import { originFrom, stateFrom } from "../rows.ts";
import { tableOf } from "../tables.ts";
import { type Row, text } from "../values.ts";
import { decodeText } from "./stored-text.ts";

/** Converts rows of the tables to the types that the rules of the store use. */

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

/** Returns whether a text can be the id of a stored conversation. */
export function isConversationId(id: string): boolean {
	return UUID.test(id);
}

/** Returns the decoded text of a column: see stored-text.ts. */
export function decoded(value: unknown): string {
	return decodeText(text(value));
}

/** SQL columns of `c` that {@link stateOf} reads. */
export const STATE_COLUMNS = Object.keys(tableOf("postgres", "heads").columns)
	.filter((name) => !["conversation_id", "source_id", "parent_id", "sender", "owner"].includes(name))
	.map((name) => `c.${name}`)
	.join();

/** Returns the state of a conversation; undefined when it has no record. */
export function stateOf(row: Row): ConversationState | undefined {
	return row.sequence === null ? undefined : stateFrom(row, decoded);
}

/** SQL columns that {@link knownOriginOf} reads, of `c` and `a`. */
export const ORIGIN_COLUMNS = "coalesce(c.sender, a.sender) AS sender, coalesce(c.owner, a.owner) AS owner";

/** Returns the origin of a conversation; undefined when it has neither a record nor an event. */
export function knownOriginOf(row: Row): ConversationOrigin | undefined {
	return row.sequence === null && row.event_count === null ? undefined : originFrom(row, decoded);
}
