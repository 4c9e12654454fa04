import { gapColumns, gapsSql, type WrittenGaps } from "../gaps.ts";
import { tableOf } from "../tables.ts";
import { text } from "../values.ts";
import { decoded } from "./rows.ts";
import { Bytes, insertInto, onConflict, removeRows, rowsFor } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
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
