import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import type { LogTable } from "../rows.ts";
import { bigint, text } from "../values.ts";
import { Sql } from "./sql.ts";
import type { Query, Session } from "./transaction.ts";

const DELETING = ConversationExecutionStatus.DELETING;
/** Conversations that one statement looks at. */
const MAX_CONVERSATIONS = 1_000;

/** SQL for whether update `e` is the base of another one, which needs it. */
const IS_BASE = "EXISTS (SELECT 1 FROM conversation_updates.updates d WHERE d.base_sequence = e.sequence)";

/** SQL for whether update `e` is its conversation's current one, or the base of another one. */
export const IS_CURRENT_OR_BASE = `(
	EXISTS (SELECT 1 FROM conversation_updates.conversations c WHERE c.sequence = e.sequence) OR ${IS_BASE}
)`;

/** What was received before a time and has a sequence below one. */
export interface AgeBounds {
	readonly below: bigint;
	/** Microseconds since the Unix epoch. */
	readonly receivedBefore: bigint;
}

/**
 * The first sequence of a log that was not received before a time (microseconds since the Unix epoch). It is found by
 * bisection, without an index on the time, because sequences are given in the order of receipt, but for the differences
 * between the clocks of the service's processes.
 */
export async function firstReceivedAfter(session: Session, log: LogTable, time: bigint): Promise<bigint> {
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

/**
 * The statement that gives the id, `sequence` and `base_sequence` of conversations whose deletion was received before a
 * time, oldest first, or of one of them.
 */
export function deletedQuery(bounds: AgeBounds & { readonly limit: number; readonly conversationId?: string }): Query {
	const { below, receivedBefore, limit, conversationId } = bounds;
	const sql = new Sql();
	const ofOne = conversationId === undefined ? "" : `AND c.conversation_id = ${sql.value(conversationId)}`;
	return sql.query(`
		SELECT c.conversation_id, u.sequence, u.base_sequence FROM conversation_updates.conversations c
		JOIN conversation_updates.updates u ON u.sequence = c.sequence
		WHERE c.status = ${DELETING} AND c.sequence < ${sql.value(below)} AND u.received_at < ${sql.value(receivedBefore)}
			${ofOne}
		ORDER BY c.sequence LIMIT ${sql.value(limit)}
	`);
}

/** Asks for history that a policy no longer keeps, conversation by conversation. */
export interface FindPrunableRequest extends AgeBounds {
	/** The conversation to begin with; undefined for the first one. */
	readonly from: string | undefined;
	/** Most updates to find. */
	readonly limit: number;
	readonly updatesPerConversation: number | undefined;
}

export interface Prunable {
	readonly updates: readonly { readonly conversationId: string; readonly sequence: bigint }[];
	/** The conversation to go on with; undefined after the last one. */
	readonly next: string | undefined;
}

/**
 * Finds history that is too old or too much. The base of deltas is found when they are gone. Conversations are looked at
 * one after the other until enough is found. The surplus is found once for each (OFFSET 0). No condition on the sequence
 * alone stands beside that on the time: the planner would look for it in the index of all sequences.
 */
export async function findPrunable(session: Session, request: FindPrunableRequest): Promise<Prunable> {
	const { from, limit, below, receivedBefore, updatesPerConversation } = request;
	const sql = new Sql();
	const [belowThis, before] = [sql.value(below), sql.value(receivedBefore)];
	const since = from === undefined ? "true" : `conversation_id >= ${sql.value(from)}`;
	const most = sql.value(limit);
	const [rows = []] = await session.query(
		sql.query(`
			WITH found AS MATERIALIZED (
				SELECT c.conversation_id, e.sequence
				FROM (
					SELECT conversation_id, sequence FROM conversation_updates.conversations
					WHERE ${since} ORDER BY conversation_id LIMIT ${MAX_CONVERSATIONS}
				) c
				CROSS JOIN LATERAL (SELECT ${surplus(updatesPerConversation)} AS surplus OFFSET 0) l
				JOIN conversation_updates.updates e
					ON e.conversation_id = c.conversation_id AND e.sequence < greatest(${belowThis}::bigint, l.surplus + 1)
				WHERE (e.sequence <= l.surplus OR e.received_at < ${before}) AND e.sequence <> c.sequence AND NOT ${IS_BASE}
				ORDER BY c.conversation_id, e.sequence LIMIT ${most}
			)
			SELECT conversation_id, sequence FROM found
			UNION ALL (
				SELECT conversation_id, NULL FROM conversation_updates.conversations
				WHERE ${since} AND (SELECT count(*) FROM found) < ${most}
				ORDER BY conversation_id LIMIT 1 OFFSET ${MAX_CONVERSATIONS}
			)
		`),
	);
	const updates = rows.flatMap(({ conversation_id, sequence }) =>
		sequence === null ? [] : [{ conversationId: text(conversation_id), sequence: bigint(sequence) }],
	);
	const following = rows.find(({ sequence }) => sequence === null);
	// A full answer may end inside a conversation, which is then looked at again.
	const next = updates.length === limit ? updates.at(-1)?.conversationId : following && text(following.conversation_id);
	return { updates, next };
}

/** SQL for the newest update of conversation `c` that is one too many beside those that are kept; 0 for none. */
function surplus(updatesPerConversation: number | undefined): string {
	if (updatesPerConversation === undefined) return "0::bigint";
	// The current update always stays, so one less of the others may.
	return `coalesce((
		SELECT s.sequence FROM conversation_updates.updates s
		WHERE s.conversation_id = c.conversation_id AND s.sequence <> c.sequence
		ORDER BY s.sequence DESC LIMIT 1 OFFSET ${Math.max(0, Math.trunc(updatesPerConversation) - 1)}
	), 0)`;
}
