import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { Session } from "../session.ts";
import { bigint, boolean, nullable, text } from "../values.ts";
import type { Behind, ViewName, ViewPosition } from "./follow.ts";

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
		return behind === undefined ? { result: await read(session, query) } : { behind };
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
