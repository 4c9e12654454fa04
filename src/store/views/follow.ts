import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { LogTable } from "../sequence-log.ts";
import type { Session } from "../session.ts";
import { bigint, boolean, nullable, text } from "../values.ts";

/** The names of the views that follow the logs. Each has its position in the table `views`. */
export type ViewName = "conversations" | "usage";

/** The entries of both logs up to which a view has followed. */
export interface ViewPosition {
	readonly updates: bigint;
	readonly events: bigint;
}

/** A view that has not followed up to the newest entries. */
export interface Behind extends ViewPosition {
	readonly view: ViewName;
}

/** What a step of a view follows. */
interface NextEntries {
	readonly conversations: ReadonlySet<string>;
	readonly before: ViewPosition;
	/** The entries of these conversations up to here are followed in this step. At least the position after it. */
	readonly through: ViewPosition;
	/** The position after the step. */
	readonly after: ViewPosition;
	readonly hasMore: boolean;
}

/** Maximum number of entries of each log that a step reads. */
const MAX_ENTRIES = 1_000;
/** Maximum number of conversations that a step derives, so that appends wait only for a short commit. */
export const MAX_CONVERSATIONS = 64;
/** Number of entries of each log, from the position of a view on, of which a step follows those of its conversations. */
const AHEAD = 4_000n;

/**
 * What the steps of one run have followed beyond the position of a view. A step follows the entries of its conversations
 * also where they stand behind those of others, and later steps skip them. It holds while no other process moves the view.
 */
export class FollowedAhead {
	readonly #views = new Map<ViewName, { position: ViewPosition; readonly through: Map<string, ViewPosition> }>();

	/** Returns up to which entries conversations were followed, by their ids. */
	of(view: ViewName, position: ViewPosition): ReadonlyMap<string, ViewPosition> {
		const known = this.#views.get(view);
		const isSame = known?.position.updates === position.updates && known.position.events === position.events;
		return isSame ? known.through : new Map();
	}

	/** Notes what a step followed. */
	add(view: ViewName, { conversations, before, after, through }: NextEntries): void {
		const all = new Map(this.of(view, before));
		for (const [id, { updates, events }] of all) if (updates <= after.updates && events <= after.events) all.delete(id);
		for (const id of conversations) all.set(id, through);
		this.#views.set(view, { position: after, through: all });
	}
}

/** Returns the position of a view, and keeps other processes from following it in the meantime. */
export async function lockView({ dialect, all }: Session, name: ViewName): Promise<ViewPosition> {
	const [row] = await all(
		`SELECT updates, events FROM ${dialect.schema}views WHERE name = ? ${dialect.forUpdate}`,
		name,
	);
	return { updates: bigint(row?.updates), events: bigint(row?.events) };
}

/** Sets the position of a view, which is locked. */
export async function moveView({ dialect, all }: Session, name: ViewName, to: ViewPosition): Promise<void> {
	await all(`UPDATE ${dialect.schema}views SET updates = ?, events = ? WHERE name = ?`, to.updates, to.events, name);
}

/**
 * Reads the entries that a view follows next, of a bounded number of conversations. Locks the view.
 *
 * @param through when the view has followed all entries, its position becomes at least this one
 * @param isBesideDamage whether to read an index only: see `Dialect.entries`
 * @param ahead what earlier steps have followed, and this one will have when it succeeds
 */
export async function nextEntries(
	session: Session,
	name: ViewName,
	through: ViewPosition,
	isBesideDamage: boolean,
	ahead: FollowedAhead,
): Promise<NextEntries> {
	const before = await lockView(session, name);
	const followed = ahead.of(name, before);
	const conversations = new Set<string>();
	const follow = async (log: LogTable) => {
		const { from, besideDamage, conversationId } = session.dialect.entries[log];
		const rows = await session.all(
			`SELECT e.sequence, ${conversationId} AS conversation_id
			FROM ${isBesideDamage ? besideDamage : from} WHERE e.sequence > ? AND e.sequence <= ?
			ORDER BY e.sequence LIMIT ${MAX_ENTRIES}`,
			before[log],
			newest[log],
		);
		const isFull = rows.findIndex(({ sequence, conversation_id }) => {
			const id = text(conversation_id);
			if (bigint(sequence) <= (followed.get(id)?.[log] ?? 0n)) return false;
			if (conversations.size === MAX_CONVERSATIONS && !conversations.has(id)) return true;
			conversations.add(id);
			return false;
		});
		const entries = isFull < 0 ? rows : rows.slice(0, isFull);
		const last = entries.length === 0 ? before[log] : bigint(entries.at(-1)?.sequence);
		const hasMore = isFull >= 0 || rows.length === MAX_ENTRIES;
		return { position: hasMore || last > through[log] ? last : through[log], hasMore };
	};
	// What is appended after this is followed by later steps.
	const newest = await session.newestEntries();
	const [updates, events] = [await follow("updates"), await follow("events")];
	const after = { updates: updates.position, events: events.position };
	const furthest = (log: LogTable) => {
		const far = before[log] + AHEAD < newest[log] ? before[log] + AHEAD : newest[log];
		return far > after[log] ? far : after[log];
	};
	const next = {
		conversations,
		before,
		after,
		through: { updates: furthest("updates"), events: furthest("events") },
		hasMore: updates.hasMore || events.hasMore,
	};
	ahead.add(name, next);
	return next;
}

/** Notes that conversations change without an entry in a log, so that the views derive their rows. */
export async function markChanged(
	{ insert }: Pick<Session, "insert">,
	conversationIds: readonly string[],
): Promise<void> {
	// In the same order in all transactions, so that none waits for another one that waits for it.
	const rows = conversationIds.toSorted().map((id) => ({ conversation_id: id }));
	await insert("changed_conversations", rows, "NOTHING");
}

/** Milliseconds that a read waits for its view. */
const MAX_WAIT = 5_000;

/** A read of a view. `isFollowed` says that the view has what was accepted before the read was asked for. */
export interface ViewQuery<Query> {
	readonly query: Query;
	readonly isFollowed: boolean;
}

/** How far a view is behind the logs. */
export interface ViewLag {
	readonly name: string;
	/**
	 * When the oldest entry was received that the view has not followed, in microseconds since the Unix epoch; undefined when
	 * there is none.
	 */
	readonly since: bigint | undefined;
}

/** Returns how far all views are behind the logs. */
export async function listViews({ all, dialect: { schema } }: Session): Promise<ViewLag[]> {
	const first = (log: "updates" | "events") =>
		`(SELECT e.received_at FROM ${schema}${log} e WHERE e.sequence > v.${log} ORDER BY e.sequence LIMIT 1)`;
	const rows = await all(
		`SELECT v.name, ${first("updates")} AS first_update, ${first("events")} AS first_event FROM ${schema}views v
		ORDER BY v.name`,
	);
	return rows.map(({ name, first_update, first_event }) => {
		const [update, event] = [nullable(bigint, first_update), nullable(bigint, first_event)];
		const since = update !== undefined && event !== undefined && event < update ? event : (update ?? event);
		return { name: text(name), since };
	});
}

/** Returns the newest entries if one of the views has not followed up to them; otherwise undefined. */
async function newestIfBehind(
	{ all, dialect: { schema, newest } }: Session,
	views: readonly ViewName[],
): Promise<Behind | undefined> {
	const rows = await all(
		`SELECT v.name, v.updates, v.events, ${newest.updates} AS newest_update, ${newest.events} AS newest_event,
			EXISTS (SELECT 1 FROM ${schema}changed_conversations) AS has_changed
		FROM ${schema}views v`,
	);
	for (const view of views) {
		const row = rows.find(({ name }) => name === view);
		const found = { view, updates: bigint(row?.newest_update), events: bigint(row?.newest_event) };
		if (found.updates > bigint(row?.updates) || found.events > bigint(row?.events) || boolean(row?.has_changed))
			return found;
	}
	return undefined;
}

/** The result of such a read; or the newest entries, if the view has not followed up to them. */
export type ViewAnswer<Result> = { readonly result: Result } | { readonly behind: Behind };

/** Returns the operation that reads views, unless one of them has not followed up to the newest entries. */
export function ofViews<Query, Result>(
	read: (session: Session, query: Query) => Promise<Result>,
	...views: readonly ViewName[]
): (session: Session, query: ViewQuery<Query>) => Promise<ViewAnswer<Result>> {
	return async (session, { query, isFollowed }) => {
		const behind = isFollowed ? undefined : await newestIfBehind(session, views);
		if (behind !== undefined) return { behind };
		await session.settled();
		return { result: await read(session, query) };
	};
}

/** Runs an operation of {@link ofViews}, when the views have followed. */
export type WaitForViews = <Query, Result>(
	read: (query: ViewQuery<Query>) => Promise<ViewAnswer<Result>>,
	query: Query,
) => Promise<Result>;

/**
 * Reads a view when it has everything that was accepted before.
 *
 * @param follow lets the view follow the logs up to some entries
 * @throws {ServiceError} `unavailable` when the view does not follow in time
 */
export async function readView<Query, Result>(
	query: Query,
	read: (query: ViewQuery<Query>) => Promise<ViewAnswer<Result>>,
	follow: (through: ViewPosition) => Promise<void>,
): Promise<Result> {
	const first = await read({ query, isFollowed: false });
	if ("result" in first) return first.result;
	await inTime(first.behind.view, follow(first.behind));
	const second = await read({ query, isFollowed: true });
	if ("result" in second) return second.result;
	throw new Error("a view that has followed is behind");
}

async function inTime(view: ViewName, following: Promise<void>): Promise<void> {
	const over = new AbortController();
	const late = delay(MAX_WAIT, undefined, { signal: over.signal, ref: false }).then(() => {
		throw new ServiceError("unavailable", `the view of ${view} is behind the log; try again`);
	});
	try {
		await Promise.race([following, late]);
	} finally {
		late.catch(() => undefined);
		over.abort();
	}
}
