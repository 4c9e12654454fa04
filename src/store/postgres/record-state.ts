import type { RecordState } from "../event-batch.ts";
import type { ConversationOrigin } from "../owners.ts";
import { originFrom, recordStateFrom, stateWithoutRecord } from "../rows.ts";
import { bigint, text } from "../values.ts";
import { RECORD_COLUMNS } from "./records.ts";
import { ACTIVITY_COLUMNS, decoded, isConversationId } from "./rows.ts";
import { encodeKey } from "./stored-text.ts";
import type { Session } from "./transaction.ts";
import { currentUpdateOf, FROM_CURRENT, UPDATE_COLUMNS } from "./updates.ts";

/** Returns the state from which the next version that events make is computed, and which of some event ids are stored. */
export async function getRecordState(
	session: Session,
	conversationId: string,
	eventIds: readonly string[],
): Promise<RecordState> {
	if (!isConversationId(conversationId)) return { ...stateWithoutRecord(undefined), current: undefined, knownIds: [] };
	const [[row] = [], [activity] = [], events = []] = await session.query(
		{
			text: `
				SELECT ${UPDATE_COLUMNS}, ${RECORD_COLUMNS}, ${ACTIVITY_COLUMNS},
					c.status, c.revision, c.member_times, c.posted_at, c.has_unapplied_events
				${FROM_CURRENT} WHERE c.conversation_id = $1
			`,
			values: [conversationId],
		},
		{
			text: "SELECT event_count FROM conversation_updates.activities WHERE conversation_id = $1",
			values: [conversationId],
		},
		{
			text: "SELECT event_id FROM conversation_updates.events WHERE conversation_id = $1 AND event_id = ANY ($2::text[])",
			values: [conversationId, eventIds.map(encodeKey)],
		},
	);
	const known = new Set(events.map(({ event_id }) => text(event_id)));
	return {
		...(row === undefined
			? stateWithoutRecord(activity && { eventCount: bigint(activity.event_count) })
			: recordStateFrom(row, decoded)),
		current: row && currentUpdateOf(row),
		knownIds: eventIds.filter((id) => known.has(encodeKey(id))),
	};
}

/** Lists conversations whose current record may lack changes that stored events describe. */
export async function listUnapplied(session: Session, limit: number): Promise<readonly string[]> {
	const [rows = []] = await session.query({
		text: "SELECT conversation_id FROM conversation_updates.heads WHERE has_unapplied_events LIMIT $1",
		values: [limit],
	});
	return rows.map(({ conversation_id }) => text(conversation_id));
}

/** Returns who posted a conversation first, and its owner; undefined when nothing of it is stored. */
export async function getOrigin(session: Session, conversationId: string): Promise<ConversationOrigin | undefined> {
	if (!isConversationId(conversationId)) return undefined;
	const [[row] = []] = await session.query({
		text: `
			SELECT sender, owner FROM conversation_updates.heads WHERE conversation_id = $1
			UNION ALL SELECT sender, owner FROM conversation_updates.activities WHERE conversation_id = $1 LIMIT 1
		`,
		values: [conversationId],
	});
	return row && originFrom(row, decoded);
}
