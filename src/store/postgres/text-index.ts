import { conditionSql } from "../conversation-lists.ts";
import { allOf, type Session, type Sql } from "../session.ts";
import {
	type DocumentPosition,
	type DocumentQuery,
	type FoundDocument,
	type IndexTerm,
	newestFirst,
	type WordsOfDocuments,
} from "../text-index.ts";
import { bigint, bindable, isConversationId, type Row, text } from "../values.ts";

/** See `Session.writeWords`. */
export async function writeWords(session: Session, { events, titles }: WordsOfDocuments): Promise<void> {
	const texts = events.map(({ conversationId, sequence, words }) => ({
		before: undefined,
		after: { conversation_id: conversationId, sequence, words: vectorOf(words) },
	}));
	await Promise.all([
		session.write("search_texts", texts),
		...titles.map(({ conversationId, sequence, words }) =>
			session.all(
				"UPDATE conversation_updates.titles SET words = ? WHERE conversation_id = ? AND sequence = ?",
				vectorOf(words),
				conversationId,
				sequence,
			),
		),
	]);
}

/** Returns the text form of a `tsvector`. */
function vectorOf(words: readonly string[]): string {
	return words.map((word) => `'${word}'`).join(" ");
}

const NEWEST: DocumentPosition = { event: 2n ** 62n, title: 0n };
const OLDEST: DocumentPosition = { event: -1n, title: 0n };

/** Finds documents: see `Store.findDocuments`. */
export async function findDocuments(session: Session, query: DocumentQuery): Promise<FoundDocument[]> {
	const of = query.of?.filter(isConversationId);
	const filter = filterOf(session, query, of);
	const [events, titles] = await Promise.all([
		findEvents(session, query, filter),
		findTitles(session, query, filter, of === undefined ? query.limit : Math.max(1, of.length)),
	]);
	const found = [...events, ...titles].map((row) => ({
		conversationId: text(row.conversation_id),
		event: bigint(row.position),
		title: bigint(row.title),
	}));
	return of === undefined ? found.sort(newestFirst).slice(0, query.limit) : found;
}

/** Of all conversations it follows the order of events, or sorts what the index of words finds, as the planner chooses. */
function findEvents(session: Session, query: DocumentQuery, filter: Sql): Promise<Row[]> {
	const found = (column: string) => `
		SELECT s.sequence AS position, 0::bigint AS title, s.conversation_id ${column}
		FROM conversation_updates.search_texts s ${filter.text} AND s.sequence < ? AND s.sequence >= ?
	`;
	const number = ", row_number() OVER (PARTITION BY s.conversation_id ORDER BY s.sequence DESC) AS number";
	const statement =
		query.of === undefined
			? `${found("")} ORDER BY position DESC LIMIT ?`
			: `SELECT d.position, d.title, d.conversation_id FROM (${found(number)}) d
				WHERE d.number <= ? ORDER BY d.position DESC`;
	return session.all(statement, ...filter.parameters, ...eventRange(query), query.limit);
}

function findTitles(session: Session, query: DocumentQuery, filter: Sql, limit: number): Promise<Row[]> {
	const { before = NEWEST, from = OLDEST } = query;
	const statement = `
		SELECT * FROM (
			SELECT s.conversation_id, c.sequence AS title, coalesce((
				SELECT max(e.sequence) FROM conversation_updates.events e WHERE e.conversation_id = c.conversation_id
			), 0) AS position
			FROM conversation_updates.titles s ${filter.text}
		) d
		WHERE (position, title) < (?, ?) AND (position, title) >= (?, ?)
		ORDER BY position DESC, title DESC LIMIT ?
	`;
	const positions = [before.event, before.title, from.event, from.title];
	return session.all(statement, ...filter.parameters, ...positions, limit);
}

/** Returns what the sequences of events are less than and at least. */
function eventRange({ before = NEWEST, from = OLDEST }: DocumentQuery): bigint[] {
	return [before, from].map(({ event, title }) => bindable(event + (title > 0n ? 1n : 0n)));
}

/** Joins the conversations `c` of documents `s`, and selects the documents that match a query. */
function filterOf(session: Session, query: DocumentQuery, of: readonly string[] | undefined): Sql {
	const tests: Sql[] = [
		{ text: "s.words @@ ?::tsquery", parameters: [tsQuery(query)] },
		...conditionSql(query.conditions, session).map(({ test }) => test),
	];
	if (of !== undefined) tests.push({ text: session.isIn("s.conversation_id"), parameters: [of] });
	else if (query.except !== undefined && query.except.length > 0)
		tests.push({ text: `NOT ${session.isIn("s.conversation_id")}`, parameters: [query.except] });
	const { text: where, parameters } = allOf(tests);
	return {
		text: `JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id WHERE ${where}`,
		parameters,
	};
}

function tsQuery({ required, excluded }: Pick<DocumentQuery, "required" | "excluded">): string {
	return [...required.map(termOf), ...excluded.map((term) => `!${termOf(term)}`)].join(" & ");
}

/** Words have no characters that would have to be escaped. */
function termOf({ word, isPrefix }: IndexTerm): string {
	return `'${word}'${isPrefix ? ":*" : ""}`;
}
