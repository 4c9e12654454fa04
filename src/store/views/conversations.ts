import { create, fromBinary } from "@bufbuild/protobuf";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { sumOfCosts } from "../../record/stats.ts";
import { indexWords, wordsOf } from "../../search/tokenizer.ts";
import { NOT_REPORTED, orderedTokens } from "../condition.ts";
import { positionOfEvents } from "../head.ts";
import { columnsFrom, columnValue, isOfRow } from "../rows.ts";
import { deriveScoreValues, describeScoreValues } from "../scores.ts";
import type { Change, Columns, Session } from "../session.ts";
import { bigint, blob, keyOf, nullable, type Row, text } from "../values.ts";
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
	const { schema } = session.dialect;
	const read = async (query: string, end = "") => {
		const rows = await session.all(
			`SELECT ${query} WHERE ${session.isIn("t.conversation_id")} ${end}`,
			conversationIds,
		);
		return Map.groupBy(rows, (row) => text(row.conversation_id));
	};
	// With Citus, gaps are not beside their conversations.
	const [headOf, activityOf, gapsOf, old, tagsOf] = await Promise.all([
		read(
			`t.conversation_id, t.sequence, t.status, t.created_at, t.updated_at, t.run_started_at, t.posted_at, t.parent_id,
				t.source_id, t.sender, t.owner, u.summary
			FROM ${schema}heads t JOIN ${schema}updates u ON ${isOfRow("u", "t")}`,
		),
		read(
			`t.conversation_id, t.last_at, t.error_at, t.sender, t.owner, (
				SELECT max(e.sequence) FROM ${schema}events e WHERE e.conversation_id = t.conversation_id
			) AS newest_event FROM ${schema}activities t`,
		),
		read(
			`t.conversation_id, count(*) AS gap_count, min(t.since) AS gaps_since,
				min(CASE WHEN t.kind = 'no_record' THEN t.since END) AS no_record_since FROM ${schema}gaps t`,
			"GROUP BY t.conversation_id",
		),
		read(`t.* FROM ${schema}conversations t`),
		read(`t.* FROM ${schema}tags t`),
	]);
	const [rows, tags]: [Change[], Change[]] = [[], []];
	const gone = new Map(old);
	const removedTags: Row[] = [];
	for (const id of conversationIds) {
		const [head, activity, gaps, before] = [headOf, activityOf, gapsOf, old].map((of) => of.get(id)?.[0]);
		const tagsBefore = new Map(tagsOf.get(id)?.map((tag) => [tag.key, tag]));
		const source = sourceOf(head, activity, gaps);
		if (source !== undefined) {
			const summary = head === undefined ? NO_SUMMARY : fromBinary(ConversationSummarySchema, blob(head.summary));
			gone.delete(id);
			rows.push({ before, after: rowOf(source, summary, before) });
			for (const [name, value] of Object.entries(summary.tags)) {
				const key = keyOf(name);
				tags.push({ before: tagsBefore.get(key), after: { conversation_id: id, key, value: keyOf(value) } });
				tagsBefore.delete(key);
			}
		}
		removedTags.push(...tagsBefore.values());
	}
	await session.remove("tags", removedTags.map(columnsFrom));
	await session.remove("conversations", [...gone.values()].flat().map(columnsFrom));
	await session.write("conversations", rows);
	await session.write("tags", tags);
	// Of the others, they are derived when their scores change.
	const begun = conversationIds.filter((id) => !old.has(id) || gone.has(id));
	await deriveScoreValues(session, begun);
	await describeScoreValues(session, conversationIds);
}

/** What a record would tell. */
const NO_SUMMARY = create(ConversationSummarySchema);

/** Returns what a row is derived from; undefined when the conversation has neither a record nor an event any more. */
function sourceOf(head: Row | undefined, activity: Row = {}, gaps: Row = {}): Row | undefined {
	const { last_at = null, error_at = null, newest_event = null } = activity;
	const { gap_count = 0n, gaps_since = null, no_record_since = null } = gaps;
	const own = { last_at, error_at, gap_count, gaps_since };
	if (head !== undefined) return { ...head, ...own };
	if (newest_event === null) return undefined;
	return {
		...activity,
		...own,
		sequence: positionOfEvents(bigint(newest_event)),
		status: BigInt(ConversationExecutionStatus.UNSPECIFIED),
		created_at: no_record_since ?? last_at,
		updated_at: last_at,
		run_started_at: null,
		posted_at: null,
		parent_id: null,
		source_id: null,
	};
}

/** Removes all rows, so that the view follows both logs from their beginning. */
export async function resetConversations(session: Session): Promise<void> {
	await lockView(session, "conversations");
	for (const table of ["tags", "score_values", "conversations"])
		await session.all(`DELETE FROM ${session.dialect.schema}${table}`);
	await moveView(session, "conversations", NOTHING);
}

/** Columns of a row that are those of what it is derived from. */
const OF_HEAD = [
	...["conversation_id", "sequence", "status", "created_at", "updated_at", "run_started_at", "posted_at"],
	...["sender", "owner", "gap_count", "gaps_since"],
];

function rowOf(head: Row, summary: ConversationSummary, before: Row | undefined): Columns {
	const { title = null, parentConversationId: parent, forkedFromConversationId: fork } = summary;
	return {
		...Object.fromEntries(OF_HEAD.map((name) => [name, columnValue(head[name])])),
		agent_kind: keyOf(summary.agentKind),
		model: keyOf(summary.model),
		// A summary that cannot be rewritten still names a conversation that was erased.
		parent_id: head.parent_id === null || parent === undefined ? null : keyOf(parent),
		source_id: head.source_id === null || fork === undefined ? null : keyOf(fork),
		cost: summary.accumulatedCost === undefined ? NOT_REPORTED : sumOfCosts([summary.accumulatedCost]),
		tokens: orderedTokens(summary.tokens),
		activity_at: columnValue(head.last_at ?? head.updated_at),
		has_error: hasError(head),
		title,
		title_words: title === before?.title ? columnValue(before.title_words) : title === null ? null : titleWords(title),
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
