import type { Condition } from "../condition.ts";
import { conditionSql } from "../conversation-lists.ts";
import { tableOf } from "../tables.ts";
import {
	type DocumentPosition,
	type DocumentQuery,
	type FoundDocument,
	type IndexStep,
	type IndexTerm,
	newestFirst,
} from "../text-index.ts";
import { bigint, bindable, integer, isConversationId, text } from "../values.ts";
import { lockSettled } from "./citus.ts";
import { insertRows, POSTGRES, Sql } from "./sql.ts";
import type { Query, Session } from "./transaction.ts";

/**
 * See `Session.writeWords`. The locks on conversations let the removal of their events wait, which then removes the words too.
 */
export async function writeWords(
	session: Session,
	{ events, titles }: Pick<IndexStep, "events" | "titles">,
): Promise<void> {
	const found = {
		text: "SELECT conversation_id, sequence FROM conversation_updates.events WHERE sequence = ANY ($1::bigint[])",
		values: [events.map(({ sequence }) => sequence)],
	};
	const titled = titles.map(({ conversationId }) => conversationId);
	const [rows = []] = await session.query(found);
	const ids = new Set([...rows.map(({ conversation_id }) => text(conversation_id)), ...titled]);
	await lockSettled(session, [...ids]);
	const [present = [], heads = []] = await session.query(found, {
		text: "SELECT conversation_id FROM conversation_updates.heads WHERE conversation_id = ANY ($1::uuid[])",
		values: [titled],
	});
	const wordsOf = new Map(events.map(({ sequence, words }) => [sequence, words]));
	const texts = present.map(({ conversation_id, sequence }) => ({
		conversation_id: text(conversation_id),
		sequence: bigint(sequence),
		words: vectorOf(wordsOf.get(bigint(sequence)) ?? []),
	}));
	const exist = new Set(heads.map(({ conversation_id }) => text(conversation_id)));
	const kept = titles.filter(({ conversationId, words }) => words.length > 0 && exist.has(conversationId));
	await session.query(
		...insertRows(TEXTS, texts),
		{
			text: "DELETE FROM conversation_updates.search_titles WHERE conversation_id = ANY ($1::uuid[])",
			values: [titled],
		},
		...insertRows(
			TITLES,
			kept.map(({ conversationId, sequence, digest, words }) => ({
				conversation_id: conversationId,
				sequence,
				digest,
				words: vectorOf(words),
			})),
		),
	);
}

const TEXTS = tableOf("postgres", "search_texts");
const TITLES = tableOf("postgres", "search_titles");

/** Returns the text form of a `tsvector`. */
function vectorOf(words: readonly string[]): string {
	return words.map((word) => `'${word}'`).join(" ");
}

/** Maximum number of documents of a table that a transaction removes. */
const REMOVED = 5_000;

/** See `Session.removeWords`. Not with TRUNCATE, for which the role of the service may lack the privilege. */
export async function removeWords(session: Session): Promise<boolean> {
	const tables = { search_texts: "sequence", search_titles: "conversation_id" };
	const removed = await session.query(
		...Object.entries(tables).map(([table, key]) => ({
			text: `
				WITH gone AS (
					DELETE FROM conversation_updates.${table} WHERE ${key} IN (
						SELECT ${key} FROM conversation_updates.${table} ORDER BY ${key} LIMIT ${REMOVED}
					) RETURNING 1
				)
				SELECT count(*) AS count FROM gone
			`,
		})),
	);
	return removed.some((rows) => integer(rows[0]?.count) === REMOVED);
}

const NEWEST: DocumentPosition = { event: 2n ** 62n, title: 0n };
const OLDEST: DocumentPosition = { event: -1n, title: 0n };

/** Finds documents: see `Store.findDocuments`. */
export async function findDocuments(session: Session, query: DocumentQuery): Promise<FoundDocument[]> {
	const of = query.of?.filter(isConversationId);
	const [events = [], titles = []] = await session.query(
		of === undefined ? eventsOfAll(query) : eventsOf(query, of),
		titlesQuery(query, of),
	);
	const found = [...events, ...titles].map((row) => ({
		conversationId: text(row.conversation_id),
		event: bigint(row.position),
		title: bigint(row.title),
	}));
	return of === undefined ? found.sort(newestFirst).slice(0, query.limit) : found;
}

/** Follows the order of events, or sorts what the index of words finds, as the planner chooses. */
function eventsOfAll(query: DocumentQuery): Query {
	const sql = new Sql();
	const tests = filterOf(query.conditions, sql);
	return sql.query(`
		SELECT s.sequence AS position, 0::bigint AS title, s.conversation_id
		FROM conversation_updates.search_texts s
		JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id
		WHERE s.words @@ ${sql.value(tsQuery(query))}::tsquery AND ${eventRange(query, "s", sql)} ${tests}
			${except(query, sql)}
		ORDER BY s.sequence DESC LIMIT ${sql.value(query.limit)}
	`);
}

function eventsOf(query: DocumentQuery, of: readonly string[]): Query {
	const sql = new Sql();
	const tests = filterOf(query.conditions, sql);
	return sql.query(`
		SELECT d.position, d.title, d.conversation_id FROM (
			SELECT s.sequence AS position, 0::bigint AS title, s.conversation_id,
				row_number() OVER (PARTITION BY s.conversation_id ORDER BY s.sequence DESC) AS number
			FROM conversation_updates.search_texts s
			JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id
			WHERE s.conversation_id = ANY (${sql.value(of)}::uuid[]) AND s.words @@ ${sql.value(tsQuery(query))}::tsquery
				AND ${eventRange(query, "s", sql)} ${tests}
		) d
		WHERE d.number <= ${sql.value(query.limit)} ORDER BY d.position DESC
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
			FROM conversation_updates.search_titles s
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
