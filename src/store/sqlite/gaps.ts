import {
	type FirstState,
	type Gaps,
	gapColumns,
	gapsOf,
	gapsSql,
	MAX_FORKS,
	type MissingEvents,
	SOURCES,
	type WrittenGaps,
} from "../gaps.ts";
import { nullable, text } from "../values.ts";
import { insertInto } from "./entries.ts";
import type { Statements } from "./statements.ts";

const FIND = gapsSql("", "g.conversation_id = ?");

/** Returns the gaps of a conversation. */
export function findGaps(statements: Statements, conversationId: string): Gaps {
	return gapsOf(statements.prepare(FIND).all(conversationId), conversationId, text);
}

/** Writes changes of the gaps of a conversation. The caller makes the views derive its rows. */
export function writeGaps(statements: Statements, conversationId: string, { closed, opened }: WrittenGaps): void {
	const remove = statements.prepare("DELETE FROM gaps WHERE conversation_id = ? AND kind = ? AND missing = ?");
	for (const { kind, missing } of closed) remove.run(conversationId, kind, missing);
	for (const gap of opened) insertInto(statements, "gaps", gapColumns({ ...gap, conversationId }), "NOTHING");
}

/**
 * Returns the forks with a gap for one of the events, by the ids of these. Events of different conversations can have the
 * same id.
 */
export function findForks(statements: Statements, eventIds: readonly string[]): ReadonlyMap<string, readonly string[]> {
	const forks = new Map<string, string[]>();
	if (eventIds.length === 0) return forks;
	// One statement for all: most groups have many events, and no event closes a gap of a fork.
	const rows = statements
		.prepare(`
			SELECT g.missing, g.conversation_id FROM json_each(?) e CROSS JOIN gaps g ON g.missing = e.value
			CROSS JOIN heads c ON c.conversation_id = g.conversation_id
			WHERE g.kind IN ('missing_parent', 'missing_leaf') AND c.source_id IS NOT NULL
		`)
		.all(JSON.stringify(eventIds));
	for (const { missing, conversation_id } of rows)
		forks.set(text(missing), [...(forks.get(text(missing)) ?? []), text(conversation_id)]);
	return forks;
}

/** Returns those of the missing events that are no gaps: see `PlanResults.explained`. */
export function findExplained(
	statements: Statements,
	{ conversationId, source, owner, eventIds, firstState }: MissingEvents,
): ReadonlySet<string> {
	const all = new Set(eventIds);
	if (hasPrunedEvents(statements, conversationId)) return all;
	const explained = new Set<string>();
	if (firstState !== undefined && isOfFork(statements, firstState, owner)) explained.add(firstState.leaf);
	const find = statements.prepare(`
		SELECT c.source_id, a.id AS activity, coalesce(c.owner, a.owner) AS owner
		FROM (SELECT :id AS id) s
		LEFT JOIN heads c ON c.conversation_id = s.id LEFT JOIN activities a ON a.conversation_id = s.id
		WHERE c.id IS NOT NULL OR a.id IS NOT NULL
	`);
	const isStored = statements.prepare("SELECT 1 FROM events WHERE activity = ? AND event_id = ?");
	let next = source;
	for (let forks = 0; next !== undefined && forks < MAX_FORKS; forks++) {
		const row = find.get({ id: next });
		if (row === undefined || nullable(text, row.owner) !== owner || hasPrunedEvents(statements, next)) return all;
		const { activity } = row;
		if (typeof activity === "bigint")
			for (const id of eventIds) if (isStored.get(activity, id) !== undefined) explained.add(id);
		next = nullable(text, row.source_id);
	}
	return explained;
}

/** Returns whether a state is the first one of a fork of one of the newest conversations of an owner. */
function isOfFork(statements: Statements, { eventId, leaf }: FirstState, owner: string | undefined): boolean {
	const find = `
		SELECT 1 FROM (
			SELECT conversation_id FROM (
				SELECT conversation_id FROM conversations WHERE owner IS :owner ORDER BY sequence DESC LIMIT ${SOURCES}
			)
			UNION SELECT h.conversation_id FROM updates u CROSS JOIN heads h ON h.id = u.conversation
			WHERE u.sequence > (SELECT updates FROM views WHERE name = 'conversations') AND h.owner IS :owner
		) c
		CROSS JOIN activities a ON a.conversation_id = c.conversation_id
		CROSS JOIN events e ON e.activity = a.id AND e.event_id = :leaf
		WHERE NOT EXISTS (SELECT 1 FROM events s WHERE s.activity = a.id AND s.event_id = :event)
		LIMIT 1
	`;
	return statements.prepare(find).get({ owner: owner ?? null, leaf, event: eventId }) !== undefined;
}

function hasPrunedEvents(statements: Statements, conversationId: string): boolean {
	const find = "SELECT 1 FROM pruned WHERE log = 'events' AND conversation_id = ?";
	return statements.prepare(find).get(conversationId) !== undefined;
}
