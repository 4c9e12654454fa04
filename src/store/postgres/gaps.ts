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
import { text } from "../values.ts";
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

/**
 * Returns the query that finds the forks with a gap for one of the events. Events of different conversations can have the
 * same id.
 */
export function forksQuery(eventIds: readonly string[]): Query {
	return {
		name: "forks_with_gaps",
		text: `
			SELECT g.conversation_id, g.missing FROM conversation_updates.gaps g
			JOIN conversation_updates.heads c ON c.conversation_id = g.conversation_id
			WHERE g.missing = ANY ($1::text[]) AND g.kind IN ('missing_parent', 'missing_leaf') AND c.source_id IS NOT NULL
		`,
		values: [eventIds.map(encodeText)],
	};
}

/** Reads the rows of {@link forksQuery}: ids of conversations by the id of the event. */
export function forksOf(rows: readonly Readonly<Record<string, unknown>>[]): ReadonlyMap<string, readonly string[]> {
	const forks = new Map<string, string[]>();
	for (const row of rows) {
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
		const [[row] = [], found = []] = await session.query(
			{ name: "conversation_of_missing", text: CONVERSATION, values: [id] },
			{ name: "stored_of_missing", text: STORED, values: [id, [...keys.keys()]] },
		);
		return { row, found };
	};
	if ((await visit(conversationId)).row?.is_pruned === true) return all;
	const explained = new Set<string>();
	if (firstState !== undefined && (await isOfFork(session, firstState, owner))) explained.add(firstState.leaf);
	let next = source;
	for (let forks = 0; next !== undefined && forks < MAX_FORKS; forks++) {
		const { row, found } = await visit(next);
		const isKnown = row !== undefined && row.is_stored === true && ownerOf(row.owner) === owner;
		if (!isKnown || row.is_pruned === true) return all;
		for (const { event_id } of found) {
			const id = keys.get(text(event_id));
			if (id !== undefined) explained.add(id);
		}
		next = row.source_id === null ? undefined : decoded(row.source_id);
	}
	return explained;
}

/** Returns whether a state is the first one of a fork of one of the newest conversations of an owner. */
async function isOfFork(session: Session, { eventId, leaf }: FirstState, owner: string | undefined): Promise<boolean> {
	const events = [encodeKey(leaf), encodeKey(eventId)];
	const [rows = []] = await session.query(
		owner === undefined
			? { name: "source_of_fork", text: sourceOfFork("owner IS NULL"), values: events }
			: {
					name: "source_of_fork_of_owner",
					text: sourceOfFork("owner = $3"),
					values: [...events, encodeKey(owner)],
				},
	);
	return rows.length > 0;
}

function ownerOf(stored: unknown): string | undefined {
	return stored === null ? undefined : decoded(stored);
}

const CONVERSATION = `
	SELECT c.source_id, coalesce(c.owner, a.owner) AS owner,
		c.conversation_id IS NOT NULL OR a.conversation_id IS NOT NULL AS is_stored,
		EXISTS (
			SELECT 1 FROM conversation_updates.pruned p WHERE p.log = 'events' AND p.conversation_id = k.id
		) AS is_pruned
	FROM (SELECT $1::uuid AS id) k
	LEFT JOIN conversation_updates.heads c ON c.conversation_id = k.id
	LEFT JOIN conversation_updates.activities a ON a.conversation_id = k.id
`;

/** The limit of the inner query keeps PostgreSQL from reading all events. */
const sourceOfFork = (condition: string) => `
	SELECT 1 AS found FROM (
		(
			SELECT conversation_id FROM conversation_updates.conversations
			WHERE ${condition} ORDER BY sequence DESC LIMIT ${SOURCES}
		)
		UNION SELECT h.conversation_id FROM conversation_updates.updates u
		JOIN conversation_updates.heads h ON h.conversation_id = u.conversation_id
		WHERE u.sequence > (SELECT updates FROM conversation_updates.views WHERE name = 'conversations') AND h.${condition}
	) c
	CROSS JOIN LATERAL (
		SELECT 1 FROM conversation_updates.events e
		WHERE e.conversation_id = c.conversation_id AND e.event_id = $1::text LIMIT 1
	) e
	WHERE NOT EXISTS (
		SELECT 1 FROM conversation_updates.events s WHERE s.conversation_id = c.conversation_id AND s.event_id = $2::text
	)
	LIMIT 1
`;

const STORED = `
	SELECT event_id FROM conversation_updates.events WHERE conversation_id = $1::uuid AND event_id = ANY ($2::text[])
`;
