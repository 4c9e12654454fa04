import { conditionSql } from "./conversation-lists.ts";
import { writeCriticResults } from "./scores.ts";
import { allOf, type Session, type Sql, sql } from "./session.ts";
import {
	type DocumentQuery,
	type EventWords,
	type FoundDocument,
	type IndexProgress,
	type IndexStep,
	type IndexTerm,
	newestFirst,
} from "./text-index.ts";
import { bigint, bindable, integer, nullable, text } from "./values.ts";

/** The steps by which the index of search is written, and the documents that it finds. */

export async function readIndexProgress({ all, dialect: { schema } }: Session): Promise<IndexProgress> {
	const [row] = await all(`SELECT version, events FROM ${schema}search_progress`);
	return { version: integer(row?.version), events: bigint(row?.events) };
}

/** Writes a step. Returns whether it was written: see {@link IndexStep.expects}. */
async function writeIndexStep(session: Session, { expects, next, events }: IndexStep): Promise<boolean> {
	const { all, isAmong, dialect } = session;
	const moved = await all(
		`UPDATE ${dialect.schema}search_progress SET version = ?, events = ?
		WHERE version = ? AND events = ? RETURNING id`,
		...[next, expects].flatMap(({ version, events }) => [version, events]),
	);
	if (moved.length === 0) return false;
	// A removal of these events waits for the locks, and then removes the words too.
	await session.lock([...new Set(events.map(({ conversationId }) => conversationId))]);
	const select = (columns: string, of: readonly EventWords[]) =>
		all(
			`SELECT ${columns} FROM ${dialect.schema}events WHERE ${isAmong("sequence")}`,
			of.map(({ sequence }) => sequence),
		);
	const stored = new Set((await select("sequence", events)).map(({ sequence }) => bigint(sequence)));
	await session.writeWords(events.filter(({ sequence }) => stored.has(sequence)));
	const ofCritics = events.filter(({ criticResult }) => criticResult !== undefined);
	const resultOf = new Map(ofCritics.map(({ sequence, criticResult }) => [sequence, criticResult]));
	const columns = "conversation_id, sequence, event_id, owner, received_at";
	const rows = ofCritics.length === 0 ? [] : await select(columns, ofCritics);
	const results = rows.flatMap((row) => {
		const result = resultOf.get(bigint(row.sequence));
		const [conversationId, eventId] = [text(row.conversation_id), text(row.event_id)];
		const owner = nullable(text, row.owner) ?? "";
		return result === undefined
			? []
			: [{ conversationId, eventId, owner, givenAt: bigint(row.received_at), ...result }];
	});
	await writeCriticResults(session, results);
	return true;
}

/** Lets the index be written anew from the beginning. What it had is found until then, where the engine does not empty it. */
async function resetIndex(session: Session): Promise<void> {
	await session.all(`UPDATE ${session.dialect.schema}search_progress SET version = 0, events = 0`);
	await session.emptyWords();
}

/** Where all documents are. */
const EVERYWHERE = { before: { event: 2n ** 62n, title: 0n }, from: { event: -1n, title: 0n } };

/** Returns the sequences that the events of a query are less than and at least. */
export function eventRange({ before = EVERYWHERE.before, from = EVERYWHERE.from }: DocumentQuery): bigint[] {
	return [before, from].map(({ event, title }) => bindable(event + (title > 0n ? 1n : 0n)));
}

/** Finds documents: see `Store.findDocuments`. */
export async function findDocuments(session: Session, query: DocumentQuery): Promise<FoundDocument[]> {
	const { conditions, of, limit } = query;
	const tests = conditionSql(conditions, session).map(({ test }) => test);
	const [texts, titles] = await Promise.all([
		session.findTexts(query, tests),
		findTitles(session, query, tests, of === undefined ? limit : Math.max(1, of.length)),
	]);
	const found = [...texts, ...titles];
	return of === undefined ? found.sort(newestFirst).slice(0, limit) : found;
}

/** Reads the titles of all conversations that pass the other tests. */
async function findTitles(
	{ all, isIn, dialect: { schema, placeOf } }: Session,
	{ required, excluded, of, except = [], before = EVERYWHERE.before, from = EVERYWHERE.from }: DocumentQuery,
	tests: readonly Sql[],
	limit: number,
): Promise<FoundDocument[]> {
	const contains = ({ word, isPrefix }: IndexTerm, is: string) =>
		sql(`${placeOf}(c.title_words, ?) ${is} 0`, isPrefix ? ` ${word}` : ` ${word} `);
	const where = allOf([
		...tests,
		...(of === undefined ? [] : [sql(isIn("c.conversation_id"), of)]),
		...(except.length === 0 ? [] : [sql(`NOT ${isIn("c.conversation_id")}`, except)]),
		...required.map((term) => contains(term, ">")),
		...excluded.map((term) => contains(term, "=")),
	]);
	const rows = await all(
		`SELECT * FROM (
			SELECT c.conversation_id, c.sequence AS title, coalesce((
				SELECT max(e.sequence) FROM ${schema}events e WHERE e.conversation_id = c.conversation_id
			), 0) AS event
			FROM ${schema}conversations c WHERE ${where.text}
		) d
		WHERE (event, title) < (?, ?) AND (event, title) >= (?, ?)
		ORDER BY event DESC, title DESC LIMIT ?`,
		...where.parameters,
		...[before, from].flatMap(({ event, title }) => [event, title]),
		limit,
	);
	return rows.map((row) => ({
		conversationId: text(row.conversation_id),
		event: bigint(row.event),
		title: bigint(row.title),
	}));
}

export const indexWrites = { writeIndexStep, resetIndex };
