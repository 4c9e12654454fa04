import type { RecordState } from "../event-batch.ts";
import type { ConversationOrigin } from "../owners.ts";
import { originFrom, recordStateFrom, stateWithoutRecord } from "../rows.ts";
import { text } from "../values.ts";
import { findActivity } from "./activities.ts";
import type { RecordStateRequest } from "./calls.ts";
import type { Statements } from "./statements.ts";
import { getUpdate } from "./updates.ts";

/** Returns the state from which the next version that events make is computed. */
export function getRecordState(statements: Statements, { conversationId, eventIds }: RecordStateRequest): RecordState {
	const row = statements
		.prepare("SELECT revision, member_times, posted_at, has_unapplied_events FROM heads WHERE conversation_id = ?")
		.get(conversationId);
	const isKnown = statements.prepare(`
		SELECT 1 FROM activities a JOIN events e ON e.activity = a.id WHERE a.conversation_id = ? AND e.event_id = ?
	`);
	return {
		...(row === undefined ? stateWithoutRecord(findActivity(statements, conversationId)) : recordStateFrom(row, text)),
		current: getUpdate(statements, { conversationId, asOf: undefined, owner: undefined }),
		knownIds: eventIds.filter((id) => isKnown.get(conversationId, id) !== undefined),
	};
}

/** Returns the ids of at most `limit` conversations whose record may lack changes that stored events make. */
export function listUnapplied(statements: Statements, limit: number): readonly string[] {
	const rows = statements
		.prepare("SELECT conversation_id FROM heads INDEXED BY heads_unapplied WHERE has_unapplied_events = TRUE LIMIT ?")
		.all(limit);
	return rows.map(({ conversation_id }) => text(conversation_id));
}

/** Returns who posted a conversation first, and its owner; undefined when nothing of it is stored. */
export function getOrigin(statements: Statements, conversationId: string): ConversationOrigin | undefined {
	const row = statements.prepare("SELECT sender, owner FROM heads WHERE conversation_id = ?").get(conversationId);
	return row === undefined ? findActivity(statements, conversationId)?.origin : originFrom(row, text);
}
