import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import { type Dialect, given, type Session } from "./session.ts";
import { columnsOf, type RowOf, selectRows } from "./typed-rows.ts";
import { bigint, max, min, text } from "./values.ts";

/** What the store keeps of senders: the names of the keys and certificates that posts are made with, with their owners. */

/** The totals of a sender. */
export type StoredSender = RowOf<"senders">;

/** What the posts of a group add to a sender. Posts are records and batches of events, also those that were stored before. */
export type SenderPosts = Omit<StoredSender, "usualInterval">;

/** Number of refused requests of a sender in a period. */
export type Refusals = RowOf<"refusals">;

/** A sender and the owner of what it posts. An empty owner stands for none. */
export type SenderName = Pick<Refusals, "sender" | "owner">;

/** Number of conversations that a sender posted first, and whose status is running. */
export type RunningConversations = Pick<Refusals, "sender" | "owner" | "count">;

/** What a list of senders is made of. */
export interface SenderFigures {
	/** Ordered by owner and name. */
	readonly senders: readonly StoredSender[];
	readonly refusals: readonly Refusals[];
	readonly running: readonly RunningConversations[];
}

/** Refused and repeated posts to add, and the time before which periods of refusals are forgotten. */
export interface NewRefusals {
	readonly refusals: readonly Refusals[];
	/** Posts of which nothing was stored, because it was stored before. In an order that all callers share. */
	readonly repeats: readonly SenderPosts[];
	/** Microseconds since the Unix epoch. */
	readonly keptSince: bigint;
}

/** Collects what posts add to their senders. */
export class CountedPosts {
	readonly #senders = new Map<string, SenderPosts>();

	/** Counts a post. */
	add({ sender, owner }: SenderName, at: bigint, { records = 0n, events = 0n }): void {
		this.merge({ sender, owner, firstPostAt: at, lastPostAt: at, posts: 1n, records, events });
	}

	/** Adds posts that were collected before. */
	merge(added: SenderPosts): void {
		const key = JSON.stringify([added.owner, added.sender]);
		const before = this.#senders.get(key);
		if (before === undefined) this.#senders.set(key, added);
		else
			this.#senders.set(key, {
				...before,
				firstPostAt: min(added.firstPostAt, before.firstPostAt),
				lastPostAt: max(added.lastPostAt, before.lastPostAt),
				posts: before.posts + added.posts,
				records: before.records + added.records,
				events: before.events + added.events,
			});
	}

	/** Returns the senders in an order that all groups share, so that transactions lock their rows in the same order. */
	all(): readonly SenderPosts[] {
		return [...this.#senders].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, posts]) => posts);
	}
}

const HOUR = 3_600_000_000n;

/**
 * Returns what an insert does for a sender that exists: see `Session.insert`.
 *
 * @param dialect names the engine's functions
 */
export function addToSender({ least, greatest }: Pick<Dialect, "least" | "greatest">): string {
	const gap = `${least}(${greatest}(excluded.last_post_at - t.last_post_at, 0), excluded.posts * ${HOUR})`;
	const weight = `${greatest}(excluded.posts, ${least}(20, t.posts + excluded.posts - 1))`;
	return `UPDATE SET
		first_post_at = ${least}(t.first_post_at, excluded.first_post_at),
		last_post_at = ${greatest}(t.last_post_at, excluded.last_post_at),
		posts = t.posts + excluded.posts, records = t.records + excluded.records, events = t.events + excluded.events,
		usual_interval = t.usual_interval + (${gap} - excluded.posts * t.usual_interval) / ${weight}
	`;
}

/** Returns the columns of posts that are added to their sender. */
export function postsColumns({ firstPostAt, lastPostAt, ...posts }: SenderPosts) {
	return { ...posts, first_post_at: firstPostAt, last_post_at: lastPostAt, usual_interval: 0n };
}

/** Status of the conversations that {@link RunningConversations} counts. The index has the same number. */
const RUNNING: number = ConversationExecutionStatus.RUNNING;

/**
 * Adds refusals to those of the same periods, and repeated posts to the totals of their senders. Removes periods that are too
 * old.
 */
export async function addRefusals(
	{ all, insert, dialect }: Session,
	{ refusals, repeats, keptSince }: NewRefusals,
): Promise<void> {
	await insert("senders", repeats.map(postsColumns), addToSender(dialect));
	await all(`DELETE FROM ${dialect.schema}refusals WHERE since < ?`, keptSince);
	// In the same order in all transactions, which lock their rows.
	const keyOf = ({ owner, sender, since, kind }: Refusals) => JSON.stringify([owner, sender, String(since), kind]);
	const rows = refusals.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1)).map((one) => columnsOf("refusals", one));
	await insert("refusals", rows, "UPDATE SET count = t.count + excluded.count");
}

/**
 * Returns the totals of senders, their refusals and their running conversations.
 *
 * @param owner whose senders to list; undefined for all
 */
export async function listSenders(session: Session, owner: string | undefined): Promise<SenderFigures> {
	const { text: owned, parameters } = given([["c.owner = ?", owner]]);
	const [senders, refusals, running] = await Promise.all([
		selectRows(session, "senders", [["owner = ?", owner]], "owner, sender"),
		selectRows(session, "refusals", [["owner = ?", owner]], "owner, sender, since, kind"),
		session.all(
			`SELECT sender, coalesce(c.owner, '') AS owner, count(*) AS count
			FROM ${session.dialect.schema}conversations c
			WHERE status = ${RUNNING} AND sender IS NOT NULL AND ${owned} GROUP BY sender, c.owner`,
			...parameters,
		),
	]);
	return {
		senders,
		refusals,
		running: running.map((row) => ({ sender: text(row.sender), owner: text(row.owner), count: bigint(row.count) })),
	};
}
