import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { closeGap, removeOldGaps } from "../gaps.ts";
import type { Due, PrunableQuery, RemovalBounds } from "../pruner.ts";
import type { LogTable } from "../sequence-log.ts";
import type { Session } from "../session.ts";
import { tableOf } from "../tables.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Statements } from "./statements.ts";
import { removeEventText, removeTitle } from "./text-index.ts";

/**
 * Functions that remove updates and events, and record for each conversation how far it was pruned. The caller has
 * begun a transaction.
 */

/** Asks to remove a conversation. */
export interface RemovedConversation {
	readonly conversationId: string;
	readonly due: Due;
	readonly limit: number;
}

/**
 * Removes updates, except the current update of a conversation and the base of another update. Ignores sequence numbers
 * that do not exist any more.
 *
 * @returns the number of removed updates
 */
export function removeUpdates(statements: Statements, sequences: readonly bigint[]): number {
	const find = statements.prepare(`
		SELECT c.conversation_id, u.sequence FROM updates u JOIN heads c ON c.id = u.conversation
		WHERE u.sequence = ? AND c.sequence <> u.sequence AND NOT ${IS_BASE}
	`);
	return removeRows(
		statements,
		"updates",
		sequences.map((sequence) => find.get(sequence)).filter((row) => row !== undefined),
	);
}

/**
 * Removes events that were received before a time, oldest first.
 *
 * @returns the number of removed events
 */
export async function removeEvents(statements: Statements, session: Session, bounds: RemovalBounds): Promise<number> {
	const rows = eventsToRemove(statements, bounds);
	const removed = removeRows(statements, "events", rows);
	// A conversation without a record goes with its last event.
	const removeActivity = statements.prepare(`
		DELETE FROM activities AS a WHERE conversation_id = ?
			AND NOT EXISTS (SELECT 1 FROM events e WHERE e.activity = a.id)
			AND NOT EXISTS (SELECT 1 FROM heads c WHERE c.conversation_id = a.conversation_id)
	`);
	const ids = [...new Set(rows.map(({ conversation_id }) => text(conversation_id)))];
	for (const id of ids)
		if (removeActivity.run(id).changes > 0)
			await closeGap(session, { conversationId: id, kind: "no_record", missing: "" });
	await removeOldGaps(session, ids, bounds.receivedBefore);
	return removed;
}

/** Returns the conversations of which {@link removeUpdates} removes some. */
export function conversationsOfUpdates(statements: Statements, sequences: readonly bigint[]): string[] {
	return statements
		.prepare(`
			SELECT DISTINCT h.conversation_id FROM json_each(?) s CROSS JOIN updates u ON u.sequence = s.value
			CROSS JOIN heads h ON h.id = u.conversation
		`)
		.all(JSON.stringify(sequences.map(Number)))
		.map(({ conversation_id }) => text(conversation_id));
}

/** Returns the conversations of which {@link removeEvents} removes some. */
export function conversationsToLose(statements: Statements, bounds: RemovalBounds): string[] {
	return [...new Set(eventsToRemove(statements, bounds).map(({ conversation_id }) => text(conversation_id)))];
}

function eventsToRemove(statements: Statements, { below, receivedBefore, limit }: RemovalBounds): Row[] {
	return statements
		.prepare(`
			SELECT a.conversation_id, e.sequence FROM events e CROSS JOIN activities a ON a.id = e.activity
			WHERE e.sequence < ? AND e.received_at < ? ORDER BY e.sequence LIMIT ?
		`)
		.all(below, receivedBefore, limit);
}

/**
 * Removes entries of a conversation: see `PruningEngine.removeConversation`. The caller has tested the conditions that it
 * must meet, and derives its rows in views.
 *
 * @returns the number of removed updates and events
 */
export function removeConversation(
	statements: Statements,
	{ conversationId, due, limit }: RemovedConversation,
): number {
	const found = getDue(statements, conversationId, due);
	if (found === undefined) return 0;
	const { id, sequence, base } = found;
	const remove = (log: LogTable, sequences: readonly unknown[]) =>
		removeRows(
			statements,
			log,
			sequences.map((one) => ({ conversation_id: conversationId, sequence: one })),
		);
	// Newest first, so that deltas are removed before their base.
	const history = statements
		.prepare(`
			SELECT sequence FROM updates INDEXED BY updates_by_conversation
			WHERE conversation = ? AND sequence <> ? AND sequence IS NOT ? ORDER BY sequence DESC LIMIT ?
		`)
		.all(id, sequence, base ?? null, limit);
	let removed = remove(
		"updates",
		history.map((row) => row.sequence),
	);
	const events = statements
		.prepare(`
			SELECT e.sequence FROM activities a CROSS JOIN events e INDEXED BY events_by_activity ON e.activity = a.id
			WHERE a.conversation_id = ? ORDER BY e.sequence LIMIT ?
		`)
		.all(conversationId, limit - removed);
	removed += remove(
		"events",
		events.map((row) => row.sequence),
	);
	if (removed >= limit) return removed;
	removed += remove("updates", base === undefined ? [sequence] : [sequence, base]);
	removeTitle(statements, id);
	statements.prepare("DELETE FROM activities WHERE conversation_id = ?").run(conversationId);
	statements.prepare("DELETE FROM children WHERE conversation_id = ?").run(conversationId);
	statements.prepare("DELETE FROM gaps WHERE conversation_id = ?").run(conversationId);
	statements.prepare("DELETE FROM refused_posts WHERE conversation_id = ?").run(conversationId);
	statements.prepare("DELETE FROM heads WHERE id = ?").run(id);
	return removed;
}

/** Removes all entries of a conversation, its title and their texts in the index of words. */
export function removeEntriesOf(statements: Statements, conversationId: string): void {
	for (const log of ["events", "updates"] as const) {
		const { column = "", table = "" } = tableOf("sqlite", log).reference ?? {};
		const of = statements.prepare(`SELECT id, owner FROM ${table} WHERE conversation_id = ?`).get(conversationId);
		if (of === undefined) continue;
		const id = bigint(of.id);
		for (const row of statements.prepare(`SELECT sequence FROM ${log} WHERE ${column} = ?`).all(id)) {
			const sequence = bigint(row.sequence);
			if (log === "events") removeEventText(statements, sequence);
			if (typeof of.owner === "string")
				statements.prepare(`DELETE FROM ${log}_of_owners WHERE owner = ? AND sequence = ?`).run(of.owner, sequence);
		}
		statements.prepare(`DELETE FROM ${log} WHERE ${column} = ?`).run(id);
		if (log === "updates") removeTitle(statements, id);
	}
}

/** SQL for the owner of the conversation with the id `:id`. */
const OWNER = `coalesce(
	(SELECT owner FROM heads WHERE conversation_id = :id), (SELECT owner FROM activities WHERE conversation_id = :id)
)`;

/**
 * Removes rows of a log.
 *
 * @param rows each with the columns `conversation_id` and `sequence`
 * @returns the number of rows
 */
function removeRows(statements: Statements, log: LogTable, rows: readonly Row[]): number {
	if (rows.length === 0) return 0;
	statements.prepare("UPDATE logs SET last_removal = last_removal + 1 WHERE log = ?").run(log);
	const through = statements.prepare("UPDATE logs SET pruned_through = max(pruned_through, ?) WHERE log = ?");
	const removeOfOwner = statements.prepare(`
		DELETE FROM ${log}_of_owners WHERE sequence = :sequence AND owner = ${OWNER}
	`);
	const markPruned = statements.prepare(`
		INSERT INTO pruned (log, conversation_id, through, removal, owner)
		SELECT log, :id, :sequence, last_removal, ${OWNER} FROM logs WHERE log = :log
		ON CONFLICT DO UPDATE SET
			through = max(through, excluded.through), removal = excluded.removal, owner = excluded.owner
	`);
	const countLost = statements.prepare(`
		UPDATE endpoints SET lost = lost + 1 WHERE position < :sequence AND owner IN ('', ${OWNER})
	`);
	for (const row of rows) {
		const [id, sequence] = [text(row.conversation_id), bigint(row.sequence)];
		removeOfOwner.run({ id, sequence });
		statements.prepare(`DELETE FROM ${log} WHERE sequence = ?`).run(sequence);
		if (log === "events") removeEventText(statements, sequence);
		through.run(sequence, log);
		if (log === "updates") countLost.run({ id, sequence });
		markPruned.run({ id, sequence, log });
	}
	return rows.length;
}

const DELETING = ConversationExecutionStatus.DELETING;
/** Maximum number of conversations that one call searches, so that other reads do not wait long. */
const MAX_CONVERSATIONS = 1_000;

/** SQL that tests whether the record of update `u` is the base of a delta, which needs it. */
export const IS_BASE = `EXISTS (SELECT 1 FROM updates d INDEXED BY updates_by_base WHERE d.base_sequence = u.sequence)`;

export interface Prunable {
	readonly sequences: readonly bigint[];
	/** Row id of the conversation to go on with; undefined after the last one. */
	readonly next: bigint | undefined;
}

/**
 * Finds updates that are too old, or exceed the number to keep. It finds the base of deltas only after all these deltas
 * have been removed.
 */
export function findPrunable(statements: Statements, query: PrunableQuery<bigint>): Prunable {
	const { from = 0n, limit, below, receivedBefore, updatesPerConversation } = query;
	const last = statements
		.prepare("SELECT max(id) AS id FROM (SELECT id FROM heads WHERE id >= ? ORDER BY id LIMIT ?)")
		.get(from, MAX_CONVERSATIONS);
	const through = nullable(bigint, last?.id);
	if (through === undefined) return { sequences: [], next: undefined };
	const rows = statements
		.prepare(`
			WITH looked_at (id, current, surplus) AS MATERIALIZED (
				SELECT c.id, c.sequence, ${surplus(updatesPerConversation)}
				FROM heads c WHERE c.id >= ? AND c.id <= ? ORDER BY c.id
			)
			SELECT l.id, u.sequence FROM looked_at l CROSS JOIN updates u INDEXED BY updates_by_conversation
			WHERE u.conversation = l.id AND u.sequence < max(?, l.surplus + 1) AND u.sequence <> l.current
				AND (u.sequence <= l.surplus OR (u.sequence < ? AND u.received_at < ?))
				AND NOT ${IS_BASE}
			ORDER BY l.id, u.sequence LIMIT ?
		`)
		.all(from, through, below, below, receivedBefore, limit);
	const lastRow = rows.at(-1);
	return {
		sequences: rows.map(({ sequence }) => bigint(sequence)),
		// A full result may end inside a conversation, which the next call then searches again.
		next: rows.length === limit && lastRow !== undefined ? bigint(lastRow.id) : through + 1n,
	};
}

/** Returns SQL for the newest update of conversation `c` that exceeds the number of updates to keep; 0 for none. */
function surplus(updatesPerConversation: number | undefined): string {
	if (updatesPerConversation === undefined) return "0";
	// The current update is always kept and counts, so one fewer of the others is kept.
	return `coalesce((
		SELECT s.sequence FROM updates s INDEXED BY updates_by_conversation
		WHERE s.conversation = c.id AND s.sequence <> c.sequence
		ORDER BY s.sequence DESC LIMIT 1 OFFSET ${Math.max(0, Math.trunc(updatesPerConversation) - 1)}
	), 0)`;
}

/** A conversation to remove. */
interface Found {
	readonly id: bigint;
	/** Sequence of the current update. */
	readonly sequence: bigint;
	/** Sequence of the base of that; undefined when it has none. */
	readonly base: bigint | undefined;
}

/** Returns a conversation; one to be removed for its deletion only if that is within the bounds. */
function getDue(statements: Statements, conversationId: string, due: Due): Found | undefined {
	const isOld = `AND c.status = ${DELETING} AND c.sequence < ? AND u.received_at < ?`;
	const row = statements
		.prepare(`
			SELECT c.id, c.sequence, u.base_sequence FROM heads c JOIN updates u ON u.sequence = c.sequence
			WHERE c.conversation_id = ? ${"deletion" in due ? isOld : ""}
		`)
		.get(conversationId, ...("deletion" in due ? [due.deletion.below, due.deletion.receivedBefore] : []));
	return row && { id: bigint(row.id), sequence: bigint(row.sequence), base: nullable(bigint, row.base_sequence) };
}
