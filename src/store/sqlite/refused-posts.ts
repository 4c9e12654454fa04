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
import { bigint, boolean, integer, text } from "../values.ts";
import { findActivity } from "./activities.ts";
import { findErasure } from "./erasures.ts";
import { closeGap, openGap } from "./gaps.ts";
import { getOrigin } from "./record-state.ts";
import type { Statements } from "./statements.ts";
import { findRemoved } from "./views.ts";

/** The refused posts in SQLite. The contracts are those of `RefusedPostTable`. The caller has begun a transaction. */

const TABLE = "refused_posts";
const INSERT = insertSql(TABLE, () => "?");

export function insertRefusedPost(statements: Statements, post: RefusedPostRow): void {
	statements.prepare(INSERT).run(...refusedValues(post, Number));
}

export function addRefusedPosts(
	statements: Statements,
	{ posts, room }: { readonly posts: readonly RefusedPostRow[]; readonly room: RefusedRoom },
): number {
	const erasureOf = (id: string | undefined) => (id === undefined ? undefined : findErasure(statements, id));
	for (const post of posts) if (!isOfErased(post, erasureOf(post.conversationId))) insertRefusedPost(statements, post);
	return removeAll(statements, roomSql(TABLE, room));
}

export function acceptRefusedPost(
	statements: Statements,
	{ post, room }: { readonly post: AcceptedPost; readonly room: RefusedRoom },
): number | undefined {
	const { conversationId } = post;
	const gap = judgeAccepted(post, {
		origin: getOrigin(statements, conversationId),
		removed: findRemoved(statements, conversationId),
		erasure: findErasure(statements, conversationId),
		activity: findActivity(statements, conversationId),
	});
	if (gap === "of another owner") return undefined;
	if (gap === "erased") return 0;
	const taken = integer(statements.prepare(acceptedBytesSql(TABLE)).get()?.bytes);
	if (taken + bytesOf(post) > room.maxBytes) return undefined;
	insertRefusedPost(statements, post);
	openGap(statements, gap);
	return removeAll(statements, roomSql(TABLE, room));
}

export function expireRefusedPosts(statements: Statements, age: RefusedAge): number {
	const accepted = oldAcceptedSql(TABLE, age);
	const old = accepted === undefined ? [] : statements.once(accepted).all();
	for (const { id } of old) removeRefusedPost(statements, bigint(id));
	return old.length + removeAll(statements, [ageSql(TABLE, age)]);
}

function removeAll(statements: Statements, deletions: readonly string[]): number {
	// Their texts contain numbers that change, so the cache of statements has no use for them.
	return deletions.reduce((sum, sql) => sum + Number(statements.once(sql).run().changes), 0);
}

export function listRefusedPosts(statements: Statements, query: RefusedQuery): RefusedPost[] {
	const { sql, values } = listSql(TABLE, query, () => "?");
	return statements
		.prepare(sql)
		.all(...values)
		.map(refusedFrom);
}

/** @param owner returns only a post of this owner */
export function getRefusedPost(
	statements: Statements,
	{ id, owner }: { readonly id: bigint; readonly owner: string | undefined },
): RefusedPostRow | undefined {
	const row = statements.prepare("SELECT * FROM refused_posts WHERE id = ? AND (? IS NULL OR owner = ?)");
	const found = row.get(id, owner ?? null, owner ?? null);
	return found === undefined ? undefined : refusedRowFrom(found);
}

export function setRefusedReasons(statements: Statements, { id, kind, reasons, retriedAt }: StillRefused): void {
	statements
		.prepare("UPDATE refused_posts SET kind = ?, reasons = ?, retried_at = ? WHERE id = ?")
		.run(kind, reasons, retriedAt, id);
}

export function removeRefusedPost(statements: Statements, id: bigint): void {
	const row = statements
		.prepare("DELETE FROM refused_posts WHERE id = ? RETURNING accepted, conversation_id, received_at")
		.get(id);
	if (row === undefined || !boolean(row.accepted)) return;
	const post = { id, conversationId: text(row.conversation_id), receivedAt: bigint(row.received_at) };
	closeGap(statements, gapOfAccepted(post, undefined));
}

/**
 * Removes the posts that name a conversation.
 *
 * @param owner removes only posts of this owner
 * @returns their number
 */
export function removeRefusedOf(statements: Statements, conversationId: string, owner: string | undefined): number {
	const rows = statements
		.prepare("SELECT id FROM refused_posts WHERE conversation_id = :id AND (:owner IS NULL OR owner = :owner)")
		.all({ id: conversationId, owner: owner ?? null });
	for (const { id } of rows) removeRefusedPost(statements, bigint(id));
	return rows.length;
}

export function refusedUsage(statements: Statements): RefusedUsage {
	const row = statements
		.prepare(
			"SELECT count(*) AS posts, coalesce(sum(bytes), 0) AS bytes FROM refused_posts INDEXED BY refused_posts_room",
		)
		.get();
	return { posts: integer(row?.posts), bytes: integer(row?.bytes) };
}
