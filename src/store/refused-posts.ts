import { audited } from "./access.ts";
import { type Erasure, findErasures } from "./erasure.ts";
import { closeGap, type GapOf, openGap } from "./gaps.ts";
import { getOwnership, mayPost, type Ownership, ownershipOf } from "./owners.ts";
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

/** A post to keep. */
export interface NewRefusedPost {
	readonly post: RefusedPostRow;
	/** Maximum sum of {@link bytesOf} of all posts. */
	readonly maxBytes: number;
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

/** Bytes that a row counts for beside its texts and its body. */
const ROW_BYTES = 512;

/** Returns the bytes that a post counts for. */
export function bytesOf({ body, reasons, route }: RefusedPostRow): number {
	return ROW_BYTES + reasons.length + route.length + (body?.byteLength ?? 0);
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

// The caller of the functions below has begun a transaction. Conversations are locked before the table, so that transactions
// do not wait for each other.

/**
 * Stores a post, and removes the oldest ones for which there is no room. An accepted batch opens a gap of its conversation;
 * only posts that are not accepted make room for it. A post of an erased conversation is not stored, unless its sender may
 * not post to it: then it is no part of it.
 *
 * @returns the number of posts that were removed; undefined when a batch cannot be accepted, because there is no room
 *   beside the accepted ones, or the conversation belongs to another owner
 */
async function keepRefusedPost(session: Session, { post, maxBytes }: NewRefusedPost): Promise<number | undefined> {
	const { conversationId, owner, accepted } = post;
	const ids = conversationId === undefined ? [] : [conversationId];
	const bytes = bytesOf(post);
	await session.lock(ids);
	const [erasure] = await findErasures(session, ids);
	if (erasure !== undefined && mayPost(owner, erasure)) return 0;
	if (accepted && !mayPost(owner, await ownershipFor(session, post, erasure))) return undefined;
	await session.lockTable("refused_posts");
	if (accepted && (await usageOf(session, "accepted = TRUE")).bytes + bytes > maxBytes) return undefined;
	await session.insert("refused_posts", [columnsOf("refused_posts", { ...post, bytes })]);
	if (accepted) await openGap(session, await gapOfAccepted(session, post));
	return await makeRoom(session, maxBytes);
}

/** Returns whose the conversation of an accepted batch is, also one that was removed or erased. */
async function ownershipFor(
	session: Session,
	{ conversationId = "" }: RefusedPostRow,
	erasure: Erasure | undefined,
): Promise<Ownership | undefined> {
	const [removed] = await session.all(
		`SELECT sender, owner FROM ${session.dialect.schema}usage_conversations WHERE ${session.isIn("conversation_id")}`,
		[conversationId],
	);
	return ownershipOf({
		ownership: await getOwnership(session, conversationId),
		removed: removed && { sender: text(removed.sender), owner: text(removed.owner) },
		erasure,
	});
}

/** Returns the gap that an accepted batch leaves in its conversation. */
async function gapOfAccepted(
	{ all, isIn, dialect: { schema } }: Session,
	{ id, conversationId = "", receivedAt: since }: RefusedPostRow,
): Promise<GapOf> {
	const leaves = await all(`SELECT leaf FROM ${schema}activities WHERE ${isIn("conversation_id")}`, [conversationId]);
	const after = nullable(text, leaves[0]?.leaf ?? null);
	return { conversationId, kind: "refused_batch", missing: String(id), after, since };
}

/**
 * Removes posts from before a time, with the gaps of accepted ones, which have a time of their own or stay.
 *
 * @returns their number
 */
async function expireRefusedPosts(
	session: Session,
	{ keptSince, acceptedSince = 0n }: { readonly keptSince: bigint; readonly acceptedSince: bigint | undefined },
): Promise<number> {
	const old = "accepted = TRUE AND id < ?";
	await lockConversationsOf(session, old, idsFrom(acceptedSince));
	return (
		(await remove(session, old, idsFrom(acceptedSince))) +
		(await remove(session, "accepted = FALSE AND id < ?", idsFrom(keptSince)))
	);
}

async function listRefusedPosts(
	{ all, dialect: { schema } }: Session,
	{ owner, recordOf, before, after, limit }: RefusedQuery,
): Promise<RefusedPost[]> {
	const where = given([
		["owner = ?", owner],
		["form IN ('record_json', 'record_message') AND conversation_id = ?", recordOf],
		["id < ?", before],
		["body IS NOT NULL AND id > ?", after],
	]);
	const shown = Object.keys(tableOf("refused_posts").columns).filter((column) => column !== "body");
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
async function refusedUsage(session: Session) {
	return await usageOf(session, "TRUE");
}

/** Returns the room that the posts take that pass a test. */
async function usageOf({ all, dialect: { schema } }: Session, test: string) {
	const [row] = await all(
		`SELECT count(*) AS posts, CAST(coalesce(sum(bytes), 0) AS bigint) AS bytes FROM ${schema}refused_posts
		WHERE ${test}`,
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
		`DELETE FROM ${session.dialect.schema}refused_posts WHERE ${test} RETURNING id, accepted, conversation_id`,
		...values,
	);
	for (const { id, accepted, conversation_id } of rows)
		if (boolean(accepted))
			await closeGap(session, {
				conversationId: text(conversation_id),
				kind: "refused_batch",
				missing: String(bigint(id)),
			});
	return rows.length;
}

/** Maximum number of rows that are removed for room at once. */
const MAX_REMOVED = 20_000;

/** Removes the posts for which there is no room. Returns their number. */
async function makeRoom(session: Session, maxBytes: number): Promise<number> {
	const table = `${session.dialect.schema}refused_posts`;
	const oldest = `accepted = FALSE AND id <= coalesce((
		SELECT max(id) FROM (
			SELECT id, CAST(sum(bytes) OVER (ORDER BY id) AS bigint) - bytes AS older FROM (
				SELECT id, bytes FROM ${table} WHERE accepted = FALSE ORDER BY id LIMIT ${MAX_REMOVED}
			) oldest
		) summed WHERE older < (SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM ${table}) - ?
	), 0)`;
	return await remove(session, oldest, maxBytes);
}

export const refusedReads = { listRefusedPosts, getRefusedPost, refusedUsage };
export const refusedWrites = {
	keepRefusedPost,
	expireRefusedPosts,
	/** Says why a post was refused again. Returns whether there is such a post. */
	setRefusedReasons: (
		session: Session,
		{ id, ...changes }: Pick<RefusedPostRow, "id" | "kind" | "reasons" | "retriedAt">,
	) => changeRows(session, "refused_posts", { id }, changes),
	removeRefusedPost: audited(removeRefusedPost),
};
