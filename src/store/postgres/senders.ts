import {
	assignments,
	type NewRefusals,
	RUNNING,
	refusalsFrom,
	runningFrom,
	type SenderFigures,
	type SenderPosts,
	type StoredSender,
	senderFrom,
} from "../senders.ts";
import { json } from "./sql.ts";
import type { Query, Session } from "./transaction.ts";

/**
 * Returns the query that inserts senders, or adds to their totals. The rows are locked in the order of the senders, which
 * is the same in all groups.
 */
export function sendersQuery(senders: readonly StoredSender[]): Query {
	return {
		name: "write_senders",
		text: `
			INSERT INTO conversation_updates.senders AS s
			SELECT owner, sender, first_post_at, last_post_at, posts, records, events, usual_interval
			FROM json_to_recordset($1::json) AS r (
				owner text, sender text, first_post_at bigint, last_post_at bigint, posts bigint, records bigint, events bigint,
				usual_interval bigint
			)
			ON CONFLICT (owner, sender) DO UPDATE SET ${assignments("least", "greatest")}
		`,
		values: [
			json(
				senders.map(({ firstAt, lastAt, usualInterval, ...sender }) => ({
					...sender,
					first_post_at: firstAt,
					last_post_at: lastAt,
					usual_interval: usualInterval,
				})),
			),
		],
	};
}

/** Returns the query that adds posts to the totals of their senders; none for no posts. */
export function postsQueries(posts: readonly SenderPosts[]): Query[] {
	return posts.length === 0 ? [] : [sendersQuery(posts.map((one) => ({ ...one, usualInterval: 0n })))];
}

/** Returns the queries that add refused and repeated posts, and forget old refusals. */
export function refusalsQueries({ refusals, repeats, keptSince }: NewRefusals): Query[] {
	return [
		...postsQueries(repeats),
		{ text: "DELETE FROM conversation_updates.refusals WHERE since < $1", values: [keptSince] },
		{
			text: `
				INSERT INTO conversation_updates.refusals AS r
				SELECT owner, sender, since, kind, count
				FROM json_to_recordset($1::json) AS n (owner text, sender text, since bigint, kind text, count bigint)
				ORDER BY owner, sender, since, kind
				ON CONFLICT (owner, sender, since, kind) DO UPDATE SET count = r.count + excluded.count
			`,
			values: [json(refusals)],
		},
	];
}

/** @param owner whose senders to list; undefined for all */
export async function listSenders(session: Session, owner: string | undefined): Promise<SenderFigures> {
	const owned = owner === undefined ? "" : "AND owner = $1";
	const values = owner === undefined ? [] : [owner];
	const [senders = [], refusals = [], running = []] = await session.query(
		{
			text: `SELECT * FROM conversation_updates.senders WHERE TRUE ${owned} ORDER BY owner, sender`,
			values,
		},
		{
			text: `SELECT * FROM conversation_updates.refusals WHERE TRUE ${owned} ORDER BY owner, sender, since, kind`,
			values,
		},
		{
			text: `
				SELECT sender, coalesce(c.owner, '') AS owner, count(*) AS count FROM conversation_updates.conversations c
				WHERE status = ${RUNNING} AND sender IS NOT NULL ${owned} GROUP BY sender, c.owner
			`,
			values,
		},
	);
	return { senders: senders.map(senderFrom), refusals: refusals.map(refusalsFrom), running: running.map(runningFrom) };
}
