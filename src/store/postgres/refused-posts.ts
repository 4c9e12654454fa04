import { idDigest } from "../erasure.ts";
import { judgeAccepted } from "../known-conversation.ts";
import {
	type AcceptedPost,
	acceptedBytesSql,
	ageSql,
	bytesOf,
	gapOfAccepted,
	insertSql,
	isOfErased,
	listSql,
	oldAcceptedSql,
	type RefusedAge,
	type RefusedPost,
	type RefusedPostRow,
	type RefusedQuery,
	type RefusedRoom,
	type RefusedUsage,
	refusedFrom,
	refusedRowFrom,
	refusedValues,
	roomSql,
	type StillRefused,
} from "../refused-posts.ts";
import { bigint, boolean, integer, type Row, text } from "../values.ts";
import type { Connections } from "./connections.ts";
import { findErasures } from "./erasures.ts";
import { closeGapQueries, openGapQueries } from "./gaps.ts";
import { readKnown } from "./known.ts";
import { lockConversations } from "./locks.ts";
import type { Query, Session } from "./transaction.ts";

/** The refused posts in PostgreSQL. The contracts are those of `RefusedPostTable`. */

const TABLE = "conversation_updates.refused_posts";
const INSERT = insertSql(TABLE, (index) => `$${index}`);
/** Lets one process at a time add posts, so that their sum does not pass the limit. Reads go on. */
const LOCK: Query = { text: `LOCK TABLE ${TABLE} IN SHARE ROW EXCLUSIVE MODE` };

export function insertRefusedPost(post: RefusedPostRow): Query {
	return { text: INSERT, values: refusedValues(post, (value) => value) };
}

export async function addRefusedPosts(
	connections: Connections,
	posts: readonly RefusedPostRow[],
	room: RefusedRoom,
): Promise<number> {
	const ids = posts.flatMap(({ conversationId }) => conversationId ?? []);
	return await connections.transaction(async (transaction) => {
		await transaction.query(lockConversations(ids));
		const erasures = new Map((await findErasures(transaction, ids)).map((erasure) => [erasure.idDigest, erasure]));
		const kept = posts.filter((post) => {
			const { conversationId: id } = post;
			return id === undefined || !isOfErased(post, erasures.get(idDigest(id)));
		});
		const removals = counted(roomSql(TABLE, room));
		const results = await transaction.commit(LOCK, ...kept.map(insertRefusedPost), ...removals);
		return sumOf(results.slice(-removals.length));
	});
}

export async function acceptRefusedPost(
	connections: Connections,
	post: AcceptedPost,
	room: RefusedRoom,
): Promise<number | undefined> {
	const { conversationId } = post;
	return await connections.transaction(async (transaction) => {
		const query = { conversationIds: [conversationId], versions: new Set<string>(), events: [], named: [] };
		const known = (await readKnown(transaction, query)).get(conversationId);
		if (known === undefined) throw new Error("the conversation was not asked for");
		const gap = judgeAccepted(post, known);
		if (gap === "of another owner") return undefined;
		if (gap === "erased") return 0;
		const [, [taken] = []] = await transaction.query(LOCK, { text: acceptedBytesSql(TABLE) });
		if (integer(taken?.bytes) + bytesOf(post) > room.maxBytes) return undefined;
		const removals = counted(roomSql(TABLE, room));
		const results = await transaction.commit(insertRefusedPost(post), ...openGapQueries(gap), ...removals);
		return sumOf(results.slice(-removals.length));
	});
}

export async function expireRefusedPosts(connections: Connections, age: RefusedAge): Promise<number> {
	const accepted = oldAcceptedSql(TABLE, age);
	const [old = []] =
		accepted === undefined ? [] : await connections.read((session) => session.query({ text: accepted }));
	for (const { id } of old) await removeRefusedPost(connections, bigint(id));
	return await connections.transaction(async (transaction) => {
		return old.length + sumOf(await transaction.commit(...counted([ageSql(TABLE, age)])));
	});
}

/** Returns queries that return the `count` of the rows that they delete. */
function counted(deletions: readonly string[]): Query[] {
	return deletions.map((sql) => ({ text: `WITH gone AS (${sql} RETURNING id) SELECT count(*) AS count FROM gone` }));
}

function sumOf(counts: readonly (readonly Row[])[]): number {
	return counts.reduce((sum, [row]) => sum + integer(row?.count), 0);
}

export async function listRefusedPosts(session: Session, query: RefusedQuery): Promise<RefusedPost[]> {
	const { sql: text, values } = listSql(TABLE, query, (index) => `$${index}`);
	const [rows = []] = await session.query({ text, values });
	return rows.map(refusedFrom);
}

/** @param owner returns only a post of this owner */
export async function getRefusedPost(
	session: Session,
	id: bigint,
	owner: string | undefined,
): Promise<RefusedPostRow | undefined> {
	const text = `SELECT * FROM ${TABLE} WHERE id = $1 AND ($2::text IS NULL OR owner = $2)`;
	const [[row] = []] = await session.query({ text, values: [id, owner ?? null] });
	return row === undefined ? undefined : refusedRowFrom(row);
}

export function setRefusedReasons({ id, kind, reasons, retriedAt }: StillRefused): Query {
	const text = `UPDATE ${TABLE} SET kind = $2, reasons = $3, retried_at = $4 WHERE id = $1`;
	return { text, values: [id, kind, reasons, retriedAt] };
}

export async function removeRefusedPost(connections: Connections, id: bigint): Promise<void> {
	const remove = { text: `DELETE FROM ${TABLE} WHERE id = $1`, values: [id] };
	await connections.transaction(async (transaction) => {
		const columns = "accepted, conversation_id, received_at";
		const [[row] = []] = await transaction.query({
			text: `SELECT ${columns} FROM ${TABLE} WHERE id = $1`,
			values: [id],
		});
		if (row === undefined || !boolean(row.accepted)) {
			await transaction.commit(remove);
			return;
		}
		const post = { id, conversationId: text(row.conversation_id), receivedAt: bigint(row.received_at) };
		await transaction.query(lockConversations([post.conversationId]));
		await transaction.commit(remove, ...closeGapQueries(gapOfAccepted(post, undefined)));
	});
}

/**
 * Removes the posts that name a conversation. The transaction has locked the conversation.
 *
 * @param owner removes only posts of this owner
 * @returns their number
 */
export async function removeRefusedOf(
	session: Session,
	conversationId: string,
	owner: string | undefined,
): Promise<number> {
	const [rows = []] = await session.query({
		text: `
			DELETE FROM ${TABLE} WHERE conversation_id = $1 AND ($2::text IS NULL OR owner = $2)
			RETURNING id, accepted, received_at
		`,
		values: [conversationId, owner ?? null],
	});
	const accepted = rows.filter((row) => boolean(row.accepted));
	const gaps = accepted.map((row) =>
		gapOfAccepted({ id: bigint(row.id), conversationId, receivedAt: bigint(row.received_at) }, undefined),
	);
	if (gaps.length > 0) await session.query(...gaps.flatMap(closeGapQueries));
	return rows.length;
}

export async function refusedUsage(session: Session): Promise<RefusedUsage> {
	const text = `SELECT count(*) AS posts, CAST(coalesce(sum(bytes), 0) AS bigint) AS bytes FROM ${TABLE}`;
	const [[row] = []] = await session.query({ text });
	return { posts: integer(row?.posts), bytes: integer(row?.bytes) };
}
