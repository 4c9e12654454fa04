import { create, fromBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { sumOfCosts } from "../../record/stats.ts";
import { indexWords, wordsOf } from "../../search/tokenizer.ts";
import { asciiLower, NOT_REPORTED, orderedTokens } from "../condition.ts";
import { positionOfEvents } from "../head.ts";
import { columnsFrom, columnValue, isOfRow } from "../rows.ts";
import type { Change, Columns, Session } from "../session.ts";
import { bigint, blob, keyOf, keyOrNull, nullable, type Row, text } from "../values.ts";
import { lockView, moveView, NOTHING } from "./follow.ts";

/**
 * The view of conversations: the table `conversations`, by which lists filter and order, with tags. A row follows
 * from what is stored of its conversation: the head, the summary of the current record, the totals of the events, and the
 * gaps. So it may be derived at any time and any number of times.
 *
 * The view follows both logs, and its position is in the table `views`. What changes a row without an entry in a log, such
 * as a gap that closes, derives the row in its own transaction.
 */

/**
 * Derives the rows of conversations anew. One that has neither a record nor an event any more has no row either. The view is
 * locked.
 */
export async function deriveConversations(session: Session, conversationIds: readonly string[]): Promise<void> {
	const found = [
		...(await readHeads(session, conversationIds)).map((head) => ({
			source: head,
			summary: fromBinary(ConversationSummarySchema, blob(head.summary)),
		})),
		...(await readWithoutHead(session, conversationIds)).map((source) => ({ source, summary: NO_SUMMARY })),
	];
	const gone = await readRows(session, "conversations", conversationIds);
	const tagsOf = await readRows(session, "tags", conversationIds);
	const [rows, tags]: [Change[], Change[]] = [[], []];
	const removedTags: Row[] = [];
	for (const { source, summary } of found) {
		const id = text(source.conversation_id);
		const [before] = gone.get(id) ?? [];
		gone.delete(id);
		rows.push({ before, after: rowOf(source, summary) });
		const tagsBefore = new Map(tagsOf.get(id)?.map((tag) => [tag.key, tag]));
		for (const [name, value] of Object.entries(summary.tags)) {
			const key = keyOf(name);
			tags.push({ before: tagsBefore.get(key), after: { conversation_id: id, key, value: keyOf(value) } });
			tagsBefore.delete(key);
		}
		removedTags.push(...tagsBefore.values());
	}
	for (const id of gone.keys()) removedTags.push(...(tagsOf.get(id) ?? []));
	await session.remove("tags", removedTags.map(columnsFrom));
	await session.remove("conversations", [...gone.values()].flat().map(columnsFrom));
	await session.write("conversations", rows);
	await session.write("tags", tags);
}

/** Removes all rows, so that the view follows both logs from their beginning. */
export async function resetConversations(session: Session): Promise<void> {
	await lockView(session, "conversations");
	for (const table of ["tags", "conversations"]) await session.all(`DELETE FROM ${session.dialect.schema}${table}`);
	await moveView(session, "conversations", NOTHING);
}

function rowOf(head: Row, summary: ConversationSummary): Columns {
	const column = (name: string) => columnValue(head[name]);
	return {
		conversation_id: column("conversation_id"),
		sequence: column("sequence"),
		status: column("status"),
		agent_kind: keyOf(summary.agentKind),
		model: keyOf(summary.model),
		// A summary that cannot be rewritten still names a conversation that was erased.
		parent_id: head.parent_id === null ? null : keyOrNull(summary.parentConversationId),
		source_id: head.source_id === null ? null : keyOrNull(summary.forkedFromConversationId),
		created_at: column("created_at"),
		updated_at: column("updated_at"),
		run_started_at: column("run_started_at"),
		posted_at: column("posted_at"),
		sender: nullable(text, head.sender) ?? null,
		owner: nullable(text, head.owner) ?? null,
		cost: summary.accumulatedCost === undefined ? NOT_REPORTED : sumOfCosts([summary.accumulatedCost]),
		tokens: orderedTokens(summary.tokens),
		activity_at: columnValue(head.last_at ?? head.updated_at),
		has_error: hasError(head),
		gap_count: column("gap_count"),
		gaps_since: column("gaps_since"),
		title: summary.title === undefined ? null : asciiLower(summary.title),
		title_words: summary.title === undefined ? null : titleWords(summary.title),
	};
}

/** Maximum length of the beginning of a title whose words are found, in UTF-16 code units. */
const MAX_TITLE = 100_000;

/** Returns the column `title_words`. */
export function titleWords(title: string): string {
	return ` ${[...indexWords(wordsOf(title.slice(0, MAX_TITLE)))].join(" ")} `;
}

/** As `shownError`: the latest error is shown until the conversation runs again. */
function hasError({ error_at, run_started_at }: Row): boolean {
	const [errorAt, runStartedAt] = [nullable(bigint, error_at), nullable(bigint, run_started_at)];
	return errorAt !== undefined && (runStartedAt === undefined || runStartedAt <= errorAt);
}

/** Reads what the rows of conversations are derived from. */
async function readHeads(session: Session, conversationIds: readonly string[]): Promise<Row[]> {
	const { dialect, isIn, all } = session;
	const { schema } = dialect;
	const gaps = await readGaps(session, conversationIds);
	const rows = await all(
		`SELECT h.conversation_id, h.sequence, h.status, h.created_at, h.updated_at, h.run_started_at,
			h.posted_at, h.parent_id, h.source_id, h.sender, h.owner, u.summary, a.last_at, a.error_at
		FROM ${schema}heads h JOIN ${schema}updates u ON ${isOfRow("u", "h")}
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
	const { schema } = dialect;
	const rows = await all(
		`SELECT a.conversation_id, a.last_at, a.error_at, a.sender, a.owner, (
				SELECT max(e.sequence) FROM ${schema}events e WHERE e.conversation_id = a.conversation_id
			) AS newest_event
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

/** Reads the rows of a table as they are, by the ids of the conversations. */
async function readRows(
	{ dialect: { schema }, isIn, all }: Session,
	table: "conversations" | "tags",
	conversationIds: readonly string[],
): Promise<Map<string, Row[]>> {
	const rows = await all(`SELECT * FROM ${schema}${table} WHERE ${isIn("conversation_id")}`, conversationIds);
	return Map.groupBy(rows, (row) => text(row.conversation_id));
}
