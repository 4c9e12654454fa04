import { crc32 } from "node:zlib";
import type { Condition } from "../condition.ts";
import { conditionSql } from "../conversation-lists.ts";
import { allOf, type Sql } from "../session.ts";
import {
	type DocumentQuery,
	type FoundDocument,
	type IndexTerm,
	newestFirst,
	type WordsOfDocuments,
} from "../text-index.ts";
import { bigint, bindable, text } from "../values.ts";
import { bound, IN_LIST, type Prepares, SQLITE } from "./sql.ts";

/** Begins the word by which the documents of a conversation are found. No word of a text has it. */
const CONVERSATION_MARK = "\ue000";

/**
 * The indexes of words and titles. `search_texts` has the words of the texts of events, without their order, and a word for
 * the conversation; its row ids are the sequences of the events. Those of `search_title_words` and `title_trigrams` are the
 * sequences in `titles`.
 *
 * The tokenizer changes nothing of the words, which have no other ASCII characters than letters and digits. Beginnings of
 * words of two characters have lists of their own: without them, the lists of all words with such a beginning are merged for
 * each search, which takes seconds. With 'usermerge' 2, the merges of an index of words that an erasure begins go on until
 * all is in one segment.
 */
export const INDEXES_OF_WORDS: readonly string[] = [
	...Object.entries({
		search_texts: "words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'",
		search_title_words: "words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2'",
		title_trigrams: "title, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram'",
	}).flatMap(([name, options]) => [
		`CREATE VIRTUAL TABLE ${name} USING fts5 (${options})`,
		`INSERT INTO ${name} (${name}, rank) VALUES ('usermerge', 2)`,
	]),
	`CREATE TRIGGER titles_inserted AFTER INSERT ON titles BEGIN
		INSERT INTO title_trigrams (rowid, title) VALUES (new.sequence, new.title);
	END`,
	`CREATE TRIGGER titles_removed AFTER DELETE ON titles BEGIN
		DELETE FROM title_trigrams WHERE rowid = old.sequence;
		DELETE FROM search_title_words WHERE rowid = old.sequence;
	END`,
];

/** See `Session.writeWords`. */
export function writeWords(statements: Prepares, { events, titles }: WordsOfDocuments): void {
	const text = statements.prepare("REPLACE INTO search_texts (rowid, words) VALUES (?, ?)");
	for (const { sequence, words, conversationId } of events)
		text.run(sequence, [...words, conversationWord(conversationId)].join(" "));
	const title = statements.prepare(
		"REPLACE INTO search_title_words (rowid, words) SELECT sequence, ? FROM titles WHERE sequence = ?",
	);
	for (const { sequence, words } of titles) title.run(words.join(" "), sequence);
}

/** See `Session.emptyWords`. */
export function emptyWords(statements: Prepares): void {
	for (const index of ["search_texts", "search_title_words"])
		statements.prepare(`INSERT INTO ${index} (${index}) VALUES ('delete-all')`).run();
}

/** Finds documents: see `Store.findDocuments`. */
export function findDocuments(statements: Prepares, query: DocumentQuery): FoundDocument[] {
	const { of, limit } = query;
	const filter = filterOf(query.conditions);
	if (of !== undefined) {
		const own = `search_title_words.rowid IN (SELECT sequence FROM titles WHERE conversation_id ${IN_LIST})`;
		const titles = findTitles(statements, query, [...filter, { text: own, parameters: [of] }], of.length);
		return [...findEventsOf(statements, query, of), ...titles];
	}
	if (query.except !== undefined && query.except.length > 0)
		filter.push({
			text: `NOT c.conversation_id ${IN_LIST}`,
			parameters: [query.except],
		});
	return [...findEvents(statements, query, filter, [], limit), ...findTitles(statements, query, filter, limit)]
		.sort(newestFirst)
		.slice(0, limit);
}

/** Number of conversations whose documents are found together. */
const TOGETHER = 50;

function findEventsOf(statements: Prepares, query: DocumentQuery, of: readonly string[]): FoundDocument[] {
	const filter = filterOf(query.conditions);
	// A search for a prefix begins with the lists of all words that have it.
	const together = [...query.required, ...query.excluded].some(({ isPrefix }) => isPrefix) ? TOGETHER : 1;
	const found: FoundDocument[] = [];
	for (let at = 0; at < of.length; at += together)
		found.push(...newestOfEach(statements, query, filter, of.slice(at, at + together)));
	return found;
}

/** Finds the newest documents of each of some conversations. */
function newestOfEach(
	statements: Prepares,
	query: DocumentQuery,
	filter: readonly Sql[],
	of: readonly string[],
): FoundDocument[] {
	const words = [...new Set(of.map(conversationWord))];
	// Conversations can have the same word.
	const own = [...filter, { text: `e.conversation_id ${IN_LIST}`, parameters: [of] }];
	if (of.length === 1) return [...findEvents(statements, query, own, words, query.limit)];
	const found = new Map<string, FoundDocument[]>();
	let complete = 0;
	for (const document of findEvents(statements, query, own, words, -1)) {
		const known = found.get(document.conversationId) ?? [];
		if (known.length === query.limit) continue;
		found.set(document.conversationId, [...known, document]);
		if (known.length + 1 === query.limit) complete += 1;
		if (complete === of.length) break;
	}
	return [...found.values()].flat();
}

/**
 * @param words unless empty, the documents must have one of these words
 * @param limit -1 for none
 */
function* findEvents(
	statements: Prepares,
	{ before, from, ...query }: DocumentQuery,
	filter: readonly Sql[],
	words: readonly string[],
	limit: number,
): Generator<FoundDocument> {
	const below = before === undefined ? 2n ** 63n : before.event + (before.title > 0n ? 1n : 0n);
	const least = from === undefined ? 0n : from.event + (from.title > 0n ? 1n : 0n);
	// The joins follow the index, which has the order.
	const rows = statements
		.prepare(`
			SELECT e.sequence, e.conversation_id
			FROM search_texts CROSS JOIN events e ON e.sequence = search_texts.rowid
			CROSS JOIN conversations c ON c.conversation_id = e.conversation_id
			WHERE search_texts MATCH ? AND search_texts.rowid < ? AND search_texts.rowid >= ?
				${filter.map((one) => `AND ${one.text}`).join(" ")}
			ORDER BY search_texts.rowid DESC LIMIT ?
		`)
		.iterate(matchOf(query, words), bindable(below), least, ...allOf(filter).parameters.map(bound), limit);
	for (const row of rows) yield { conversationId: text(row.conversation_id), event: bigint(row.sequence), title: 0n };
}

function findTitles(
	statements: Prepares,
	{ before = { event: 2n ** 62n, title: 0n }, from = { event: -1n, title: 0n }, ...query }: DocumentQuery,
	filter: readonly Sql[],
	limit: number,
): FoundDocument[] {
	const rows = statements
		.prepare(`
			SELECT conversation_id, position, sequence FROM (
				SELECT c.conversation_id, c.sequence, coalesce((
					SELECT max(e.sequence) FROM events e WHERE e.conversation_id = c.conversation_id
				), 0) AS position
				FROM search_title_words CROSS JOIN titles s ON s.sequence = search_title_words.rowid
				CROSS JOIN conversations c ON c.conversation_id = s.conversation_id
				WHERE search_title_words MATCH ? ${filter.map((one) => `AND ${one.text}`).join(" ")}
			)
			WHERE (position, sequence) < (?, ?) AND (position, sequence) >= (?, ?)
			ORDER BY position DESC, sequence DESC LIMIT ?
		`)
		.all(
			matchOf(query, []),
			...allOf(filter).parameters.map(bound),
			before.event,
			before.title,
			from.event,
			from.title,
			limit,
		);
	return rows.map((row) => ({
		conversationId: text(row.conversation_id),
		event: bigint(row.position),
		title: bigint(row.sequence),
	}));
}

function filterOf(conditions: readonly Condition[]): Sql[] {
	return conditionSql(conditions, SQLITE).map(({ test }) => test);
}

/**
 * Returns a query of FTS5.
 *
 * @param words unless empty, the documents must have one of these words
 */
function matchOf(
	{ required, excluded }: Pick<DocumentQuery, "required" | "excluded">,
	words: readonly string[],
): string {
	const own = words.length === 0 ? [] : [`(${words.map((word) => termOf({ word, isPrefix: false })).join(" OR ")})`];
	const all = [...own, ...required.map(termOf)].join(" AND ");
	return excluded.length === 0 ? all : `(${all}) NOT (${excluded.map(termOf).join(" OR ")})`;
}

function termOf({ word, isPrefix }: IndexTerm): string {
	return `"${word}"${isPrefix ? " *" : ""}`;
}

/** A short word: each text has that of its conversation. */
function conversationWord(conversationId: string): string {
	return `${CONVERSATION_MARK}${crc32(conversationId).toString(36)}`;
}
