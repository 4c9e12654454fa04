import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import type { Condition } from "./condition.ts";
import {
	type ConversationQuery,
	listConversations,
	meetingQuery,
	type StoredConversation,
} from "./conversation-lists.ts";
import type { StoredEvent } from "./entries.ts";
import { closeGap, removeOldGaps } from "./gaps.ts";
import { isOfRow } from "./rows.ts";
import { deriveScoreValues } from "./scores.ts";
import type { LogTable } from "./sequence-log.ts";
import type { Calls, Columns, Session } from "./session.ts";
import { removeRows } from "./typed-rows.ts";
import { bigint, bindable, max, nullable, type Row, text } from "./values.ts";
import { deriveConversations } from "./views/conversations.ts";
import { lockView } from "./views/follow.ts";
import { keepUsage, removeUnused } from "./views/usage.ts";

/** What retention removes: see {@link prunerOf}. Of each conversation is stored how far it was pruned. */

/**
 * Returns a sequence such that the events below it were received before a time (microseconds since the Unix epoch), and the
 * others at that time or later. Uses bisection, which needs no index on the time: sequences are assigned in the order of
 * receipt, apart from differences between the clocks of the service's processes.
 */
async function firstEventSince({ all, dialect: { schema } }: Session, time: bigint): Promise<bigint> {
	const [newest] = await all(`SELECT coalesce(max(sequence), 0) AS sequence FROM ${schema}events`);
	let [low, high] = [1n, bigint(newest?.sequence) + 1n];
	while (low < high) {
		const middle = (low + high) / 2n;
		const [at] = await all(
			`SELECT sequence, received_at FROM ${schema}events WHERE sequence >= ? ORDER BY sequence LIMIT 1`,
			middle,
		);
		if (at !== undefined && bigint(at.received_at) < time) low = bigint(at.sequence) + 1n;
		else high = middle;
	}
	return low;
}

/** SQL for whether the deletion of a conversation `c` with the current update `u` was received before a time. */
const IS_DELETED = `c.status = ${ConversationExecutionStatus.DELETING} AND u.received_at < ?`;

/** Returns the ids of conversations whose deletion was received before a time, oldest first. */
export async function findDeleted(
	{ all, dialect: { schema } }: Session,
	{ before, limit }: { readonly before: bigint; readonly limit: number },
): Promise<string[]> {
	const rows = await all(
		`SELECT c.conversation_id FROM ${schema}conversations c JOIN ${schema}updates u ON ${isOfRow("u", "c")}
		WHERE ${IS_DELETED} ORDER BY c.sequence LIMIT ?`,
		before,
		limit,
	);
	return rows.map(({ conversation_id }) => text(conversation_id));
}

/** Maximum number of conversations that one search examines, so that other reads do not wait long. */
const MAX_CONVERSATIONS = 1_000;

/**
 * Finds updates that are too old, or more than a conversation may keep. Examines one conversation after the other until
 * enough updates are found. The base of deltas is found only after its deltas are removed.
 *
 * @param query begins with the conversation `from`, in the order of the ids; undefined for the first of all
 */
async function findPrunable(
	{ all, isIn, dialect: { schema } }: Session,
	query: PrunePolicy & { readonly from: string | undefined },
): Promise<PrunableUpdates> {
	const { from = FIRST_ID, limit, receivedBefore = NEVER, updatesPerConversation = Number.MAX_SAFE_INTEGER } = query;
	const heads = await all(
		`SELECT conversation_id FROM ${schema}heads WHERE conversation_id >= ? ORDER BY conversation_id
		LIMIT ${MAX_CONVERSATIONS + 1}`,
		from,
	);
	const ids = heads.map(({ conversation_id }) => text(conversation_id));
	const rows = await all(
		`SELECT e.conversation_id, e.sequence FROM (
			SELECT u.conversation_id, u.sequence, u.received_at,
				row_number() OVER (PARTITION BY u.conversation_id ORDER BY u.sequence DESC) AS number
			FROM ${schema}updates u JOIN ${schema}heads c ON c.conversation_id = u.conversation_id
			WHERE ${isIn("u.conversation_id")} AND u.sequence <> c.sequence
		) e
		WHERE (e.number > ? OR e.received_at < ?) AND NOT ${isBase(schema, "e")}
		ORDER BY e.conversation_id, e.sequence LIMIT ?`,
		ids.slice(0, MAX_CONVERSATIONS),
		// The current one is kept beside these.
		Math.max(0, Math.trunc(updatesPerConversation) - 1),
		bindable(receivedBefore),
		limit,
	);
	const updates = rows.map((row) => ({ conversationId: text(row.conversation_id), sequence: bigint(row.sequence) }));
	// A full result may end within a conversation, which is then examined again.
	return { updates, next: rows.length === limit ? updates.at(-1)?.conversationId : ids[MAX_CONVERSATIONS] };
}

/** Nothing was received before this time. */
const NEVER = -(2n ** 62n);
/** No conversation has a smaller id. */
const FIRST_ID = "00000000-0000-0000-0000-000000000000";

/** Returns SQL for whether an update is the base of another one, which needs it. */
function isBase(schema: string, update: string): string {
	return `EXISTS (
		SELECT 1 FROM ${schema}updates d
		WHERE d.conversation_id = ${update}.conversation_id AND d.base_sequence = ${update}.sequence
	)`;
}

/** Removes updates, except those that are current or the base of another one. Returns how many it removed. */
async function removeUpdates(session: Session, { updates }: Pick<PrunableUpdates, "updates">): Promise<number> {
	const ids = [...new Set(updates.map(({ conversationId }) => conversationId))];
	await session.lock(ids);
	// A row of the view may show an update that is not current any more.
	await lockView(session, "conversations");
	await deriveConversations(session, ids);
	await keepUsage(session, ids);
	const { all, isAmong, dialect } = session;
	const { schema, join } = dialect;
	const rows = await all(
		`SELECT e.conversation_id, e.sequence
		FROM ${schema}updates e ${join} ${schema}heads h ON h.conversation_id = e.conversation_id
		WHERE ${isAmong("e.sequence")} AND h.sequence <> e.sequence AND NOT ${isBase(schema, "e")}`,
		updates.map(({ sequence }) => sequence),
	);
	return await removeEntries(session, "updates", rows);
}

/**
 * Removes the first events that were received before a time, and the activity of a conversation without a record with its last
 * event. Returns how many events it removed.
 */
async function removeEvents(
	session: Session,
	{ receivedBefore, limit }: { readonly receivedBefore: bigint; readonly limit: number },
): Promise<number> {
	const below = await firstEventSince(session, receivedBefore);
	const { all, isIn, dialect } = session;
	const { schema } = dialect;
	const rows = await all(
		`SELECT e.conversation_id, e.sequence FROM ${schema}events e
		WHERE e.sequence < ? AND e.received_at < ? ORDER BY e.sequence LIMIT ?`,
		below,
		receivedBefore,
		limit,
	);
	if (rows.length === 0) return 0;
	const ids = [...new Set(rows.map(({ conversation_id }) => text(conversation_id)))];
	await session.lock(ids);
	await lockView(session, "conversations");
	await keepUsage(session, ids);
	const removed = await removeEntries(session, "events", rows);
	const gone = await all(
		`DELETE FROM ${schema}activities AS a WHERE ${isIn("a.conversation_id")}
			AND NOT EXISTS (SELECT 1 FROM ${schema}events e WHERE e.conversation_id = a.conversation_id)
			AND NOT EXISTS (SELECT 1 FROM ${schema}heads c WHERE c.conversation_id = a.conversation_id)
		RETURNING conversation_id`,
		ids,
	);
	for (const { conversation_id } of gone) {
		const conversationId = text(conversation_id);
		await removeRows(session, "scores", { conversationId });
		await deriveScoreValues(session, [conversationId]);
		await closeGap(session, { conversationId, kind: "no_record", missing: "" });
	}
	await removeOldGaps(session, ids, receivedBefore);
	await removeUnused(session, ids);
	return removed;
}

/**
 * Removes at most `limit` entries of a conversation if it is still due: its history and its events, then its current update
 * with the base of that, which may exceed the limit by one, and the conversation itself.
 *
 * @returns the number of removed entries
 */
async function removeConversation(
	session: Session,
	{ conversationId, due, limit }: { readonly conversationId: string; readonly due: Due; readonly limit: number },
): Promise<number> {
	const { all, dialect } = session;
	await session.lock([conversationId]);
	const last = await lastUpdates(session, conversationId, due);
	if (last === undefined) return 0;
	await lockView(session, "conversations");
	if ("meets" in due && !(await meetsNow(session, conversationId, due.meets))) return 0;
	await keepUsage(session, [conversationId]);
	let removed = 0;
	// Newest first, so that deltas are removed before their base.
	for (const log of ["updates", "events"] as const) {
		const others = log === "updates" ? `AND sequence NOT IN (${last.join()})` : "";
		const rows = await all(
			`SELECT conversation_id, sequence FROM ${dialect.schema}${log} WHERE conversation_id = ? ${others}
			ORDER BY sequence DESC LIMIT ?`,
			conversationId,
			limit - removed,
		);
		removed += await removeEntries(session, log, rows);
	}
	if (removed >= limit) return removed;
	const rows = last.map((sequence) => ({ conversation_id: conversationId, sequence }));
	removed += await removeEntries(session, "updates", rows);
	for (const table of ["activities", "gaps", "children", "refused_posts", "heads", "scores"])
		await all(`DELETE FROM ${dialect.schema}${table} WHERE conversation_id = ?`, conversationId);
	await removeUnused(session, [conversationId]);
	await deriveConversations(session, [conversationId]);
	return removed;
}

/**
 * Returns the sequences of the current update of a conversation and of its base; undefined if there is no such conversation,
 * or it is to be removed for its deletion and that is too new, or none.
 */
async function lastUpdates(
	{ all, dialect: { schema } }: Session,
	conversationId: string,
	due: Due,
): Promise<bigint[] | undefined> {
	const [test, values] = "deletedBefore" in due ? [`AND ${IS_DELETED}`, [due.deletedBefore]] : ["", []];
	const [row] = await all(
		`SELECT u.sequence, u.base_sequence FROM ${schema}heads c JOIN ${schema}updates u ON ${isOfRow("u", "c")}
		WHERE c.conversation_id = ? ${test}`,
		conversationId,
		...values,
	);
	return row && [row.sequence, row.base_sequence].flatMap((sequence) => nullable(bigint, sequence) ?? []);
}

/** Returns whether a conversation meets conditions now. The caller has locked it and the view of conversations. */
export async function meetsNow(
	session: Session,
	conversationId: string,
	conditions: readonly Condition[],
): Promise<boolean> {
	await deriveConversations(session, [conversationId]);
	return (await listConversations(session, meetingQuery(conversationId, conditions))).length > 0;
}

/** Removes all entries of a conversation, without a trace of that. */
export async function removeEntriesOf(session: Session, conversationId: string): Promise<void> {
	const { all, dialect } = session;
	for (const log of ["events", "updates"] as const) {
		const entries = `SELECT conversation_id, sequence FROM ${dialect.schema}${log} WHERE conversation_id = ?`;
		await removeFromLog(session, log, await all(entries, conversationId));
	}
}

/** An entry that was removed. It has the owner of its conversation. */
type RemovedEntry = Pick<StoredEvent, "conversationId" | "sequence" | "owner">;

/**
 * Removes entries of a log with their words in the index of search. Their sequences are not used again.
 *
 * @param rows with the columns `conversation_id` and `sequence`
 * @returns those that existed, in the order of their sequences
 */
async function removeFromLog(
	{ all, isIn, isAmong, removeWordsOf, dialect: { schema } }: Session,
	log: LogTable,
	rows: readonly Row[],
): Promise<RemovedEntry[]> {
	if (rows.length === 0) return [];
	const sequences = rows.map(({ sequence }) => bigint(sequence));
	const gone = await all(
		`DELETE FROM ${schema}${log} WHERE ${isIn("conversation_id")} AND ${isAmong("sequence")}
		RETURNING conversation_id, sequence, owner`,
		[...new Set(rows.map(({ conversation_id }) => text(conversation_id)))],
		sequences,
	);
	// After the events: a step of the index that waits for them finds them gone.
	if (log === "events") await removeWordsOf(sequences);
	const column = log === "updates" ? "newest_update" : "newest_event";
	const last = sequences.reduce(max);
	await all(`UPDATE ${schema}state SET ${column} = ? WHERE ${column} < ?`, last, last);
	return gone
		.map((row) => ({
			conversationId: text(row.conversation_id),
			sequence: bigint(row.sequence),
			owner: nullable(text, row.owner),
		}))
		.sort((one, other) => (one.sequence < other.sequence ? -1 : 1));
}

/**
 * Removes entries of a log with the scores of events, and stores in `pruned` how far each conversation was pruned. The view of
 * conversations is locked.
 *
 * @param rows as of {@link removeFromLog}
 * @returns the number of those that existed
 */
async function removeEntries(session: Session, log: LogTable, rows: readonly Row[]): Promise<number> {
	const { schema, greatest } = session.dialect;
	if (log === "events") {
		const events = `SELECT conversation_id, event_id FROM ${schema}events WHERE ${session.isAmong("sequence")}`;
		const scored = await session.all(
			`DELETE FROM ${schema}scores WHERE (conversation_id, event_id) IN (${events}) RETURNING conversation_id`,
			rows.map(({ sequence }) => bigint(sequence)),
		);
		await deriveScoreValues(session, [...new Set(scored.map(({ conversation_id }) => text(conversation_id)))]);
	}
	const gone = await removeFromLog(session, log, rows);
	const last = gone.at(-1);
	if (last === undefined) return 0;
	const [removal] = await session.all(
		`UPDATE ${schema}removals
		SET last_removal = last_removal + 1, pruned_through = ${greatest}(pruned_through, ?)
		WHERE log = ? RETURNING last_removal`,
		last.sequence,
		log,
	);
	const pruned = new Map<string, Columns>();
	for (const { conversationId, sequence, owner = null } of gone)
		pruned.set(conversationId, {
			log,
			conversation_id: conversationId,
			through: sequence,
			removal: bigint(removal?.last_removal),
			owner,
		});
	const further = `through = ${greatest}(t.through, excluded.through), removal = excluded.removal, owner = excluded.owner`;
	await session.insert("pruned", [...pruned.values()], `UPDATE SET ${further}`);
	if (log === "updates") await countLost(session, gone);
	return gone.length;
}

/** Counts updates of which endpoints have not been told. */
async function countLost({ all, dialect: { schema } }: Session, updates: readonly RemovedEntry[]): Promise<void> {
	for (const row of await all(`SELECT id, owner, position FROM ${schema}endpoints`)) {
		const [owner, position] = [text(row.owner), bigint(row.position)];
		const lost = updates.filter((update) => update.sequence > position && (owner === "" || owner === update.owner));
		if (lost.length > 0)
			await all(`UPDATE ${schema}endpoints SET lost = lost + ? WHERE id = ?`, lost.length, text(row.id));
	}
}

/** Which updates are kept, and when a deleted conversation is removed. */
export interface PrunePolicy {
	/** Remove history that was received before this time (microseconds since the Unix epoch). */
	readonly receivedBefore?: bigint | undefined;
	/** Keep at most this many updates of each conversation. */
	readonly updatesPerConversation?: number | undefined;
	/** Maximum number of updates and events to remove. The end of a deleted conversation may exceed it by 1. */
	readonly limit: number;
}

/**
 * When a conversation is removed as a whole: when its deletion was received before a time (microseconds since the Unix epoch),
 * or when it meets all conditions.
 */
export type Due = { readonly deletedBefore: bigint } | { readonly meets: readonly Condition[] };

/** Updates that a policy no longer keeps. */
export interface PrunableUpdates {
	readonly updates: readonly Pick<RemovedEntry, "conversationId" | "sequence">[];
	/** The conversation to go on with; undefined after the last one. */
	readonly next: string | undefined;
}

/** Maximum number of entries that one transaction removes, so that appends do not wait long. */
const MAX_REMOVED = 50;

export const removalReads = { findPrunable };
export const removalWrites = { removeConversation, removeUpdates, removeEvents };

/** The operations by which the pruner works, each in a transaction of its own. */
interface Removals extends Calls<typeof removalReads & typeof removalWrites> {
	readonly findDeleted: (of: { readonly before: bigint; readonly limit: number }) => Promise<readonly string[]>;
	readonly listConversations: (query: ConversationQuery) => Promise<readonly StoredConversation[]>;
}

/** Removes what retention no longer keeps, in small transactions. It does what the methods of the store say. */
export function prunerOf(calls: Removals) {
	/** The conversation at which the next search begins; undefined for the first of all. */
	let from: PrunableUpdates["next"];
	return { prune, pruneConversations, pruneEvents };

	async function prune(policy: PrunePolicy): Promise<number> {
		const { limit, receivedBefore } = policy;
		const before = bindable(receivedBefore ?? NEVER);
		const deleted = receivedBefore === undefined ? [] : await calls.findDeleted({ before, limit });
		let removed = await removeAll(deleted, { deletedBefore: before }, limit);
		for (let hasMore = true; hasMore && removed < limit; hasMore = from !== undefined) {
			const batch = Math.min(limit - removed, MAX_REMOVED);
			const { updates, next } = await calls.findPrunable({ ...policy, from, limit: batch });
			if (updates.length > 0) removed += await calls.removeUpdates({ updates });
			from = next;
		}
		return removed;
	}

	async function pruneConversations(conditions: readonly Condition[], limit: number): Promise<number> {
		const found = await calls.listConversations({ conditions, limit, withRecords: false });
		const ids = found.map(({ conversationId }) => conversationId);
		return await removeAll(ids, { meets: conditions }, limit);
	}

	async function pruneEvents(time: bigint, limit: number): Promise<number> {
		const receivedBefore = bindable(time);
		return await inBatches(limit, (batch) => calls.removeEvents({ receivedBefore, limit: batch }));
	}

	/** Removes conversations that are due, until `limit` is reached. Returns the number of removed entries. */
	async function removeAll(ids: readonly string[], due: Due, limit: number): Promise<number> {
		let removed = 0;
		for (const id of ids) {
			removed += await inBatches(limit - removed, (batch) =>
				calls.removeConversation({ conversationId: id, due, limit: batch }),
			);
			if (removed >= limit) break;
		}
		return removed;
	}

	/** Removes batches until one is smaller than its limit, or `limit` is reached. Returns the total number. */
	async function inBatches(limit: number, remove: (batch: number) => Promise<number>): Promise<number> {
		let removed = 0;
		while (removed < limit) {
			const batch = Math.min(limit - removed, MAX_REMOVED);
			const gone = await remove(batch);
			removed += gone;
			if (gone < batch) break;
		}
		return removed;
	}
}
