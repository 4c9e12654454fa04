import { setTimeout as delay } from "node:timers/promises";
import { ServiceError } from "../../errors.ts";
import type { ViewPosition } from "./conversations.ts";

/** Milliseconds that a read waits for its view. */
const MAX_WAIT = 5_000;

/** A read of a view. `isFollowed` says that the view has what was accepted before the read was asked for. */
export interface ViewQuery<Query> {
	readonly query: Query;
	readonly isFollowed: boolean;
}

/** The result of such a read; or the newest entries, if the view has not followed up to them. */
export type ViewAnswer<Result> = { readonly result: Result } | { readonly behind: ViewPosition };

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
	await inTime(follow(first.behind));
	const second = await read({ query, isFollowed: true });
	if ("result" in second) return second.result;
	throw new Error("a view that has followed is behind");
}

async function inTime(following: Promise<void>): Promise<void> {
	const over = new AbortController();
	const late = delay(MAX_WAIT, undefined, { signal: over.signal, ref: false }).then(() => {
		throw new ServiceError("unavailable", "the view of conversations is behind the log; try again");
	});
	try {
		await Promise.race([following, late]);
	} finally {
		late.catch(() => undefined);
		over.abort();
	}
}
