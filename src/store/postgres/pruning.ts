import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { closeGap, removeOldGaps } from "../gaps.ts";
import type { AgeBounds, PrunableQuery, PruningEngine, RemovalBounds } from "../pruner.ts";
import type { LogTable } from "../sequence-log.ts";
import { bigint, boolean, nullable, text } from "../values.ts";
import { deriveConversations } from "../views/conversations.ts";
import { lockView } from "../views/follow.ts";
import { keepUsage, removeUnused } from "../views/usage.ts";
import type { Connections } from "./connections.ts";
import { lockConversations, tryLockHistory } from "./locks.ts";
import { postgresSession } from "./session.ts";
import { Sql } from "./sql.ts";
import { removeTextsQuery } from "./text-index.ts";
import type { Query, Session, Transaction } from "./transaction.ts";

/**
 * Returns what the pruner removes. Several processes may remove at the same time. Conversations are ordered by id.
 *
 * @param readOfView reads a view when it has everything that was accepted before
 */
export function pruningOf(
	connections: Connections,
	findDeleted: PruningEngine<string>["findDeleted"],
): PruningEngine<string> {
	return {
		maxRemoved: 50,
		firstReceivedSince: (log, time) => connections.read((session) => firstReceivedSince(session, log, time)),
		findDeleted,
		removeDeleted: (conversationId, bounds) =>
			connections.transaction((transaction) => removeDeleted(transaction, conversationId, bounds)),
		removeHistory: (query) => connections.transaction((transaction) => removeHistory(transaction, query)),
		removeEvents: (bounds) => connections.transaction((transaction) => removeEvents(transaction, bounds)),
	};
}

async function removeHistory(transaction: Transaction, query: PrunableQuery<string>) {
	const [locked] = await transaction.query(tryLockHistory);
	if (!boolean(locked?.[0]?.taken)) return undefined;
	const { updates, next } = await findPrunable(transaction, query);
	if (updates.length === 0) return { removed: 0, next };
	await transaction.query(lockConversations(updates.map(({ conversationId }) => conversationId)));
	// A row of a view may show an update that is not current any more.
	const session = postgresSession(transaction);
	await lockView(session, "conversations");
	const ids = [...new Set(updates.map(({ conversationId }) => conversationId))];
	await deriveConversations(session, ids);
	await keepUsage(session, ids);
	const sequences = updates.map(({ sequence }) => sequence);
	const where = `e.sequence = ANY ($1::bigint[]) AND NOT ${IS_CURRENT_OR_BASE}`;
	const [rows] = await transaction.commit(removeQuery("updates", where, [sequences]));
	return { removed: countOf(rows), next };
}

async function removeEvents(
	transaction: Transaction,
	{ below, receivedBefore, limit }: RemovalBounds,
): Promise<number> {
	const [rows = []] = await transaction.query({
		text: `
			SELECT conversation_id, sequence FROM conversation_updates.events
			WHERE sequence < $1 AND received_at < $2 ORDER BY sequence LIMIT $3
		`,
		values: [below, receivedBefore, limit],
	});
	if (rows.length === 0) return 0;
	const ids = [...new Set(rows.map(({ conversation_id }) => text(conversation_id)))];
	await transaction.query(lockConversations(ids));
	const session = postgresSession(transaction);
	await keepUsage(session, ids);
	const sequences = rows.map(({ sequence }) => bigint(sequence));
	const [removed, , gone = []] = await transaction.query(
		removeQuery("events", "e.sequence = ANY ($1::bigint[])", [sequences]),
		removeTextsQuery(sequences),
		// A conversation without a record consists of its events, so it goes with the last one.
		{
			text: `
				DELETE FROM conversation_updates.activities a WHERE a.conversation_id = ANY ($1::uuid[])
					AND NOT EXISTS (
						SELECT 1 FROM conversation_updates.events e WHERE e.conversation_id = a.conversation_id
					)
					AND NOT EXISTS (
						SELECT 1 FROM conversation_updates.heads c WHERE c.conversation_id = a.conversation_id
					)
				RETURNING conversation_id
			`,
			values: [ids],
		},
	);
	for (const { conversation_id } of gone)
		await closeGap(session, { conversationId: text(conversation_id), kind: "no_record", missing: "" });
	await removeOldGaps(session, ids, receivedBefore);
	await removeUnused(session, ids);
	return countOf(removed);
}

async function removeDeleted(transaction: Transaction, conversationId: string, bounds: RemovalBounds): Promise<number> {
	const { limit } = bounds;
	const [, states] = await transaction.query(lockConversations([conversationId]), deletedQuery(conversationId, bounds));
	const state = states?.[0];
	// Another process has removed the conversation, or it was posted again.
	if (state === undefined) return 0;
	const lastUpdates = [bigint(state.sequence), nullable(bigint, state.base_sequence) ?? bigint(state.sequence)];
	const session = postgresSession(transaction);
	await lockView(session, "conversations");
	await keepUsage(session, [conversationId]);
	let removed = await remove(transaction, removeNewest("updates", conversationId, lastUpdates, limit));
	const [events = []] = await transaction.query({
		text: `SELECT sequence FROM conversation_updates.events WHERE conversation_id = $1 ORDER BY sequence DESC LIMIT $2`,
		values: [conversationId, limit - removed],
	});
	const sequences = events.map(({ sequence }) => bigint(sequence));
	removed += await remove(transaction, removeQuery("events", "e.sequence = ANY ($1::bigint[])", [sequences]));
	await transaction.query(removeTextsQuery(sequences));
	if (removed >= limit) return removed;
	removed += await remove(transaction, removeQuery("updates", "e.sequence = ANY ($1::bigint[])", [lastUpdates]));
	const ofConversation = ["gaps", "children", "refused_posts", "search_titles"];
	const tables = ["activities", ...ofConversation, "heads"];
	await transaction.query(
		...tables.map((table) => ({
			text: `DELETE FROM conversation_updates.${table} WHERE conversation_id = $1`,
			values: [conversationId],
		})),
	);
	await removeUnused(session, [conversationId]);
	await deriveConversations(session, [conversationId]);
	return removed;
}

async function remove(session: Session, query: Query): Promise<number> {
	return countOf((await session.query(query))[0]);
}

function countOf(rows: readonly { readonly [column: string]: unknown }[] | undefined): number {
	return Number(bigint(rows?.[0]?.count));
}

/** Returns the query that removes the newest entries of a conversation, so that deltas are removed before their base. */
function removeNewest(log: LogTable, conversationId: string, kept: readonly bigint[], limit: number): Query {
	const where = `e.sequence IN (
		SELECT sequence FROM conversation_updates.${log}
		WHERE conversation_id = $1 AND NOT sequence = ANY ($2::bigint[]) ORDER BY sequence DESC LIMIT $3
	)`;
	return removeQuery(log, where, [conversationId, kept, limit]);
}

/** Counts for each endpoint the updates `gone` of which it has not been told. */
const COUNT_LOST = `, lost AS (
	UPDATE conversation_updates.endpoints e SET lost = e.lost + l.number FROM (
		SELECT n.id, count(*) AS number FROM conversation_updates.endpoints n JOIN gone g ON g.sequence > n.position
		WHERE n.owner = '' OR n.owner = (
			SELECT h.owner FROM conversation_updates.heads h WHERE h.conversation_id = g.conversation_id
		)
		GROUP BY n.id
	) l WHERE l.id = e.id
)`;

/**
 * Returns the query that removes entries `e` of a log, stores in `pruned` how far each conversation was pruned, and
 * returns the `count` of the entries.
 */
function removeQuery(log: LogTable, where: string, values: readonly unknown[]): Query {
	return {
		text: `
			WITH gone AS (
				DELETE FROM conversation_updates.${log} e WHERE ${where} RETURNING conversation_id, sequence
			), removal AS (
				UPDATE conversation_updates.removals
				SET last_removal = last_removal + 1,
					pruned_through = greatest(pruned_through, (SELECT max(sequence) FROM gone))
				WHERE log = '${log}' AND EXISTS (SELECT 1 FROM gone) RETURNING last_removal
			), remembered AS (
				INSERT INTO conversation_updates.pruned AS p (log, conversation_id, through, removal, owner)
				SELECT '${log}', g.conversation_id, max(g.sequence), r.last_removal, coalesce(
					(SELECT c.owner FROM conversation_updates.heads c WHERE c.conversation_id = g.conversation_id),
					(SELECT a.owner FROM conversation_updates.activities a WHERE a.conversation_id = g.conversation_id)
				)
				FROM gone g, removal r
				GROUP BY g.conversation_id, r.last_removal
				ON CONFLICT (log, conversation_id) DO UPDATE SET
					through = greatest(p.through, excluded.through), removal = excluded.removal, owner = excluded.owner
			)${log === "updates" ? COUNT_LOST : ""}
			SELECT count(*) AS count FROM gone
		`,
		values,
	};
}

const DELETING = ConversationExecutionStatus.DELETING;
/** Maximum number of conversations that one statement examines. */
const MAX_CONVERSATIONS = 1_000;

/** SQL test: update `e` is the base of another one, which needs it. */
const IS_BASE = `EXISTS (
	SELECT 1 FROM conversation_updates.updates d
	WHERE d.conversation_id = e.conversation_id AND d.base_sequence = e.sequence
)`;

/** SQL test: update `e` is the current one of its conversation, or the base of another one. */
const IS_CURRENT_OR_BASE = `(
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
function deletedQuery(conversationId: string, { below, receivedBefore }: AgeBounds): Query {
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
