import { eventRange } from "../index-steps.ts";
import { allOf, type Session, type Sql, sql } from "../session.ts";
import type { DocumentQuery, EventWords, FoundDocument, IndexTerm } from "../text-index.ts";
import { bigint, text } from "../values.ts";

/** See `Session.writeWords`. Words are in the text form of a `tsvector`. */
export async function writeWords(session: Session, events: readonly EventWords[]): Promise<void> {
	const texts = events.map(({ conversationId, sequence, words }) => ({
		before: undefined,
		after: { conversation_id: conversationId, sequence, words: words.replaceAll(/[^ ]+/g, "'$&'") },
	}));
	await session.write("search_texts", texts);
}

/**
 * See `Session.findTexts`. Of all conversations it follows the order of events, or sorts what the index of words finds, as the
 * planner chooses.
 */
export async function findTexts(
	{ all, isIn }: Session,
	query: DocumentQuery,
	tests: readonly Sql[],
): Promise<FoundDocument[]> {
	const { of, except = [], limit } = query;
	const where = allOf([
		sql("s.words @@ ?::tsquery", tsQuery(query)),
		...tests,
		...(of === undefined ? [] : [sql(isIn("s.conversation_id"), of)]),
		...(except.length === 0 ? [] : [sql(`NOT ${isIn("s.conversation_id")}`, except)]),
		sql("s.sequence < ? AND s.sequence >= ?", ...eventRange(query)),
	]);
	const found = (column: string) => `
		SELECT s.sequence, s.conversation_id ${column} FROM conversation_updates.search_texts s
		JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id WHERE ${where.text}
	`;
	const number = ", row_number() OVER (PARTITION BY s.conversation_id ORDER BY s.sequence DESC) AS number";
	const rows = await all(
		of === undefined
			? `${found("")} ORDER BY s.sequence DESC LIMIT ?`
			: `SELECT d.sequence, d.conversation_id FROM (${found(number)}) d WHERE d.number <= ? ORDER BY d.sequence DESC`,
		...where.parameters,
		limit,
	);
	return rows.map((row) => ({ conversationId: text(row.conversation_id), event: bigint(row.sequence), title: 0n }));
}

function tsQuery({ required, excluded }: DocumentQuery): string {
	return [...required.map(termOf), ...excluded.map((term) => `!${termOf(term)}`)].join(" & ");
}

/** Words have no characters that would have to be escaped. */
function termOf({ word, isPrefix }: IndexTerm): string {
	return `'${word}'${isPrefix ? ":*" : ""}`;
}
