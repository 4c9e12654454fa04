import {
	ageSql,
	insertSql,
	listSql,
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
import { integer } from "../values.ts";
import type { Statements } from "./statements.ts";

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
	for (const post of posts) insertRefusedPost(statements, post);
	return removeAll(statements, roomSql(TABLE, room));
}

export function expireRefusedPosts(statements: Statements, age: RefusedAge): number {
	return removeAll(statements, ageSql(TABLE, age));
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
	statements.prepare("DELETE FROM refused_posts WHERE id = ?").run(id);
}

export function refusedUsage(statements: Statements): RefusedUsage {
	const row = statements
		.prepare(
			"SELECT count(*) AS posts, coalesce(sum(bytes), 0) AS bytes FROM refused_posts INDEXED BY refused_posts_room",
		)
		.get();
	return { posts: integer(row?.posts), bytes: integer(row?.bytes) };
}
