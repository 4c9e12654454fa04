import type { Condition } from "../condition.ts";
import { conditionSql } from "../conversation-lists.ts";
import { progressFrom } from "../index-steps.ts";
import { tableOf } from "../tables.ts";
import {
	CLAIM_SECONDS,
	type DocumentPosition,
	type DocumentQuery,
	type FoundDocument,
	type IndexProgress,
	type IndexStep,
	type IndexTerm,
	newestFirst,
	type TitleWords,
} from "../text-index.ts";
import { bigint, bindable, integer, type Row, text } from "../values.ts";
import { POSTGRES } from "./dialect.ts";
import { isConversationId } from "./rows.ts";
import { lockSettled } from "./settled.ts";
import { insertValues, json, orReplace, Sql } from "./sql.ts";
import type { Query, Session } from "./transaction.ts";

/** Returns the queries of a claim: see `TextIndex.claim`. The last one returns the progress if the claim succeeds. */
export function claimQueries(holder: string): Query[] {
	return [
		{
			// One write for several calls.
			text: `
				UPDATE conversation_updates.search_progress
				SET holder = $1, held_until = now() + make_interval(secs => $2)
				WHERE held_until IS NULL OR held_until < now()
					OR (holder = $1 AND held_until < now() + make_interval(secs => $2 / 2))
			`,
			values: [holder, CLAIM_SECONDS],
		},
		{
			text: `
				SELECT version, events, updates FROM conversation_updates.search_progress
				WHERE holder = $1 AND held_until > now()
			`,
			values: [holder],
		},
	];
}

/** Returns the progress that {@link claimQueries} returned; undefined when the claim did not succeed. */
export function claimedFrom(results: readonly (readonly Row[])[]): IndexProgress | undefined {
	const row = results.at(-1)?.[0];
	return row && progressFrom(row);
}

/** Returns the query of `TextIndex.release`. */
export function releaseQuery(holder: string): Query {
	return {
		text: "UPDATE conversation_updates.search_progress SET holder = NULL, held_until = NULL WHERE holder = $1",
		values: [holder],
	};
}

/** See `Session.writeWords`. */
export async function writeWords(
	session: Session,
	{ events, titles }: Pick<IndexStep, "events" | "titles">,
): Promise<void> {
	if (await session.isDistributed()) return await writeSpread(session, events, titles);
	await session.query(
		...(events.length === 0 ? [] : [eventsQuery(events)]),
		...(titles.length === 0 ? [] : titleQueries(titles)),
	);
}

/**
 * Writes the words of a step with Citus, which locks no rows on several servers. The lock on a conversation lets the removal
 * of its events wait, which then removes their words too.
 */
async function writeSpread(
	session: Session,
	events: IndexStep["events"],
	titles: readonly TitleWords[],
): Promise<void> {
	const found = {
		text: "SELECT conversation_id, sequence FROM conversation_updates.events WHERE sequence = ANY ($1::bigint[])",
		values: [events.map(({ sequence }) => sequence)],
	};
	const titled = titles.map(({ conversationId }) => conversationId);
	const [rows = []] = await session.query(found);
	const ids = new Set([...rows.map(({ conversation_id }) => text(conversation_id)), ...titled]);
	const [present = [], heads = []] = await lockSettled(session, ids, found, {
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
	const [withoutWords] = titleQueries(titles);
	await session.query(
		...insertValues(TEXTS, texts),
		...(titles.length === 0 || withoutWords === undefined ? [] : [withoutWords]),
		...insertValues(
			TITLES,
			kept.map(({ conversationId, digest, words }) => ({
				conversation_id: conversationId,
				digest,
				words: vectorOf(words),
			})),
			orReplace(TITLES),
		),
	);
}

const TEXTS = tableOf("postgres", "search_texts");
const TITLES = tableOf("postgres", "search_titles");

/** Returns the text form of a `tsvector`. */
function vectorOf(words: readonly string[]): string {
	return words.map((word) => `'${word}'`).join(" ");
}

/** The lock on an event lets its removal wait, which then removes its words too. */
function eventsQuery(events: IndexStep["events"]): Query {
	return {
		text: `
			INSERT INTO conversation_updates.search_texts (conversation_id, sequence, words)
			SELECT e.conversation_id, e.sequence, array_to_tsvector(r.words)
			FROM json_to_recordset($1::json) AS r (sequence bigint, words text[])
			JOIN conversation_updates.events e ON e.sequence = r.sequence
			FOR KEY SHARE OF e
		`,
		values: [json(events)],
	};
}

function titleQueries(titles: readonly TitleWords[]): Query[] {
	const rows = titles.map(({ conversationId, digest, words }) => ({ conversation_id: conversationId, digest, words }));
	const without = titles.filter(({ words }) => words.length === 0);
	return [
		{
			text: "DELETE FROM conversation_updates.search_titles WHERE conversation_id = ANY ($1::uuid[])",
			values: [without.map(({ conversationId }) => conversationId)],
		},
		{
			text: `
				INSERT INTO conversation_updates.search_titles (conversation_id, digest, words)
				SELECT c.conversation_id, r.digest, array_to_tsvector(r.words)
				FROM json_to_recordset($1::json) AS r (conversation_id uuid, digest bigint, words text[])
				JOIN conversation_updates.heads c ON c.conversation_id = r.conversation_id
				FOR KEY SHARE OF c
				ON CONFLICT (conversation_id) DO UPDATE SET digest = excluded.digest, words = excluded.words
			`,
			values: [json(rows.filter(({ words }) => words.length > 0))],
		},
	];
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

/** Finds documents: see `TextIndex.find`. */
export async function findDocuments(session: Session, query: DocumentQuery): Promise<FoundDocument[]> {
	const of = query.of?.filter(isConversationId);
	const eventsOfThese = (await session.isDistributed()) ? eventsOfSpread : eventsOf;
	const [events = [], titles = []] = await session.query(
		of === undefined ? eventsOfAll(query) : eventsOfThese(query, of),
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
	const { joins, tests } = filterOf(query.conditions, sql);
	return sql.query(`
		SELECT s.sequence AS position, 0::bigint AS title, s.conversation_id
		FROM conversation_updates.search_texts s
		JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id ${joins}
		WHERE s.words @@ ${sql.value(tsQuery(query))}::tsquery AND ${eventRange(query, "s", sql)} ${tests}
			${except(query, sql)}
		ORDER BY s.sequence DESC LIMIT ${sql.value(query.limit)}
	`);
}

function eventsOf(query: DocumentQuery, of: readonly string[]): Query {
	const sql = new Sql();
	const { joins, tests } = filterOf(query.conditions, sql);
	return sql.query(`
		SELECT d.* FROM unnest(${sql.value(of)}::uuid[]) AS i (id) CROSS JOIN LATERAL (
			SELECT e.sequence AS position, 0::bigint AS title, e.conversation_id
			FROM conversation_updates.events e
			JOIN conversation_updates.search_texts s ON s.conversation_id = e.conversation_id AND s.sequence = e.sequence
			JOIN conversation_updates.conversations c ON c.conversation_id = e.conversation_id ${joins}
			WHERE e.conversation_id = i.id AND s.words @@ ${sql.value(tsQuery(query))}::tsquery
				AND ${eventRange(query, "e", sql)} ${tests}
			ORDER BY e.sequence DESC LIMIT ${sql.value(query.limit)}
		) d
	`);
}

/** Does what {@link eventsOf} does with Citus, which has no subqueries that depend on a row and end at a limit. */
function eventsOfSpread(query: DocumentQuery, of: readonly string[]): Query {
	const sql = new Sql();
	const { joins, tests } = filterOf(query.conditions, sql);
	return sql.query(`
		SELECT d.position, d.title, d.conversation_id FROM (
			SELECT s.sequence AS position, 0::bigint AS title, s.conversation_id,
				row_number() OVER (PARTITION BY s.conversation_id ORDER BY s.sequence DESC) AS number
			FROM conversation_updates.search_texts s
			JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id ${joins}
			WHERE s.conversation_id = ANY (${sql.value(of)}::uuid[]) AND s.words @@ ${sql.value(tsQuery(query))}::tsquery
				AND ${eventRange(query, "s", sql)} ${tests}
		) d
		WHERE d.number <= ${sql.value(query.limit)} ORDER BY d.position DESC
	`);
}

function titlesQuery(query: DocumentQuery, of: readonly string[] | undefined): Query {
	const { before = NEWEST, from = OLDEST, limit } = query;
	const sql = new Sql();
	const { joins, tests } = filterOf(query.conditions, sql);
	const ofThese = of === undefined ? "" : `AND s.conversation_id = ANY (${sql.value(of)}::uuid[])`;
	const count = of === undefined ? limit : Math.max(1, of.length);
	return sql.query(`
		SELECT * FROM (
			SELECT s.conversation_id, c.sequence AS title, coalesce((
				SELECT max(e.sequence) FROM conversation_updates.events e WHERE e.conversation_id = c.conversation_id
			), 0) AS position
			FROM conversation_updates.search_titles s
			JOIN conversation_updates.conversations c ON c.conversation_id = s.conversation_id ${joins}
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

function filterOf(conditions: readonly Condition[], sql: Sql): { readonly joins: string; readonly tests: string } {
	const found = conditionSql(conditions, POSTGRES);
	return {
		joins: found.flatMap(({ join = [] }) => join).join(" "),
		tests: found.map(({ test }) => `AND ${sql.fragment(test)}`).join(" "),
	};
}

function tsQuery({ required, excluded }: Pick<DocumentQuery, "required" | "excluded">): string {
	return [...required.map(termOf), ...excluded.map((term) => `!${termOf(term)}`)].join(" & ");
}

/** Words have no characters that would have to be escaped. */
function termOf({ word, isPrefix }: IndexTerm): string {
	return `'${word}'${isPrefix ? ":*" : ""}`;
}
