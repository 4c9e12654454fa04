import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { readMembers } from "../record/record-delta.ts";
import { isOfRow } from "./rows.ts";
import type { Session } from "./session.ts";
import type { FoundTitles, IndexProgress, IndexStep } from "./text-index.ts";
import { bigint, blob, integer, text } from "./values.ts";

/** The steps by which the index of search is written. */

async function readIndexProgress({ all, dialect: { schema } }: Session): Promise<IndexProgress> {
	const [row] = await all(`SELECT version, events, updates FROM ${schema}search_progress`);
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
async function writeIndexStep(session: Session, { expects, next, events, titles }: IndexStep): Promise<boolean> {
	if (!(await moveProgress(session, expects, next))) return false;
	const { all, isAmong, dialect } = session;
	const wordsOf = new Map(events.map(({ sequence, words }) => [sequence, words]));
	const find = async () => {
		const rows = await all(
			`SELECT conversation_id, sequence FROM ${dialect.schema}events WHERE ${isAmong("sequence")}`,
			[...wordsOf.keys()],
		);
		return rows.map((row) => ({ conversationId: text(row.conversation_id), sequence: bigint(row.sequence) }));
	};
	// A removal of these events waits for the locks, and then removes the words too.
	await session.lock([...new Set((await find()).map(({ conversationId }) => conversationId))]);
	const present = (await find()).map((event) => ({ ...event, words: wordsOf.get(event.sequence) ?? [] }));
	await session.writeWords({ events: present, titles });
	return true;
}

/** Lets the index be written anew from the beginning. What it had is found until then, where the engine does not empty it. */
async function resetIndex(session: Session): Promise<void> {
	const { schema } = session.dialect;
	await session.all(`UPDATE ${schema}search_progress SET version = 0, events = 0, updates = 0`);
	await session.emptyWords();
}

/** Maximum number of titles of a step. */
const TITLES = 200;

/** Finds the titles after a sequence, as far as the view of conversations has them all. */
async function findTitles(session: Session, after: bigint): Promise<FoundTitles> {
	const { all, dialect } = session;
	const { schema } = dialect;
	const [view] = await all(
		`SELECT updates, ${dialect.newest.updates} AS newest FROM ${schema}views WHERE name = 'conversations'`,
	);
	const followed = bigint(view?.updates);
	// What the view wrote until then.
	await session.settled();
	const rows = await all(
		`SELECT t.conversation_id, t.sequence, u.summary FROM ${schema}titles t
		JOIN ${schema}heads h ON h.conversation_id = t.conversation_id JOIN ${schema}updates u ON ${isOfRow("u", "h")}
		WHERE t.sequence > ? AND t.sequence <= ? ORDER BY t.sequence LIMIT ${TITLES}`,
		after,
		followed,
	);
	const titles = rows.map((row) => ({
		conversationId: text(row.conversation_id),
		sequence: bigint(row.sequence),
		title: titleOf(blob(row.summary)),
	}));
	const hasMore = titles.length === TITLES;
	const through = (hasMore ? titles.at(-1)?.sequence : undefined) ?? followed;
	return { titles, through, hasMore, isBehind: followed < bigint(view?.newest) };
}

const TITLE = ConversationSummarySchema.field.title.number;
const TITLE_ONLY = new Set([TITLE]);

/** Reads the title of an encoded summary, without decoding the rest of it. Empty without one, and if the summary is damaged. */
function titleOf(summary: Uint8Array): string {
	try {
		return new TextDecoder().decode(readMembers(summary, TITLE_ONLY).get(TITLE));
	} catch {
		return "";
	}
}

export const indexReads = { readIndexProgress, findTitles };
export const indexWrites = { writeIndexStep, resetIndex };
