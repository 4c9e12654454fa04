import type { Condition } from "../condition.ts";
import { allOf, conditionSql } from "../conversation-lists.ts";
import type { Sql } from "../session.ts";
import {
	type DocumentQuery,
	type FoundDocument,
	type IndexStep,
	type IndexTerm,
	newestFirst,
	type TitleWords,
} from "../text-index.ts";
import { bigint, bindable, nullable, text } from "../values.ts";
import { SQLITE } from "./dialect.ts";
import { bound, type Statements } from "./statements.ts";

/** Begins the word by which the documents of a conversation are found. No word of a text has it. */
const CONVERSATION_MARK = "\ue000";

/** See `Session.writeWords`. */
export function writeWords(statements: Statements, { events, titles }: Pick<IndexStep, "events" | "titles">): void {
	const activityOf = statements.prepare("SELECT activity FROM events WHERE sequence = ?");
	const insert = statements.prepare("INSERT INTO search_texts (rowid, words) VALUES (?, ?)");
	for (const { sequence, words } of events) {
		const activity = nullable(bigint, activityOf.get(sequence)?.activity ?? null);
		if (activity !== undefined) insert.run(sequence, [...words, conversationWord(activity)].join(" "));
	}
	for (const title of titles) writeTitle(statements, title);
}

function writeTitle(statements: Statements, { conversationId, digest, words }: TitleWords): void {
	const row = statements.prepare("SELECT id FROM heads WHERE conversation_id = ?").get(conversationId);
	if (row === undefined) return;
	const id = bigint(row.id);
	removeTitle(statements, id);
	if (words.length === 0) return;
	statements.prepare("INSERT INTO search_titles VALUES (?, ?)").run(id, digest);
	statements.prepare("INSERT INTO search_title_words (rowid, words) VALUES (?, ?)").run(id, words.join(" "));
}

/** Removes the title of a conversation from the index. The caller has begun a transaction. */
export function removeTitle(statements: Statements, conversation: bigint): void {
	const { changes } = statements.prepare("DELETE FROM search_titles WHERE conversation = ?").run(conversation);
	if (changes > 0) statements.prepare("DELETE FROM search_title_words WHERE rowid = ?").run(conversation);
}

/** Removes the texts of an event from the index, if it has them. The caller has begun a transaction. */
export function removeEventText(statements: Statements, sequence: bigint): void {
	statements.prepare("DELETE FROM search_texts WHERE rowid = ?").run(sequence);
}

/** See `Session.removeWords`. */
export function removeWords(statements: Statements): boolean {
	for (const table of ["search_texts", "search_title_words"])
		statements.prepare(`INSERT INTO ${table} (${table}) VALUES ('delete-all')`).run();
	statements.prepare("DELETE FROM search_titles").run();
	return false;
}

/** Finds documents: see `TextIndex.find`. */
export function findDocuments(statements: Statements, query: DocumentQuery): FoundDocument[] {
	const { of, limit } = query;
	if (of !== undefined) return [...findEventsOf(statements, query, of), ...findTitlesOf(statements, query, of)];
	const filter = filterOf(query.conditions);
	if (query.except !== undefined && query.except.length > 0)
		filter.push({
			text: "c.conversation_id NOT IN (SELECT value FROM json_each(?))",
			parameters: [JSON.stringify(query.except)],
		});
	return [...findEvents(statements, query, filter, [], limit), ...findTitles(statements, query, filter)]
		.sort(newestFirst)
		.slice(0, limit);
}

/** Number of conversations whose documents are found together. */
const TOGETHER = 50;

function findEventsOf(statements: Statements, query: DocumentQuery, of: readonly string[]): FoundDocument[] {
	const filter = filterOf(query.conditions);
	const find = statements.prepare("SELECT id FROM activities WHERE conversation_id = ?");
	const words = of.flatMap((id) => {
		const row = find.get(id);
		return row === undefined ? [] : [conversationWord(bigint(row.id))];
	});
	// A search for a prefix begins with the lists of all words that have it.
	const together = [...query.required, ...query.excluded].some(({ isPrefix }) => isPrefix) ? TOGETHER : 1;
	const found: FoundDocument[] = [];
	for (let at = 0; at < words.length; at += together)
		found.push(...newestOfEach(statements, query, filter, words.slice(at, at + together)));
	return found;
}

/** Finds the newest documents of each of some conversations. */
function newestOfEach(
	statements: Statements,
	query: DocumentQuery,
	filter: readonly Sql[],
	words: readonly string[],
): FoundDocument[] {
	if (words.length === 1) return [...findEvents(statements, query, filter, words, query.limit)];
	const found = new Map<string, FoundDocument[]>();
	let complete = 0;
	for (const document of findEvents(statements, query, filter, words, -1)) {
		const own = found.get(document.conversationId) ?? [];
		if (own.length === query.limit) continue;
		found.set(document.conversationId, [...own, document]);
		if (own.length + 1 === query.limit) complete += 1;
		if (complete === words.length) break;
	}
	return [...found.values()].flat();
}

/**
 * @param words unless empty, the documents must have one of these words
 * @param limit -1 for none
 */
function* findEvents(
	statements: Statements,
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
			SELECT e.sequence, a.conversation_id
			FROM search_texts CROSS JOIN events e ON e.sequence = search_texts.rowid
			CROSS JOIN activities a ON a.id = e.activity
			CROSS JOIN conversations c ON c.conversation_id = a.conversation_id
			WHERE search_texts MATCH ? AND search_texts.rowid < ? AND search_texts.rowid >= ?
				${filter.map((one) => `AND ${one.text}`).join(" ")}
			ORDER BY search_texts.rowid DESC LIMIT ?
		`)
		.iterate(matchOf(query, words), bindable(below), least, ...allOf(filter).parameters.map(bound), limit);
	for (const row of rows) yield { conversationId: text(row.conversation_id), event: bigint(row.sequence), title: 0n };
}

function findTitlesOf(statements: Statements, query: DocumentQuery, of: readonly string[]): FoundDocument[] {
	const find = statements.prepare("SELECT id FROM heads WHERE conversation_id = ?");
	return of.flatMap((id) => {
		const row = find.get(id);
		if (row === undefined) return [];
		const own = { text: "search_title_words.rowid = ?", parameters: [bigint(row.id)] };
		return findTitles(statements, query, [...filterOf(query.conditions), own]);
	});
}

function findTitles(
	statements: Statements,
	{ before = { event: 2n ** 62n, title: 0n }, from = { event: -1n, title: 0n }, limit, ...query }: DocumentQuery,
	filter: readonly Sql[],
): FoundDocument[] {
	const rows = statements
		.prepare(`
			SELECT conversation_id, position, sequence FROM (
				SELECT c.conversation_id, c.sequence, coalesce((
					SELECT max(e.sequence) FROM activities a JOIN events e ON e.activity = a.id
					WHERE a.conversation_id = c.conversation_id
				), 0) AS position
				FROM search_title_words CROSS JOIN conversations c ON c.id = search_title_words.rowid
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

function conversationWord(activity: bigint): string {
	return `${CONVERSATION_MARK}${activity.toString(36)}`;
}
