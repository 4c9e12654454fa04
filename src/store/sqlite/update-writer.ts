import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import type { Standing } from "../activity.ts";
import { orderedTokens } from "../condition.ts";
import type { ConversationState } from "../conversation-state.ts";
import type { ConversationOrigin } from "../owners.ts";
import { originColumn, originFrom, stateFrom } from "../rows.ts";
import type { EventRow, UpdateRow } from "../stored-rows.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** The row of a conversation. */
export interface KnownRow {
	readonly id: bigint;
	readonly row: Row;
	/** Undefined when it has no record. */
	readonly state: ConversationState | undefined;
	readonly origin: ConversationOrigin;
}

/** Values of columns by column name. */
type Columns = Readonly<Record<string, string | bigint | number | null>>;

/** Finds the row of a conversation; undefined when there is none. */
export function findConversation(statements: Statements, conversationId: string): KnownRow | undefined {
	const row = statements.prepare("SELECT * FROM conversations WHERE conversation_id = ?").get(conversationId);
	return row && { id: bigint(row.id), row, state: stateFrom(row, text), origin: originFrom(row, text) };
}

/**
 * Inserts a conversation.
 *
 * @param standing undefined if the caller writes it later
 * @returns its row id
 */
export function insertConversation(
	statements: Statements,
	conversationId: string,
	state: ConversationState,
	summary: ConversationSummary,
	origin: ConversationOrigin,
	standing?: Standing,
): bigint {
	const filters = filterColumns(summary);
	const columns: Columns = {
		conversation_id: conversationId,
		sender: origin.sender ?? null,
		owner: origin.owner ?? null,
		...stateColumns(state),
		...filters,
		...(standing && standingColumns(standing)),
	};
	const names = Object.keys(columns);
	const row = statements
		.prepare(
			`INSERT INTO conversations (${names.join()}) VALUES (${names.map((name) => `:${name}`).join()}) RETURNING id`,
		)
		.get(columns);
	const id = bigint(row?.id);
	writeTags(statements, id, state.sequence, filters.tags, summary.tags, undefined);
	writeTitle(statements, id, summary.title, undefined);
	return id;
}

/**
 * @param conversation row id of the update's conversation
 * @param owner that of the conversation
 */
export function insertUpdate(
	statements: Statements,
	conversation: bigint,
	owner: string | undefined,
	update: UpdateRow,
): void {
	const { record } = update;
	statements
		.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		.run(
			update.sequence,
			conversation,
			update.change,
			update.current ? 1 : 0,
			update.previousSequence ?? null,
			update.receivedAt,
			update.origin,
			update.base ?? null,
			update.size,
			record.redactionVersion,
			record.schemaVersion,
			record.unpackedSize,
			record.checksum,
			update.summary,
			update.activity ?? null,
			update.sender ?? null,
			record.record,
		);
	if (owner !== undefined)
		statements.prepare("INSERT INTO updates_of_owners VALUES (?, ?)").run(owner, update.sequence);
}

/**
 * Inserts an event.
 *
 * @param activity row id of its conversation's activity
 * @param owner that of the conversation
 */
export function insertEvent(
	statements: Statements,
	activity: bigint,
	owner: string | undefined,
	event: Omit<EventRow, "conversationId">,
): void {
	statements
		.prepare("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		.run(
			event.sequence,
			activity,
			event.eventId,
			event.receivedAt,
			event.happenedAt,
			event.kind,
			event.source,
			event.redactionVersion,
			event.text.unpackedSize,
			event.text.checksum,
			event.secrets,
			event.llmResponseId ?? null,
			event.sender ?? null,
			originColumn(event.origin),
			event.text.record,
		);
	if (owner !== undefined) statements.prepare("INSERT INTO events_of_owners VALUES (?, ?)").run(owner, event.sequence);
}

/**
 * Writes what changes of a conversation.
 *
 * @param summary of the new current record; undefined when the current record stays
 * @param standing undefined when it stays
 */
export function updateConversation(
	statements: Statements,
	known: KnownRow,
	after: ConversationState,
	summary: ConversationSummary | undefined,
	standing?: Standing,
): void {
	const filters = summary && filterColumns(summary);
	writeChanged(statements, known, { ...stateColumns(after), ...filters, ...(standing && standingColumns(standing)) });
	if (summary === undefined || filters === undefined) return;
	const { id, row } = known;
	writeTags(statements, id, after.sequence, filters.tags, summary.tags, row);
	writeTitle(statements, id, summary.title, row);
}

/** Writes the standing of a conversation of which nothing else changes. */
export function writeStanding(statements: Statements, known: KnownRow, standing: Standing): void {
	writeChanged(statements, known, standingColumns(standing));
}

/**
 * Writes the columns of a conversation that change, in one statement, which names no other column: SQLite writes the index
 * of each column that a statement names, once for each statement.
 */
function writeChanged(statements: Statements, { id, row }: KnownRow, columns: Columns): void {
	const changed = Object.entries(columns).filter(([name, value]) => row[name] !== value);
	if (changed.length === 0) return;
	const assignments = changed.map(([name]) => `${name} = :${name}`);
	statements
		.prepare(`UPDATE conversations SET ${assignments.join()} WHERE id = :id`)
		.run({ ...Object.fromEntries(changed), id });
}

/** Derives the standing of a conversation from its rows anew, as `standingOf` does. */
export function refreshStanding(statements: Statements, conversationId: string): void {
	statements
		.prepare(`
			UPDATE conversations AS c SET
				activity_at = coalesce((SELECT last_at FROM activities a WHERE a.conversation_id = c.conversation_id), updated_at, 0),
				has_error = EXISTS (
					SELECT 1 FROM activities a
					WHERE a.conversation_id = c.conversation_id AND a.error_at >= coalesce(c.run_started_at, a.error_at)
				),
				(gap_count, gaps_since) = (SELECT count(*), min(g.since) FROM gaps g WHERE g.conversation_id = c.conversation_id)
			WHERE conversation_id = ?
		`)
		.run(conversationId);
}

function writeTags(
	statements: Statements,
	conversation: bigint,
	sequence: bigint,
	json: string,
	tags: ConversationSummary["tags"],
	known: Row | undefined,
): void {
	if (known?.tags === json) {
		if (json !== NO_TAGS)
			statements.prepare("UPDATE tags SET sequence = ? WHERE conversation = ?").run(sequence, conversation);
		return;
	}
	if (known !== undefined && known.tags !== NO_TAGS)
		statements.prepare("DELETE FROM tags WHERE conversation = ?").run(conversation);
	for (const [key, value] of Object.entries(tags))
		statements.prepare("INSERT INTO tags VALUES (?, ?, ?, ?)").run(conversation, key, value, sequence);
}

function writeTitle(
	statements: Statements,
	conversation: bigint,
	title: string | undefined,
	known: Row | undefined,
): void {
	const before = known && nullable(text, known.title);
	if (before === title) return;
	if (before !== undefined) statements.prepare("DELETE FROM titles WHERE rowid = ?").run(conversation);
	if (title !== undefined)
		statements.prepare("INSERT INTO titles (rowid, title) VALUES (?, ?)").run(conversation, title);
}

const NO_TAGS = "{}";

function stateColumns(state: ConversationState) {
	const { sequence, newestPosted, revision, memberTimes, postedAt, hasUnappliedEvents } = state;
	return {
		sequence,
		status: BigInt(state.status),
		order_time: state.orderTime ?? null,
		life_began_at: state.lifeBeganAt ?? null,
		created_at: state.createdAt,
		updated_at: state.updatedAt,
		run_started_at: state.runStartedAt ?? null,
		newest_sequence: newestPosted?.sequence ?? null,
		newest_updated_at: newestPosted?.updatedAt ?? null,
		newest_size: newestPosted === undefined ? null : BigInt(newestPosted.size),
		revision,
		member_times: memberTimes ?? null,
		posted_at: postedAt ?? null,
		has_unapplied_events: hasUnappliedEvents ? 1n : 0n,
	};
}

function standingColumns({ activityAt, hasError, gaps }: Standing) {
	return {
		activity_at: activityAt,
		has_error: hasError ? 1n : 0n,
		gap_count: gaps?.count ?? 0n,
		gaps_since: gaps?.since ?? null,
	};
}

/** Columns that lists filter by, except the status and the times. */
function filterColumns(summary: ConversationSummary) {
	return {
		agent_kind: summary.agentKind,
		model: summary.model,
		cost: summary.accumulatedCost,
		tokens: orderedTokens(summary.tokens),
		parent_id: summary.parentConversationId ?? null,
		source_id: summary.forkedFromConversationId ?? null,
		title: summary.title ?? null,
		// Sorted, so that equal tags have equal texts.
		tags: JSON.stringify(summary.tags, Object.keys(summary.tags).sort()),
	};
}
