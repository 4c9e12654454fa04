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
import type { Statements } from "./statements.ts";

/** Adds posts to the totals of their senders. */
export function addPosts(statements: Statements, posts: readonly SenderPosts[]): void {
	for (const one of posts) insertSender(statements, { ...one, usualInterval: 0n });
}

/** Inserts a sender, or adds to its totals. */
export function insertSender(statements: Statements, sender: StoredSender): void {
	statements
		.prepare(`
			INSERT INTO senders AS s VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (owner, sender) DO UPDATE SET ${assignments("min", "max")}
		`)
		.run(
			sender.owner,
			sender.sender,
			sender.firstAt,
			sender.lastAt,
			sender.posts,
			sender.records,
			sender.events,
			sender.usualInterval,
		);
}

/** Adds refused and repeated posts. */
export function addRefusals(statements: Statements, { refusals, repeats, keptSince }: NewRefusals): void {
	addPosts(statements, repeats);
	statements.prepare("DELETE FROM refusals WHERE since < ?").run(keptSince);
	for (const { owner, sender, since, kind, count } of refusals)
		statements
			.prepare(`
				INSERT INTO refusals AS r VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (owner, sender, since, kind) DO UPDATE SET count = r.count + excluded.count
			`)
			.run(owner, sender, since, kind, count);
}

/** @param owner whose senders to list; undefined for all */
export function listSenders(statements: Statements, owner: string | undefined): SenderFigures {
	const owned = owner === undefined ? "" : "AND owner = :owner";
	const rows = (sql: string) => statements.prepare(sql).all(owner === undefined ? {} : { owner });
	return {
		senders: rows(`SELECT * FROM senders WHERE TRUE ${owned} ORDER BY owner, sender`).map(senderFrom),
		refusals: rows(`SELECT * FROM refusals WHERE TRUE ${owned} ORDER BY owner, sender, since, kind`).map(refusalsFrom),
		running: rows(`
			SELECT sender, coalesce(owner, '') AS owner, count(*) AS count FROM conversations
			WHERE status = ${RUNNING} AND sender IS NOT NULL ${owned} GROUP BY sender, conversations.owner
		`).map(runningFrom),
	};
}
