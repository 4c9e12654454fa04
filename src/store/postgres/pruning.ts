import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { meetsNow } from "../erase.ts";
import { closeGap, removeOldGaps } from "../gaps.ts";
import type { Due, PrunableQuery, PruningEngine, RemovalBounds } from "../pruner.ts";
import type { LogTable } from "../sequence-log.ts";
import type { Store } from "../store.ts";
import { tableOf } from "../tables.ts";
import { bigint, boolean, nullable, type Row, text } from "../values.ts";
import { deriveConversations } from "../views/conversations.ts";
import { lockView } from "../views/follow.ts";
import { keepUsage, removeUnused } from "../views/usage.ts";
import type { Connections } from "./connections.ts";
import { lockConversations, tryLockHistory } from "./locks.ts";
import { postgresSession } from "./session.ts";
import { insertValues, onConflict, Sql } from "./sql.ts";
import { removeTextsQuery } from "./text-index.ts";
import type { Query, Session, Transaction } from "./transaction.ts";

/**
 * Returns what the pruner removes. Several processes may remove at the same time. Conversations are ordered by id.
 *
 * @param views read a view when it has everything that was accepted before
 */
export function pruningOf(
	connections: Connections,
	views: Pick<PruningEngine<string>, "findDeleted"> & Pick<Store, "listConversations">,
): PruningEngine<string> {
	return {
		maxRemoved: 50,
		firstReceivedSince: (log, time) => connections.read((session) => firstReceivedSince(session, log, time)),
		findDeleted: views.findDeleted,
		async findMeeting(conditions, limit) {
			const found = await views.listConversations({ conditions, limit, withRecords: false });
			return found.map(({ conversationId }) => conversationId);
		},
		removeConversation: (conversationId, due, limit) =>
			connections.transaction((transaction) => removeConversation(transaction, conversationId, due, limit)),
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
	return { removed: await removeEntries(transaction, "updates", where, [sequences]), next };
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
	const removed = await removeEntries(transaction, "events", "e.sequence = ANY ($1::bigint[])", [sequences]);
	const [, gone = []] = await transaction.query(
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
	return removed;
}

async function removeConversation(
	transaction: Transaction,
	conversationId: string,
	due: Due,
	limit: number,
): Promise<number> {
	const [, states] = await transaction.query(lockConversations([conversationId]), dueQuery(conversationId, due));
	const state = states?.[0];
	// Another process has removed the conversation, or it was posted again.
	if (state === undefined) return 0;
	const lastUpdates = [bigint(state.sequence), nullable(bigint, state.base_sequence) ?? bigint(state.sequence)];
	const session = postgresSession(transaction);
	await lockView(session, "conversations");
	if ("meets" in due && !(await meetsNow(session, conversationId, due.meets))) return 0;
	await keepUsage(session, [conversationId]);
	let removed = await removeNewest(transaction, "updates", conversationId, lastUpdates, limit);
	const [events = []] = await transaction.query({
		text: `SELECT sequence FROM conversation_updates.events WHERE conversation_id = $1 ORDER BY sequence DESC LIMIT $2`,
		values: [conversationId, limit - removed],
	});
	const sequences = events.map(({ sequence }) => bigint(sequence));
	removed += await removeEntries(transaction, "events", "e.sequence = ANY ($1::bigint[])", [sequences]);
	await transaction.query(removeTextsQuery(sequences));
	if (removed >= limit) return removed;
	removed += await removeEntries(transaction, "updates", "e.sequence = ANY ($1::bigint[])", [lastUpdates]);
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

/** Removes the newest entries of a conversation, so that deltas are removed before their base. */
async function removeNewest(
	session: Session,
	log: LogTable,
	conversationId: string,
	kept: readonly bigint[],
	limit: number,
): Promise<number> {
	const where = `e.conversation_id = $1 AND e.sequence IN (
		SELECT sequence FROM conversation_updates.${log}
		WHERE conversation_id = $1 AND NOT sequence = ANY ($2::bigint[]) ORDER BY sequence DESC LIMIT $3
	)`;
	return await removeEntries(session, log, where, [conversationId, kept, limit]);
}

/**
 * Removes entries `e` of a log, and stores in `pruned` how far each conversation was pruned.
 *
 * @returns the number of the entries
 */
async function removeEntries(
	session: Session,
	log: LogTable,
	where: string,
	values: readonly unknown[],
): Promise<number> {
	const [gone = []] = await session.query({
		text: `DELETE FROM conversation_updates.${log} e WHERE ${where} RETURNING conversation_id, sequence`,
		values,
	});
	if (gone.length === 0) return 0;
	const entries = gone.map((row) => ({ id: text(row.conversation_id), sequence: bigint(row.sequence) }));
	const through = new Map<string, bigint>();
	for (const { id, sequence } of entries) through.set(id, max(through.get(id) ?? 0n, sequence));
	const ids = [...through.keys()];
	const [heads = [], activities = [], endpoints = []] = await session.query(
		...["heads", "activities"].map((table) => ({
			text: `SELECT conversation_id, owner FROM conversation_updates.${table} WHERE conversation_id = ANY ($1::uuid[])`,
			values: [ids],
		})),
		...(log === "updates" ? [{ text: "SELECT id, owner, position FROM conversation_updates.endpoints" }] : []),
	);
	const headOwners = ownersOf(heads);
	const owners = new Map([...ownersOf(activities), ...headOwners]);
	// It locks the row of `removals`.
	const [[removal] = []] = await session.query({
		text: `
			UPDATE conversation_updates.removals
			SET last_removal = last_removal + 1, pruned_through = greatest(pruned_through, $2)
			WHERE log = $1 RETURNING last_removal
		`,
		values: [log, [...through.values()].reduce(max)],
	});
	const rows = [...through].map(([conversation_id, last]) => {
		const owner = owners.get(conversation_id) ?? null;
		return { log, conversation_id, through: last, removal: bigint(removal?.last_removal), owner };
	});
	await session.query(...insertValues(PRUNED, rows, PRUNED_FURTHER));
	for (const { id, owner, position } of endpoints) {
		// An endpoint has not been told of these updates.
		const isLost = ({ id: of, sequence }: (typeof entries)[number]) =>
			sequence > bigint(position) && (owner === "" || owner === headOwners.get(of));
		const lost = entries.filter(isLost).length;
		if (lost === 0) continue;
		const query = "UPDATE conversation_updates.endpoints SET lost = lost + $2 WHERE id = $1";
		await session.query({ text: query, values: [id, lost] });
	}
	return entries.length;
}

const PRUNED = tableOf("postgres", "pruned");
const PRUNED_FURTHER = onConflict(
	PRUNED,
	"UPDATE SET through = greatest(t.through, excluded.through), removal = excluded.removal, owner = excluded.owner",
);

/** Returns the owners of conversations in their stored form. One without an owner is left out. */
function ownersOf(rows: readonly Row[]): Map<string, string> {
	return new Map(rows.flatMap((row) => (row.owner === null ? [] : [[text(row.conversation_id), text(row.owner)]])));
}

function max(one: bigint, other: bigint): bigint {
	return one > other ? one : other;
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
	const [[newest] = []] = await session.query({
		text: `SELECT coalesce(max(sequence), 0) AS sequence FROM conversation_updates.${log}`,
	});
	let [low, high] = [1n, bigint(newest?.sequence) + 1n];
	while (low < high) {
		const middle = (low + high) / 2n;
		const [[at] = []] = await session.query({
			name: `received_${log}`,
			text: `
				SELECT sequence, received_at FROM conversation_updates.${log}
				WHERE sequence >= $1 ORDER BY sequence LIMIT 1
			`,
			values: [middle],
		});
		if (at !== undefined && bigint(at.received_at) < time) low = bigint(at.sequence) + 1n;
		else high = middle;
	}
	return low;
}

/**
 * Returns the query for `sequence` and `base_sequence` of a conversation; of one to be removed for its deletion only if that
 * is within the bounds.
 */
function dueQuery(conversationId: string, due: Due): Query {
	const isOld = `AND c.status = ${DELETING} AND c.sequence < $2 AND u.received_at < $3`;
	return {
		text: `
			SELECT u.sequence, u.base_sequence FROM conversation_updates.heads c
			JOIN conversation_updates.updates u ON u.conversation_id = c.conversation_id AND u.sequence = c.sequence
			WHERE c.conversation_id = $1 ${"deletion" in due ? isOld : ""}
		`,
		values: [conversationId, ...("deletion" in due ? [due.deletion.below, due.deletion.receivedBefore] : [])],
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
	if (await session.isDistributed()) return await findPrunableSpread(session, query);
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

/** Does what {@link findPrunable} says with Citus, which has no subqueries that depend on a row and end at a limit. */
async function findPrunableSpread(session: Session, query: PrunableQuery<string>): Promise<Prunable> {
	const { from, limit, below, receivedBefore, updatesPerConversation } = query;
	const [heads = []] = await session.query({
		text: `
			SELECT conversation_id FROM conversation_updates.heads WHERE $1::uuid IS NULL OR conversation_id >= $1
			ORDER BY conversation_id LIMIT ${MAX_CONVERSATIONS + 1}
		`,
		values: [from ?? null],
	});
	const ids = heads.map(({ conversation_id }) => text(conversation_id));
	// The current update always stays, so one fewer of the other updates is kept.
	const kept = Math.max(0, Math.trunc(updatesPerConversation ?? Number.MAX_SAFE_INTEGER) - 1);
	const [rows = []] = await session.query({
		text: `
			SELECT e.conversation_id, e.sequence FROM (
				SELECT u.conversation_id, u.sequence, u.received_at,
					row_number() OVER (PARTITION BY u.conversation_id ORDER BY u.sequence DESC) AS number
				FROM conversation_updates.updates u
				JOIN conversation_updates.heads c ON c.conversation_id = u.conversation_id
				WHERE u.conversation_id = ANY ($1::uuid[]) AND u.sequence <> c.sequence
			) e
			WHERE (e.number > $2 OR (e.sequence < $3 AND e.received_at < $4)) AND NOT ${IS_BASE}
			ORDER BY e.conversation_id, e.sequence LIMIT $5
		`,
		values: [ids.slice(0, MAX_CONVERSATIONS), kept, below, receivedBefore, limit],
	});
	const updates = rows.map((row) => ({ conversationId: text(row.conversation_id), sequence: bigint(row.sequence) }));
	return { updates, next: updates.length === limit ? updates.at(-1)?.conversationId : ids[MAX_CONVERSATIONS] };
}
