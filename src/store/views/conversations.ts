import { create, fromBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { sumOfCosts } from "../../record/stats.ts";
import { NOT_REPORTED, orderedTokens } from "../condition.ts";
import { positionOfEvents } from "../head.ts";
import type { Columns, Session, Value } from "../session.ts";
import { type Table, tableOf } from "../tables.ts";
import { bigint, blob, nullable, type Row, text } from "../values.ts";
import { lockView, moveView, NOTHING } from "./follow.ts";

/**
 * The view of conversations: the table `conversations`, by which lists filter and order, with tags and titles. A row follows
 * from what is stored of its conversation: the head, the summary of the current record, the totals of the events, and the
 * gaps. So it may be derived at any time and any number of times.
 *
 * The view follows both logs, and its position is in the table `views`. What changes a row without an entry in a log, such
 * as a gap that closes, derives the row in its own transaction.
 */

/** Returns the tables of the view. */
function tablesOf({ dialect: { engine } }: Session) {
	return {
		conversations: tableOf(engine, "conversations"),
		tags: tableOf(engine, "tags"),
	};
}

/**
 * Derives the rows of conversations anew. One that has neither a record nor an event any more has no row either. The view is
 * locked.
 */
export async function deriveConversations(session: Session, conversationIds: readonly string[]): Promise<void> {
	const tables = tablesOf(session);
	const { headKey, headReference } = session.dialect;
	const found = [
		...(await readHeads(session, conversationIds)).map((head) => ({
			source: head,
			summary: fromBinary(ConversationSummarySchema, blob(head.summary)),
		})),
		...(await readWithoutHead(session, conversationIds)).map((source) => ({ source, summary: NO_SUMMARY })),
	];
	const [known, knownTags] = [await readRows(session, conversationIds), await readTags(session, conversationIds)];
	const rows = [];
	const tags = [];
	const titles = [];
	const removedTags: Columns[] = [];
	const gone = new Map(known);
	for (const { source, summary } of found) {
		const key = columnValue(source[headKey]);
		const id = text(source.conversation_id);
		const before = known.get(id);
		// The first record gives a conversation another key, so its former row is removed.
		const isSame = before?.[headKey] === key;
		if (isSame) gone.delete(id);
		const after = session.stored(tables.conversations, rowOf(source, summary, session));
		rows.push({ before: isSame ? before : undefined, after });
		const tagsBefore = new Map((isSame ? knownTags.get(id) : [])?.map((tag) => [tag.key, tag]));
		const tagsAfter = Object.entries(summary.tags).map(([name, value]) =>
			session.stored(tables.tags, { [headReference]: key, key: name, value }),
		);
		for (const tag of tagsAfter) {
			tags.push({ before: tagsBefore.get(tag.key), after: tag });
			tagsBefore.delete(tag.key);
		}
		for (const tag of tagsBefore.values()) removedTags.push(keyOf(tables.tags, tag));
		titles.push({ key, before: isSame ? nullable(text, before.title) : undefined, after: summary.title });
	}
	for (const [id, before] of gone) {
		for (const tag of knownTags.get(id) ?? []) removedTags.push(keyOf(tables.tags, tag));
		titles.push({ key: columnValue(before[headKey]), before: nullable(text, before.title), after: undefined });
	}
	await session.remove(tables.tags, removedTags);
	await session.remove(
		tables.conversations,
		[...gone.values()].map((row) => keyOf(tables.conversations, row)),
	);
	await session.write(tables.conversations, rows);
	await session.write(tables.tags, tags);
	await session.writeTitles(titles);
}

/** Removes all rows, so that the view follows both logs from their beginning. */
export async function resetConversations(session: Session): Promise<void> {
	await lockView(session, "conversations");
	const { schema } = session.dialect;
	await session.removeTitles();
	for (const { name } of Object.values(tablesOf(session))) await session.all(`DELETE FROM ${schema}${name}`);
	await moveView(session, "conversations", NOTHING);
}

/** Returns the row of a conversation. */
function rowOf(head: Row, summary: ConversationSummary, { dialect, readText }: Session): Columns {
	const column = (name: string) => columnValue(head[name]);
	return {
		[dialect.headKey]: column(dialect.headKey),
		conversation_id: column("conversation_id"),
		sequence: column("sequence"),
		status: column("status"),
		agent_kind: summary.agentKind,
		model: summary.model,
		// A summary that cannot be rewritten still names a conversation that was erased.
		parent_id: head.parent_id === null ? null : (summary.parentConversationId ?? null),
		source_id: head.source_id === null ? null : (summary.forkedFromConversationId ?? null),
		created_at: column("created_at"),
		updated_at: column("updated_at"),
		run_started_at: column("run_started_at"),
		posted_at: column("posted_at"),
		sender: nullable(readText, head.sender) ?? null,
		owner: nullable(readText, head.owner) ?? null,
		cost: summary.accumulatedCost === undefined ? NOT_REPORTED : sumOfCosts([summary.accumulatedCost]),
		tokens: orderedTokens(summary.tokens),
		activity_at: columnValue(head.last_at ?? head.updated_at),
		has_error: hasError(head),
		gap_count: column("gap_count"),
		gaps_since: column("gaps_since"),
	};
}

/** As `shownError`: the latest error is shown until the conversation runs again. */
function hasError({ error_at, run_started_at }: Row): boolean {
	const [errorAt, runStartedAt] = [nullable(bigint, error_at), nullable(bigint, run_started_at)];
	return errorAt !== undefined && (runStartedAt === undefined || runStartedAt <= errorAt);
}

/** Reads what the rows of conversations are derived from. */
async function readHeads(session: Session, conversationIds: readonly string[]): Promise<Row[]> {
	const { dialect, isIn, all } = session;
	const { schema, headKey, isCurrent } = dialect;
	const gaps = await readGaps(session, conversationIds);
	const rows = await all(
		`SELECT h.${headKey}, h.conversation_id, h.sequence, h.status, h.created_at, h.updated_at, h.run_started_at,
			h.posted_at, h.parent_id, h.source_id, h.sender, h.owner, u.summary, a.last_at, a.error_at
		FROM ${schema}heads h JOIN ${schema}updates u ON ${isCurrent("h")}
		LEFT JOIN ${schema}activities a ON a.conversation_id = h.conversation_id
		WHERE ${isIn("h.conversation_id")}`,
		conversationIds,
	);
	return rows.map((row) => ({ ...row, ...(gaps.get(text(row.conversation_id)) ?? NO_GAPS) }));
}

/** Columns of a conversation without gaps: see {@link readGaps}. */
const NO_GAPS: Row = { gap_count: 0n, gaps_since: null, no_record_since: null };

/** Reads the numbers of gaps by the ids of the conversations. With Citus, gaps are not beside their conversations. */
async function readGaps(
	{ dialect: { schema }, isIn, all }: Session,
	conversationIds: readonly string[],
): Promise<ReadonlyMap<string, Row>> {
	const rows = await all(
		`SELECT conversation_id, count(*) AS gap_count, min(since) AS gaps_since,
			min(CASE WHEN kind = 'no_record' THEN since END) AS no_record_since
		FROM ${schema}gaps WHERE ${isIn("conversation_id")} GROUP BY conversation_id`,
		conversationIds,
	);
	return new Map(rows.map((row) => [text(row.conversation_id), row]));
}

/** What a record would tell. */
const NO_SUMMARY = create(ConversationSummarySchema);

/** Reads what the rows of conversations are derived from that have events and no record. */
async function readWithoutHead(session: Session, conversationIds: readonly string[]): Promise<Row[]> {
	const { dialect, isIn, all } = session;
	const { schema, headKey, keyWithoutHead, isOfActivity } = dialect;
	const rows = await all(
		`SELECT ${keyWithoutHead} AS ${headKey}, a.conversation_id, a.last_at, a.error_at, a.sender, a.owner,
			(SELECT max(e.sequence) FROM ${schema}events e WHERE ${isOfActivity}) AS newest_event
		FROM ${schema}activities a
		WHERE ${isIn("a.conversation_id")} AND NOT EXISTS (
			SELECT 1 FROM ${schema}heads h WHERE h.conversation_id = a.conversation_id
		)`,
		conversationIds,
	);
	const found = rows.filter(({ newest_event }) => newest_event !== null);
	const gaps = await readGaps(
		session,
		found.map(({ conversation_id }) => text(conversation_id)),
	);
	return found.map(({ newest_event, ...row }) => {
		const { no_record_since, ...counts } = gaps.get(text(row.conversation_id)) ?? NO_GAPS;
		return {
			...row,
			...counts,
			sequence: positionOfEvents(bigint(newest_event)),
			status: BigInt(ConversationExecutionStatus.UNSPECIFIED),
			created_at: no_record_since ?? row.last_at,
			updated_at: row.last_at,
			run_started_at: null,
			posted_at: null,
			parent_id: null,
			source_id: null,
		};
	});
}

/** Reads the rows as they are, by the ids of the conversations. */
async function readRows(
	{ dialect: { schema, title }, isIn, all }: Session,
	conversationIds: readonly string[],
): Promise<Map<string, Row>> {
	const rows = await all(
		`SELECT c.*, ${title} AS title FROM ${schema}conversations c WHERE ${isIn("c.conversation_id")}`,
		conversationIds,
	);
	return new Map(rows.map((row) => [text(row.conversation_id), row]));
}

/** Reads the tags as they are, by the ids of the conversations. */
async function readTags(
	{ dialect: { schema, headKey, headReference }, isIn, all }: Session,
	conversationIds: readonly string[],
): Promise<Map<string, Row[]>> {
	const tags = new Map<string, Row[]>();
	const rows = await all(
		`SELECT c.conversation_id AS id, t.* FROM ${schema}conversations c
		JOIN ${schema}tags t ON t.${headReference} = c.${headKey} WHERE ${isIn("c.conversation_id")}`,
		conversationIds,
	);
	for (const { id, ...tag } of rows) tags.set(text(id), [...(tags.get(text(id)) ?? []), tag]);
	return tags;
}

function keyOf({ key }: Table, row: Row): Columns {
	return Object.fromEntries(key.map((name) => [name, columnValue(row[name])]));
}

/** Reads a column as a value that is stored again. */
export function columnValue(value: unknown): Value {
	switch (typeof value) {
		case "string":
		case "bigint":
		case "number":
		case "boolean":
			return value;
	}
	if (value === null) return null;
	throw new TypeError("a column of the view has an unexpected value");
}
