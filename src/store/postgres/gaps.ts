import {
	type FirstState,
	gapColumns,
	gapsSql,
	MAX_FORKS,
	type MissingEvents,
	SOURCES,
	type WrittenGaps,
} from "../gaps.ts";
import { tableOf } from "../tables.ts";
import { nullable, text } from "../values.ts";
import { decoded } from "./rows.ts";
import { Bytes, insertInto, onConflict, removeRows, rowsFor } from "./sql.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

const GAPS = tableOf("postgres", "gaps");

/** Returns the query for the gaps of conversations: see `gapsSql`. */
export function gapsQuery(conversationIds: readonly string[]): Query {
	return {
		name: "known_gaps",
		text: gapsSql("conversation_updates.", "g.conversation_id = ANY ($1::uuid[])"),
		values: [conversationIds],
	};
}

/** Returns the queries that write changes of gaps. The caller makes the views derive the rows of their conversations. */
export function writeGapsQueries(changes: ReadonlyMap<string, WrittenGaps>): Query[] {
	const rows = (of: "closed" | "opened") =>
		[...changes].flatMap(([id, change]) => change[of].map((gap) => gapColumns({ ...gap, conversationId: id })));
	const [closed, opened] = [rows("closed"), rows("opened")];
	return [
		...(closed.length === 0 ? [] : [removeRows(GAPS, rowsFor(GAPS, closed, new Bytes()))]),
		...(opened.length === 0
			? []
			: [
					{
						name: "insert_gaps",
						text: `${insertInto(GAPS)} ${onConflict(GAPS, "NOTHING")}`,
						values: [rowsFor(GAPS, opened, new Bytes())],
					},
				]),
	];
}

/** Returns the query that finds the gaps for events. Events of different conversations can have the same id. */
export function gapsOfEventsQuery(eventIds: readonly string[]): Query {
	return {
		name: "gaps_of_events",
		text: `
			SELECT g.conversation_id, g.missing FROM conversation_updates.gaps g
			WHERE g.missing = ANY ($1::text[]) AND g.kind IN ('missing_parent', 'missing_leaf')
		`,
		values: [eventIds.map(encodeText)],
	};
}

/**
 * Returns those of the gaps whose conversations are forks: ids of conversations by the id of the event.
 *
 * @param rows of {@link gapsOfEventsQuery}, usually none
 */
export async function forksOf(
	session: Session,
	rows: readonly Readonly<Record<string, unknown>>[],
): Promise<ReadonlyMap<string, readonly string[]>> {
	const forks = new Map<string, string[]>();
	if (rows.length === 0) return forks;
	const [found = []] = await session.query({
		name: "forks",
		text: `
			SELECT conversation_id FROM conversation_updates.heads
			WHERE conversation_id = ANY ($1::uuid[]) AND source_id IS NOT NULL
		`,
		values: [rows.map((row) => text(row.conversation_id))],
	});
	const areForks = new Set(found.map((row) => text(row.conversation_id)));
	for (const row of rows) {
		if (!areForks.has(text(row.conversation_id))) continue;
		const id = decoded(row.missing);
		forks.set(id, [...(forks.get(id) ?? []), text(row.conversation_id)]);
	}
	return forks;
}

/** Returns those of the missing events that are no gaps: see `PlanResults.explained`. */
export async function findExplained(
	session: Session,
	{ conversationId, source, owner, eventIds, firstState }: MissingEvents,
): Promise<ReadonlySet<string>> {
	const keys = new Map(eventIds.map((id) => [encodeKey(id), id]));
	const all = new Set(eventIds);
	const visit = async (id: string) => {
		const [[head] = [], [activity] = [], pruned = [], found = []] = await session.query(
			{ name: "head_of_missing", text: HEAD, values: [id] },
			{ name: "activity_of_missing", text: ACTIVITY, values: [id] },
			{ name: "pruned_of_missing", text: PRUNED, values: [id] },
			{ name: "stored_of_missing", text: STORED, values: [id, [...keys.keys()]] },
		);
		return { head, stored: head ?? activity, isPruned: pruned.length > 0, found };
	};
	if ((await visit(conversationId)).isPruned) return all;
	const explained = new Set<string>();
	if (firstState !== undefined && (await isOfFork(session, firstState, owner))) explained.add(firstState.leaf);
	let next = source;
	for (let forks = 0; next !== undefined && forks < MAX_FORKS; forks++) {
		const { head, stored, isPruned, found } = await visit(next);
		if (stored === undefined || ownerOf(stored.owner) !== owner || isPruned) return all;
		for (const { event_id } of found) {
			const id = keys.get(text(event_id));
			if (id !== undefined) explained.add(id);
		}
		next = nullable(decoded, head?.source_id ?? null);
	}
	return explained;
}

/** Returns whether a state is the first one of a fork of one of the newest conversations of an owner. */
async function isOfFork(session: Session, { eventId, leaf }: FirstState, owner: string | undefined): Promise<boolean> {
	const candidates = await session.query(
		...(owner === undefined
			? sources("", "owner IS NULL", [])
			: sources("_of_owner", "owner = $1", [encodeKey(owner)])),
	);
	const ids = candidates.flat().map((row) => text(row.conversation_id));
	const [rows = []] = await session.query({
		name: "source_of_fork",
		text: SOURCE,
		values: [ids, encodeKey(leaf), encodeKey(eventId)],
	});
	return rows.length > 0;
}

function ownerOf(stored: unknown): string | undefined {
	return stored === null ? undefined : decoded(stored);
}

const HEAD = "SELECT source_id, owner FROM conversation_updates.heads WHERE conversation_id = $1::uuid";
const ACTIVITY = "SELECT owner FROM conversation_updates.activities WHERE conversation_id = $1::uuid";
const PRUNED = "SELECT 1 AS found FROM conversation_updates.pruned WHERE conversation_id = $1::uuid AND log = 'events'";

/**
 * Returns the queries for the newest conversations of an owner: those that the view has, and those of later updates.
 *
 * @param name ends the names of the queries
 */
function sources(name: string, condition: string, values: readonly unknown[]): Query[] {
	return [
		{
			name: `sources${name}`,
			text: `
				SELECT conversation_id FROM conversation_updates.conversations
				WHERE ${condition} ORDER BY sequence DESC LIMIT ${SOURCES}
			`,
			values,
		},
		{
			name: `later_sources${name}`,
			text: `
				SELECT h.conversation_id FROM conversation_updates.updates u
				JOIN conversation_updates.heads h ON h.conversation_id = u.conversation_id
				WHERE u.sequence > (SELECT updates FROM conversation_updates.views WHERE name = 'conversations')
					AND h.${condition}
			`,
			values,
		},
	];
}

/** Finds one of some conversations that has an event and does not have another one. */
const SOURCE = `
	SELECT 1 AS found FROM conversation_updates.events e
	WHERE e.conversation_id = ANY ($1::uuid[]) AND e.event_id = $2::text AND NOT EXISTS (
		SELECT 1 FROM conversation_updates.events s
		WHERE s.conversation_id = e.conversation_id AND s.event_id = $3::text
	)
	LIMIT 1
`;

const STORED = `
	SELECT event_id FROM conversation_updates.events WHERE conversation_id = $1::uuid AND event_id = ANY ($2::text[])
`;
