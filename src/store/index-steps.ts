import type { Session } from "./session.ts";
import {
	EXAMINED_UPDATES,
	examinedUpdateFrom,
	type FoundTitles,
	foundTitles,
	type IndexProgress,
	type IndexStep,
	isSameProgress,
	NO_PROGRESS,
} from "./text-index.ts";
import { bigint, integer, type Row } from "./values.ts";

/** The steps by which the index of search is written: see `TextIndex`. */

export async function readIndexProgress({ all, dialect: { schema } }: Session, end = ""): Promise<IndexProgress> {
	const [row] = await all(`SELECT version, events, updates FROM ${schema}search_progress ${end}`);
	return progressFrom(row);
}

export function progressFrom(row: Row | undefined): IndexProgress {
	return { version: integer(row?.version), events: bigint(row?.events), updates: bigint(row?.updates) };
}

/** Moves the progress from one place to another. Returns whether it was there. */
async function moveProgress({ all, dialect: { schema } }: Session, from: IndexProgress, to: IndexProgress) {
	const rows = await all(
		`UPDATE ${schema}search_progress SET version = ?, events = ?, updates = ?
		WHERE version = ? AND events = ? AND updates = ? RETURNING id`,
		...[to, from].flatMap(({ version, events, updates }) => [version, events, updates]),
	);
	return rows.length > 0;
}

/** Writes a step: see `TextIndex.write`. */
export async function writeIndexStep(session: Session, step: IndexStep): Promise<boolean> {
	if (!(await moveProgress(session, step.expects, step.next))) return false;
	await session.writeWords(step);
	return true;
}

/** Sets the progress to its beginning: see `TextIndex.reset`. */
export async function resetIndex(session: Session): Promise<void> {
	await moveProgress(session, await readIndexProgress(session, session.dialect.forUpdate), NO_PROGRESS);
}

/** Removes documents: see `TextIndex.empty`. */
export async function emptyIndex(session: Session, expects: IndexProgress): Promise<boolean> {
	const progress = await readIndexProgress(session, session.dialect.forUpdate);
	return isSameProgress(progress, expects) && (await session.removeWords());
}

/** Finds titles: see `TextIndex.findChangedTitles`. */
export async function findChangedTitles({ all, dialect }: Session, after: bigint): Promise<FoundTitles> {
	const { schema, headReference } = dialect;
	const { from, conversationId } = dialect.entries.updates;
	const rows = await all(
		`SELECT ${conversationId} AS conversation_id, e.sequence, e.current, e.summary, t.digest FROM ${from}
		LEFT JOIN ${schema}search_titles t ON t.${headReference} = e.${headReference}
		WHERE e.sequence > ? ORDER BY e.sequence LIMIT ${EXAMINED_UPDATES}`,
		after,
	);
	return foundTitles(rows.map(examinedUpdateFrom));
}
