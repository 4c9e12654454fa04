import { hash } from "node:crypto";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { readMembers } from "../record/record-delta.ts";
import type { Session } from "./session.ts";
import {
	type FoundTitle,
	type FoundTitles,
	type IndexProgress,
	type IndexStep,
	isSameProgress,
	NO_PROGRESS,
} from "./text-index.ts";
import { bigint, blob, boolean, integer, nullable, type Row, text } from "./values.ts";

/** The steps by which the index of search is written. */

async function readProgress({ all, dialect: { schema } }: Session, end = ""): Promise<IndexProgress> {
	const [row] = await all(`SELECT version, events, updates FROM ${schema}search_progress ${end}`);
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

/** Writes a step. Returns whether it was written: see {@link IndexStep.expects}. */
async function writeIndexStep(session: Session, step: IndexStep): Promise<boolean> {
	if (!(await moveProgress(session, step.expects, step.next))) return false;
	await session.writeWords(step);
	return true;
}

/** Sets the progress to its beginning, so that the indexer removes all documents and begins again. */
async function resetIndex(session: Session): Promise<void> {
	await moveProgress(session, await readProgress(session, session.dialect.forUpdate), NO_PROGRESS);
}

/** Removes documents, unless the progress is another one. Returns whether documents are left. */
async function emptyIndex(session: Session, expects: IndexProgress): Promise<boolean> {
	const progress = await readProgress(session, session.dialect.forUpdate);
	return isSameProgress(progress, expects) && (await session.removeWords());
}

/** Finds the titles that the next updates after a sequence changed. */
async function findChangedTitles({ all, dialect }: Session, after: bigint): Promise<FoundTitles> {
	const { schema } = dialect;
	const rows = await all(
		`SELECT e.conversation_id, e.sequence, e.current, e.summary, t.digest FROM ${schema}updates e
		LEFT JOIN ${schema}search_titles t ON t.conversation_id = e.conversation_id
		WHERE e.sequence > ? ORDER BY e.sequence LIMIT ${EXAMINED_UPDATES}`,
		after,
	);
	return foundTitles(rows.map(examinedUpdateFrom));
}

/** Maximum number of updates that {@link findChangedTitles} examines. */
const EXAMINED_UPDATES = 200;

/** An update that {@link findChangedTitles} examines. */
interface ExaminedUpdate {
	readonly conversationId: string;
	readonly sequence: bigint;
	readonly current: boolean;
	/** Encoded `ConversationSummary`. */
	readonly summary: Uint8Array;
	/** Digest of the title of the conversation that is indexed; undefined without one. */
	readonly indexed: number | undefined;
}

/** Reads a row with the columns of an update, and with the `digest` of `search_titles`. */
function examinedUpdateFrom(row: Row): ExaminedUpdate {
	return {
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		current: boolean(row.current),
		summary: blob(row.summary),
		indexed: nullable(integer, row.digest),
	};
}

/** @param updates in their order, at most {@link EXAMINED_UPDATES} */
export function foundTitles(updates: readonly ExaminedUpdate[]): FoundTitles {
	const read = updates.flatMap((update) => {
		const title = update.current ? titleOf(update.summary) : undefined;
		return title === undefined ? [] : [{ ...update, title }];
	});
	const current = Map.groupBy(read, ({ conversationId }) => conversationId);
	return {
		titles: [...current.values()].flatMap((of) => foundTitle(of)),
		last: updates.at(-1)?.sequence,
		hasMore: updates.length === EXAMINED_UPDATES,
	};
}

/** @param updates those of a conversation that became current, in their order */
function foundTitle(updates: readonly (ExaminedUpdate & { readonly title: string })[]): FoundTitle[] {
	const last = updates.at(-1);
	if (last === undefined) return [];
	const { conversationId, sequence, title, indexed } = last;
	const digest = title === "" ? undefined : hash("sha256", title, "buffer").readUIntBE(0, 6);
	return digest === indexed ? [] : [{ conversationId, sequence, digest: digest ?? 0, title }];
}

const TITLE = ConversationSummarySchema.field.title.number;
const TITLE_ONLY = new Set([TITLE]);

/**
 * Reads the title of an encoded summary, without decoding the rest of it. Empty without a title; undefined if the summary
 * is damaged, which must not end the indexing of all others.
 */
function titleOf(summary: Uint8Array): string | undefined {
	try {
		const title = readMembers(summary, TITLE_ONLY).get(TITLE);
		return title === undefined ? "" : new TextDecoder().decode(title);
	} catch {
		return undefined;
	}
}

export const indexReads = { readIndexProgress: (session: Session) => readProgress(session), findChangedTitles };
export const indexWrites = { writeIndexStep, resetIndex, emptyIndex };
