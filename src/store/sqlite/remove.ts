import { closeGap, removeOldGaps } from "../gaps.ts";
import type { RemovalBounds } from "../pruner.ts";
import type { LogTable } from "../sequence-log.ts";
import type { Session } from "../session.ts";
import { tableOf } from "../tables.ts";
import { bigint, type Row, text } from "../values.ts";
import { getDeleted, IS_BASE } from "./prunable.ts";
import type { Statements } from "./statements.ts";
import { removeEventText, removeTitle } from "./text-index.ts";

/**
 * Functions that remove updates and events, and record for each conversation how far it was pruned. The caller has
 * begun a transaction.
 */

/** Asks to remove a deleted conversation. */
export interface DeletedRequest extends RemovalBounds {
	readonly conversationId: string;
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
 * Removes entries of a deleted conversation: see `PruningEngine.removeDeleted`. The caller derives its rows in views.
 *
 * @returns the number of removed updates and events
 */
export function removeDeleted(statements: Statements, { conversationId, ...bounds }: DeletedRequest): number {
	const deleted = getDeleted(statements, conversationId, bounds);
	if (deleted === undefined) return 0;
	const { id, sequence, base } = deleted;
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
		.all(id, sequence, base ?? null, bounds.limit);
	let removed = remove(
		"updates",
		history.map((row) => row.sequence),
	);
	const events = statements
		.prepare(`
			SELECT e.sequence FROM activities a CROSS JOIN events e INDEXED BY events_by_activity ON e.activity = a.id
			WHERE a.conversation_id = ? ORDER BY e.sequence LIMIT ?
		`)
		.all(conversationId, bounds.limit - removed);
	removed += remove(
		"events",
		events.map((row) => row.sequence),
	);
	if (removed >= bounds.limit) return removed;
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
