import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import type { AgeBounds, PrunableQuery } from "../pruner.ts";
import type { LogTable } from "../sequence-log.ts";

import { bigint, text } from "../values.ts";
import { Sql } from "./sql.ts";
import type { Query, Session } from "./transaction.ts";

const DELETING = ConversationExecutionStatus.DELETING;
/** Maximum number of conversations that one statement examines. */
const MAX_CONVERSATIONS = 1_000;

/** SQL test: update `e` is the base of another one, which needs it. */
const IS_BASE = `EXISTS (
	SELECT 1 FROM conversation_updates.updates d
	WHERE d.conversation_id = e.conversation_id AND d.base_sequence = e.sequence
)`;

/** SQL test: update `e` is the current one of its conversation, or the base of another one. */
export const IS_CURRENT_OR_BASE = `(
	EXISTS (
		SELECT 1 FROM conversation_updates.heads c WHERE c.conversation_id = e.conversation_id AND c.sequence = e.sequence
	) OR ${IS_BASE}
)`;

/**
 * Returns the first sequence of a log that was not received before a time (microseconds since the Unix epoch). Uses
 * bisection, which needs no index on the time: sequences are assigned in the order of receipt, apart from differences
 * between the clocks of the service's processes.
 */
export async function firstReceivedSince(session: Session, log: LogTable, time: bigint): Promise<bigint> {
	const [[row] = []] = await session.query({
		text: `
			WITH RECURSIVE search (low, high) AS (
				SELECT 1::bigint, (SELECT coalesce(max(sequence), 0) FROM conversation_updates.${log}) + 1
				UNION ALL
				SELECT CASE WHEN at.received_at < $1 THEN at.sequence + 1 ELSE s.low END,
					CASE WHEN at.received_at < $1 THEN s.high ELSE (s.low + s.high) / 2 END
				FROM search s LEFT JOIN LATERAL (
					SELECT e.sequence, e.received_at FROM conversation_updates.${log} e
					WHERE e.sequence >= (s.low + s.high) / 2 ORDER BY e.sequence LIMIT 1
				) at ON true
				WHERE s.low < s.high
			)
			SELECT max(low) AS first FROM search
		`,
		values: [time],
	});
	return bigint(row?.first);
}

/** Returns the query for `sequence` and `base_sequence` of a conversation if its deletion is within the bounds. */
export function deletedQuery(conversationId: string, { below, receivedBefore }: AgeBounds): Query {
	return {
		text: `
			SELECT u.sequence, u.base_sequence FROM conversation_updates.heads c
			JOIN conversation_updates.updates u ON u.conversation_id = c.conversation_id AND u.sequence = c.sequence
			WHERE c.conversation_id = $1 AND c.status = ${DELETING} AND c.sequence < $2 AND u.received_at < $3
		`,
		values: [conversationId, below, receivedBefore],
	};
}

export interface Prunable {
	readonly updates: readonly { readonly conversationId: string; readonly sequence: bigint }[];
	/** Id of the conversation to go on with; undefined after the last one. */
	readonly next: string | undefined;
}

/**
 * Finds updates that are too old, or more than a conversation may keep. The base of deltas is found only after its deltas
 * are removed. Examines one conversation after the other until enough updates are found.
 *
 * `OFFSET 0` makes the planner compute the surplus once for each conversation. There is no condition on the sequence alone
 * beside that on the time, because the planner would evaluate it with the index of all sequences.
 */
export async function findPrunable(session: Session, query: PrunableQuery<string>): Promise<Prunable> {
	const { from, limit, below, receivedBefore, updatesPerConversation } = query;
	const sql = new Sql();
	const [belowThis, before] = [sql.value(below), sql.value(receivedBefore)];
	const fromHere = from === undefined ? "true" : `conversation_id >= ${sql.value(from)}`;
	const maximum = sql.value(limit);
	const [rows = []] = await session.query(
		sql.query(`
			WITH found AS MATERIALIZED (
				SELECT c.conversation_id, e.sequence
				FROM (
					SELECT conversation_id, sequence FROM conversation_updates.heads
					WHERE ${fromHere} ORDER BY conversation_id LIMIT ${MAX_CONVERSATIONS}
				) c
				CROSS JOIN LATERAL (SELECT ${surplus(updatesPerConversation)} AS surplus OFFSET 0) l
				JOIN conversation_updates.updates e
					ON e.conversation_id = c.conversation_id AND e.sequence < greatest(${belowThis}::bigint, l.surplus + 1)
				WHERE (e.sequence <= l.surplus OR e.received_at < ${before}) AND e.sequence <> c.sequence AND NOT ${IS_BASE}
				ORDER BY c.conversation_id, e.sequence LIMIT ${maximum}
			)
			SELECT conversation_id, sequence FROM found
			UNION ALL (
				SELECT conversation_id, NULL FROM conversation_updates.heads
				WHERE ${fromHere} AND (SELECT count(*) FROM found) < ${maximum}
				ORDER BY conversation_id LIMIT 1 OFFSET ${MAX_CONVERSATIONS}
			)
		`),
	);
	const updates = rows.flatMap(({ conversation_id, sequence }) =>
		sequence === null ? [] : [{ conversationId: text(conversation_id), sequence: bigint(sequence) }],
	);
	const following = rows.find(({ sequence }) => sequence === null);
	// A full result may end within a conversation, which is then examined again.
	const next = updates.length === limit ? updates.at(-1)?.conversationId : following && text(following.conversation_id);
	return { updates, next };
}

/** Returns the SQL for the newest sequence of conversation `c` that exceeds the number to keep; 0 for none. */
function surplus(updatesPerConversation: number | undefined): string {
	if (updatesPerConversation === undefined) return "0::bigint";
	// The current update always stays, so one fewer of the other updates is kept.
	return `coalesce((
		SELECT s.sequence FROM conversation_updates.updates s
		WHERE s.conversation_id = c.conversation_id AND s.sequence <> c.sequence
		ORDER BY s.sequence DESC LIMIT 1 OFFSET ${Math.max(0, Math.trunc(updatesPerConversation) - 1)}
	), 0)`;
}
