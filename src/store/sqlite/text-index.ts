import { crc32 } from "node:zlib";
import { eventRange } from "../index-steps.ts";
import { allOf, type Sql, sql } from "../session.ts";
import type { DocumentQuery, EventWords, FoundDocument, IndexTerm } from "../text-index.ts";
import { bigint, text } from "../values.ts";
import { bound, IN_LIST, type Prepares } from "./sql.ts";

/** Begins the word by which the documents of a conversation are found. No word of a text has it. */
const CONVERSATION_MARK = "\ue000";

/**
 * The index of words. `search_texts` has the words of the texts of events, without their order, and a word for the
 * conversation; its row ids are the sequences of the events.
 *
 * The tokenizer changes nothing of the words, which have no other ASCII characters than letters and digits. Beginnings of
 * words of two characters have lists of their own: without them, the lists of all words with such a beginning are merged for
 * each search, which takes seconds. With 'usermerge' 2, the merges of an index of words that an erasure begins go on until
 * all is in one segment.
 */
export const INDEX_OF_WORDS: readonly string[] = [
	`CREATE VIRTUAL TABLE search_texts
		USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii', prefix = '2')`,
	"INSERT INTO search_texts (search_texts, rank) VALUES ('usermerge', 2)",
];

/** See `Session.writeWords`. */
export function writeWords(statements: Prepares, events: readonly EventWords[]): void {
	const text = statements.prepare("REPLACE INTO search_texts (rowid, words) VALUES (?, ?)");
	for (const { sequence, words, conversationId } of events)
		text.run(sequence, `${words} ${conversationWord(conversationId)}`);
}

/** See `Session.findTexts`. */
export function findTexts(statements: Prepares, query: DocumentQuery, tests: readonly Sql[]): FoundDocument[] {
	const { of, except = [], limit } = query;
	if (of !== undefined) return findTextsOf(statements, query, tests, of);
	const others = except.length === 0 ? [] : [sql(`NOT c.conversation_id ${IN_LIST}`, except)];
	return [...findAmong(statements, query, [...tests, ...others], [], limit)];
}

/** Number of conversations whose documents are found together. */
const TOGETHER = 50;

function findTextsOf(
	statements: Prepares,
	query: DocumentQuery,
	tests: readonly Sql[],
	of: readonly string[],
): FoundDocument[] {
	// A search for a prefix begins with the lists of all words that have it.
	const together = [...query.required, ...query.excluded].some(({ isPrefix }) => isPrefix) ? TOGETHER : 1;
	const found: FoundDocument[] = [];
	for (let at = 0; at < of.length; at += together)
		found.push(...newestOfEach(statements, query, tests, of.slice(at, at + together)));
	return found;
}

/** Finds the newest texts of each of some conversations. */
function newestOfEach(
	statements: Prepares,
	query: DocumentQuery,
	tests: readonly Sql[],
	of: readonly string[],
): FoundDocument[] {
	const words = [...new Set(of.map(conversationWord))];
	// Conversations can have the same word.
	const own = [...tests, sql(`e.conversation_id ${IN_LIST}`, of)];
	if (of.length === 1) return [...findAmong(statements, query, own, words, query.limit)];
	const found = new Map<string, FoundDocument[]>();
	let complete = 0;
	for (const document of findAmong(statements, query, own, words, -1)) {
		const known = found.get(document.conversationId) ?? [];
		if (known.length === query.limit) continue;
		found.set(document.conversationId, [...known, document]);
		if (known.length + 1 === query.limit) complete += 1;
		if (complete === of.length) break;
	}
	return [...found.values()].flat();
}

/**
 * @param words unless empty, the texts must have one of these words
 * @param limit -1 for none
 */
function* findAmong(
	statements: Prepares,
	query: DocumentQuery,
	tests: readonly Sql[],
	words: readonly string[],
	limit: number,
): Generator<FoundDocument> {
	const where = allOf([
		sql("search_texts MATCH ?", matchOf(query, words)),
		sql("search_texts.rowid < ? AND search_texts.rowid >= ?", ...eventRange(query)),
		...tests,
	]);
	// The joins follow the index, which has the order.
	const rows = statements
		.prepare(`
			SELECT e.sequence, e.conversation_id
			FROM search_texts CROSS JOIN events e ON e.sequence = search_texts.rowid
			CROSS JOIN conversations c ON c.conversation_id = e.conversation_id
			WHERE ${where.text} ORDER BY search_texts.rowid DESC LIMIT ?
		`)
		.iterate(...where.parameters.map(bound), limit);
	for (const row of rows) yield { conversationId: text(row.conversation_id), event: bigint(row.sequence), title: 0n };
}

/**
 * Returns a query of FTS5.
 *
 * @param words unless empty, the texts must have one of these words
 */
function matchOf({ required, excluded }: DocumentQuery, words: readonly string[]): string {
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
