import type { Condition } from "../condition.ts";
import { conditionSql } from "../conversation-lists.ts";
import { tableOf } from "../tables.ts";
import {
	type DocumentPosition,
	type DocumentQuery,
	type FoundDocument,
	type IndexTerm,
	newestFirst,
	type WordsOfDocuments,
} from "../text-index.ts";
import { bigint, bindable, isConversationId, text } from "../values.ts";
import { insertRows, orReplace, POSTGRES, Sql } from "./sql.ts";
import type { Query, Session } from "./transaction.ts";

/** See `Session.writeWords`. */
export async function writeWords(session: Session, { events, titles }: WordsOfDocuments): Promise<void> {
	const texts = events.map(({ conversationId, sequence, words }) => ({
		conversation_id: conversationId,
		sequence,
		words: vectorOf(words),
	}));
	await session.query(
		...insertRows(TEXTS, texts, orReplace(TEXTS)),
		...titles.map(({ conversationId, sequence, words }) => ({
			name: "write_title_words",
			text: "UPDATE conversation_updates.titles SET words = $1 WHERE conversation_id = $2 AND sequence = $3",
			values: [vectorOf(words), conversationId, sequence],
		})),
	);
}

const TEXTS = tableOf("postgres", "search_texts");

/** Returns the text form of a `tsvector`. */
function vectorOf(words: readonly string[]): string {
	return words.map((word) => `'${word}'`).join(" ");
}

const NEWEST: DocumentPosition = { event: 2n ** 62n, title: 0n };
const OLDEST: DocumentPosition = { event: -1n, title: 0n };

/** Finds documents: see `Store.findDocuments`. */
export async function findDocuments(session: Session, query: DocumentQuery): Promise<FoundDocument[]> {
	const of = query.of?.filter(isConversationId);
	const [events = [], titles = []] = await session.query(eventsQuery(query, of), titlesQuery(query, of));
	const found = [...events, ...titles].map((row) => ({
		conversationId: text(row.conversation_id),
		event: bigint(row.position),
		title: bigint(row.title),
	}));
	return of === undefined ? found.sort(newestFirst).slice(0, query.limit) : found;
}

/** Of all conversations it follows the order of events, or sorts what the index of words finds, as the planner chooses. */
function eventsQuery(query: DocumentQuery, of: readonly string[] | undefined): Query {
	const sql = new Sql();
	const tests = filterOf(query.conditions, sql);
	const found = (column: string, ofThese: string) => `
		SELECT s.sequence AS position, 0::bigint AS title, s.conversation_id ${column}
		FROM conversation_updates.search_texts s
		JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id
		WHERE s.words @@ ${sql.value(tsQuery(query))}::tsquery AND ${eventRange(query, "s", sql)} ${tests}
			${except(query, sql)} ${ofThese}
	`;
	const limit = sql.value(query.limit);
	if (of === undefined) return sql.query(`${found("", "")} ORDER BY position DESC LIMIT ${limit}`);
	const number = ", row_number() OVER (PARTITION BY s.conversation_id ORDER BY s.sequence DESC) AS number";
	const ofThese = `AND s.conversation_id = ANY (${sql.value(of)}::uuid[])`;
	return sql.query(`
		SELECT d.position, d.title, d.conversation_id FROM (${found(number, ofThese)}) d
		WHERE d.number <= ${limit} ORDER BY d.position DESC
	`);
}

function titlesQuery(query: DocumentQuery, of: readonly string[] | undefined): Query {
	const { before = NEWEST, from = OLDEST, limit } = query;
	const sql = new Sql();
	const tests = filterOf(query.conditions, sql);
	const ofThese = of === undefined ? "" : `AND s.conversation_id = ANY (${sql.value(of)}::uuid[])`;
	const count = of === undefined ? limit : Math.max(1, of.length);
	return sql.query(`
		SELECT * FROM (
			SELECT s.conversation_id, c.sequence AS title, coalesce((
				SELECT max(e.sequence) FROM conversation_updates.events e WHERE e.conversation_id = c.conversation_id
			), 0) AS position
			FROM conversation_updates.titles s
			JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id
			WHERE s.words @@ ${sql.value(tsQuery(query))}::tsquery ${tests} ${ofThese} ${except(query, sql)}
		) d
		WHERE (position, title) < (${sql.value(before.event)}, ${sql.value(before.title)})
			AND (position, title) >= (${sql.value(from.event)}, ${sql.value(from.title)})
		ORDER BY position DESC, title DESC LIMIT ${sql.value(count)}
	`);
}

function eventRange({ before = NEWEST, from = OLDEST }: DocumentQuery, alias: string, sql: Sql): string {
	const [below, least] = [before, from].map(({ event, title }) => bindable(event + (title > 0n ? 1n : 0n)));
	return `${alias}.sequence < ${sql.value(below)} AND ${alias}.sequence >= ${sql.value(least)}`;
}

function except({ except: excluded = [] }: DocumentQuery, sql: Sql): string {
	return excluded.length === 0 ? "" : `AND s.conversation_id <> ALL (${sql.value(excluded)}::uuid[])`;
}

function filterOf(conditions: readonly Condition[], sql: Sql): string {
	return conditionSql(conditions, POSTGRES)
		.map(({ test }) => `AND ${sql.fragment(test)}`)
		.join(" ");
}

function tsQuery({ required, excluded }: Pick<DocumentQuery, "required" | "excluded">): string {
	return [...required.map(termOf), ...excluded.map((term) => `!${termOf(term)}`)].join(" & ");
}

/** Words have no characters that would have to be escaped. */
function termOf({ word, isPrefix }: IndexTerm): string {
	return `'${word}'${isPrefix ? ":*" : ""}`;
}
