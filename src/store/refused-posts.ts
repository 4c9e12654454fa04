import { audited } from "./access.ts";
import { findErasures, idDigest } from "./erasure.ts";
import { closeGap, type GapOf, openGap } from "./gaps.ts";
import { getOwnership, mayPost, ownershipOf } from "./owners.ts";
import { given, type Session, type Test, type Value } from "./session.ts";
import { tableOf } from "./tables.ts";
import { changeRows, columnsOf, type RowOf, readRow, selectRows } from "./typed-rows.ts";
import { bigint, boolean, integer, nullable, text } from "./values.ts";

/**
 * What the store keeps of posts that were refused. The room for them is limited: the oldest go first. A refused batch that
 * was accepted nevertheless is never removed for room.
 */

/** The forms of posts: a record or a batch of events, as JSON or as the encoded request of an RPC. */
export const postForms = ["record_json", "events_json", "record_message", "events_message"] as const;
export type PostForm = (typeof postForms)[number];

/** A refused post with its sealed body; undefined when it is not stored. Its id grows with the time of receipt. */
export interface RefusedPostRow extends Omit<RowOf<"refused_posts">, "bytes" | "form"> {
	readonly form: PostForm;
}

/** A refused post in a list. */
export interface RefusedPost extends Omit<RefusedPostRow, "body"> {
	/** Whether the body is stored. */
	readonly hasBody: boolean;
}

/** A refused batch that is answered with success. */
export interface AcceptedPost extends RefusedPostRow {
	readonly conversationId: string;
}

/** Returns the gap that an accepted batch leaves in its conversation. */
function gapOfAccepted(
	{ id, conversationId, receivedAt }: Pick<AcceptedPost, "id" | "conversationId" | "receivedAt">,
	after: string | undefined,
): GapOf {
	return { conversationId, kind: "refused_batch", missing: String(id), after, since: receivedAt };
}

/** The room for refused posts. */
export interface RefusedRoom {
	/** Maximum sum of {@link bytesOf}. */
	readonly maxBytes: number;
	/** Maximum number of rows about clients without a valid key. */
	readonly maxPeers: number;
}

/** Times, in microseconds since the Unix epoch, before which posts are removed. */
export interface RefusedAge {
	/** That of posts which were not accepted. */
	readonly keptSince: bigint;
	/** Undefined: accepted posts are kept. */
	readonly acceptedSince: bigint | undefined;
}

export interface RefusedQuery {
	readonly owner?: string | undefined;
	/** The newest first, before this id. */
	readonly before?: bigint | undefined;
	/** Only records of this conversation. */
	readonly recordOf?: string | undefined;
	/** In place of `before`: the oldest first, after this id, and only posts whose body is stored. */
	readonly after?: bigint | undefined;
	readonly limit: number;
}

/** A retry without success: why the post is still refused. */
export interface StillRefused extends Pick<RefusedPost, "id" | "kind" | "reasons"> {
	readonly retriedAt: bigint;
}

/** Bytes that a row counts for beside its texts and its body. */
const ROW_BYTES = 512;

/** Returns the bytes that a post counts for. */
export function bytesOf({ body, reasons, route }: RefusedPostRow): number {
	return ROW_BYTES + reasons.length + route.length + (body?.byteLength ?? 0);
}

function refusedColumns(row: RefusedPostRow) {
	return columnsOf("refused_posts", { ...row, bytes: bytesOf(row) });
}

/** Returns the smallest id of a post that is received at a time: there are 1,000 for each microsecond. */
export function idsFrom(receivedAt: bigint): bigint {
	return receivedAt * 1000n;
}

function refusedFrom({ bytes, form, ...post }: RowOf<"refused_posts">): RefusedPostRow {
	const known = postForms.find((one) => one === form);
	if (known === undefined) throw new TypeError(`${JSON.stringify(form)} is no form of a post`);
	return { ...post, form: known };
}

/** What an insert does for a post that is stored: see `Session.insert`. */
const ADD_REQUESTS = "UPDATE SET requests = t.requests + excluded.requests, last_at = excluded.last_at";

// The caller of the functions below has begun a transaction. Conversations are locked before the table, so that transactions
// do not wait for each other.

/**
 * Stores posts, and removes the oldest ones for which there is no room. One whose id is stored already adds its requests.
 * Posts of an erased conversation are not stored, unless their sender may not post to it: then they are no part of it.
 *
 * @returns the number of posts that were removed
 */
async function addRefusedPosts(
	session: Session,
	{ posts, room }: { readonly posts: readonly RefusedPostRow[]; readonly room: RefusedRoom },
): Promise<number> {
	const ids = posts.flatMap(({ conversationId }) => conversationId ?? []);
	await session.lock(ids);
	const erasures = new Map((await findErasures(session, ids)).map((erasure) => [erasure.idDigest, erasure]));
	await session.lockTable("refused_posts");
	const kept = posts.filter(({ owner, conversationId }) => {
		const erasure = conversationId === undefined ? undefined : erasures.get(idDigest(conversationId));
		return erasure === undefined || !mayPost(owner, erasure);
	});
	await session.insert("refused_posts", kept.map(refusedColumns), ADD_REQUESTS);
	return await makeRoom(session, room);
}

/**
 * Stores a refused batch of events that is accepted, and opens a gap of its conversation, if there is room beside the
 * accepted ones. Others make room for it. A batch of an erased conversation is not stored.
 *
 * @returns the number of posts that were removed; undefined when there is no room, or the conversation belongs to
 *   another owner
 */
async function acceptRefusedPost(
	session: Session,
	{ post, room }: { readonly post: AcceptedPost; readonly room: RefusedRoom },
): Promise<number | undefined> {
	const { all, dialect, isIn, lock, lockTable, insert } = session;
	const { schema } = dialect;
	const id = post.conversationId;
	await lock([id]);
	const ownership = await getOwnership(session, id);
	const [removed] = await all(
		`SELECT sender, owner FROM ${schema}usage_conversations WHERE ${isIn("conversation_id")}`,
		[id],
	);
	const [erasure] = await findErasures(session, [id]);
	const known = ownershipOf({
		ownership,
		removed: removed && { sender: text(removed.sender), owner: text(removed.owner) },
		erasure,
	});
	if (!mayPost(post.owner, known)) return undefined;
	if (erasure !== undefined) return 0;
	await lockTable("refused_posts");
	const [taken] = await all(
		`SELECT CAST(coalesce(sum(bytes), 0) AS bigint) AS bytes FROM ${schema}refused_posts WHERE accepted = TRUE`,
	);
	if (integer(taken?.bytes) + bytesOf(post) > room.maxBytes) return undefined;
	const [activity] = await all(`SELECT leaf FROM ${schema}activities WHERE ${isIn("conversation_id")}`, [id]);
	await insert("refused_posts", [refusedColumns(post)], ADD_REQUESTS);
	await openGap(session, gapOfAccepted(post, nullable(text, activity?.leaf ?? null)));
	return await makeRoom(session, room);
}

/** Removes posts that are too old, with the gaps of accepted ones. Returns their number. */
async function expireRefusedPosts(session: Session, { keptSince, acceptedSince = 0n }: RefusedAge): Promise<number> {
	const old = "accepted = TRUE AND id < ?";
	await lockConversationsOf(session, old, idsFrom(acceptedSince));
	return (
		(await remove(session, old, idsFrom(acceptedSince))) +
		(await remove(session, "accepted = FALSE AND id < ?", idsFrom(keptSince)))
	);
}

async function listRefusedPosts(
	{ all, dialect: { schema, engine } }: Session,
	{ owner, recordOf, before, after, limit }: RefusedQuery,
): Promise<RefusedPost[]> {
	const where = given([
		["owner = ?", owner],
		["form IN ('record_json', 'record_message') AND conversation_id = ?", recordOf],
		["id < ?", before],
		["body IS NOT NULL AND id > ?", after],
	]);
	const shown = Object.keys(tableOf(engine, "refused_posts").columns).filter((column) => column !== "body");
	const rows = await all(
		`SELECT ${shown.join()}, NULL AS body, body IS NOT NULL AS has_body FROM ${schema}refused_posts
		WHERE ${where.text} ORDER BY id ${after === undefined ? "DESC" : "ASC"} LIMIT ?`,
		...where.parameters,
		limit,
	);
	return rows.map((row) => {
		const { body, ...post } = refusedFrom(readRow("refused_posts", row));
		return { ...post, hasBody: boolean(row.has_body) };
	});
}

/** @param one `owner`: returns only a post of this owner */
async function getRefusedPost(
	session: Session,
	{ id, owner }: { readonly id: bigint; readonly owner?: string | undefined },
): Promise<RefusedPostRow | undefined> {
	const tests: Test[] = [
		["id = ?", id],
		["owner = ?", owner],
	];
	const [row] = await selectRows(session, "refused_posts", tests, "id");
	return row && refusedFrom(row);
}

async function setRefusedReasons(session: Session, { id, ...changes }: StillRefused): Promise<void> {
	await changeRows(session, "refused_posts", { id }, changes);
}

/** Removes a post that was taken in, and closes its gap if it was accepted. */
async function removeRefusedPost(session: Session, id: bigint): Promise<boolean> {
	await lockConversationsOf(session, "accepted = TRUE AND id = ?", id);
	return (await remove(session, "id = ?", id)) > 0;
}

/**
 * Removes the posts that name a conversation, which is locked.
 *
 * @param owner removes only posts of this owner
 * @returns their number
 */
export async function removeRefusedOf(
	session: Session,
	conversationId: string,
	owner: string | undefined,
): Promise<number> {
	const { text: test, parameters } = given([
		["conversation_id = ?", conversationId],
		["owner = ?", owner],
	]);
	return await remove(session, test, ...parameters);
}

/** Returns the room that refused posts take. */
async function refusedUsage({ all, dialect: { schema } }: Session) {
	const [row] = await all(
		`SELECT count(*) AS posts, CAST(coalesce(sum(bytes), 0) AS bigint) AS bytes FROM ${schema}refused_posts`,
	);
	return { posts: integer(row?.posts), bytes: integer(row?.bytes) };
}

/** Locks the conversations of the posts that pass a test. */
async function lockConversationsOf(
	{ all, lock, dialect: { schema } }: Session,
	test: string,
	...values: readonly Value[]
): Promise<void> {
	const rows = await all(`SELECT conversation_id FROM ${schema}refused_posts WHERE ${test}`, ...values);
	await lock(rows.map(({ conversation_id }) => text(conversation_id)));
}

/** Removes the posts that pass a test, with the gaps of accepted ones, whose conversations are locked. Returns their number. */
async function remove(session: Session, test: string, ...values: readonly Value[]): Promise<number> {
	const rows = await session.all(
		`DELETE FROM ${session.dialect.schema}refused_posts WHERE ${test}
		RETURNING id, accepted, conversation_id, received_at`,
		...values,
	);
	for (const { id, accepted, conversation_id, received_at } of rows)
		if (boolean(accepted)) {
			const post = { id: bigint(id), conversationId: text(conversation_id), receivedAt: bigint(received_at) };
			await closeGap(session, gapOfAccepted(post, undefined));
		}
	return rows.length;
}

/** Maximum number of rows that are removed for room at once. */
const MAX_REMOVED = 20_000;

/** Removes the posts for which there is no room. Returns their number. */
async function makeRoom(session: Session, { maxBytes, maxPeers }: RefusedRoom): Promise<number> {
	const table = `${session.dialect.schema}refused_posts`;
	const surplusOfPeers = `peer IS NOT NULL AND id <= coalesce((
		SELECT id FROM ${table} WHERE peer IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ?
	), 0)`;
	const oldest = `accepted = FALSE AND id <= coalesce((
		SELECT max(id) FROM (
			SELECT id, CAST(sum(bytes) OVER (ORDER BY id) AS bigint) - bytes AS older FROM (
				SELECT id, bytes FROM ${table} WHERE accepted = FALSE ORDER BY id LIMIT ${MAX_REMOVED}
			) oldest
		) summed WHERE older < (SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM ${table}) - ?
	), 0)`;
	return (await remove(session, surplusOfPeers, maxPeers)) + (await remove(session, oldest, maxBytes));
}

export const refusedReads = { listRefusedPosts, getRefusedPost, refusedUsage };
export const refusedWrites = {
	addRefusedPosts,
	acceptRefusedPost,
	expireRefusedPosts,
	setRefusedReasons,
	removeRefusedPost: audited(removeRefusedPost),
};
