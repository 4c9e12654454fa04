import type { Scope } from "../access/keys.ts";
import type { PausableConnection } from "./back-off.ts";
import { type OnEvicted, type Permit, Pool, type WorkLimits } from "./permits.ts";

/** Kinds of work that requests ask for. Each has limits of its own, so that reads are answered while ingest is full. */
export const WORKS = ["ingest", "read", "watch", "document", "metrics"] as const;
export type Work = (typeof WORKS)[number];

/** Number of the requests of one kind of work that are under way, and of the bytes that count for them. */
export interface UnderWay {
	readonly requests: number;
	readonly bytes: number;
}

/**
 * Maximum number of requests under way, over all transports. At a rate of 500 posts a second, the last request of a
 * full ingest waits for a second.
 */
const MAX_REQUESTS: Readonly<Record<Work, number>> = {
	ingest: 512,
	read: 1_024,
	watch: 2_000,
	document: 64,
	metrics: 16,
};
/** Maximum number of bytes of the responses with metrics, and of those of public routes. */
const SMALL_POOL_BYTES = 16 * 2 ** 20;

/**
 * Counts the requests under way and their bytes, over all transports. A request that would pass a limit is refused at
 * once, unless slow uploads hold more than their share: then the newest slow upload is evicted in its place. A request
 * counts until its work is done and its response has left the process, or its connection is gone, or it is evicted.
 */
export class Admission {
	readonly #pools: Readonly<Record<Work, Pool>>;

	/**
	 * @param maxBytes maximum number of bytes of ingest, of reads and of watches, for each of the three. A request may
	 *   pass it while no other one of its kind holds bytes
	 * @param limits limits that replace the usual ones
	 * @param now returns the milliseconds of a monotonic clock
	 */
	constructor(
		maxBytes: number,
		limits: Partial<Record<Work, WorkLimits>> = {},
		now: () => number = () => performance.now(),
	) {
		const pool = (work: Work, bytes: number) => new Pool(limits[work] ?? { requests: MAX_REQUESTS[work], bytes }, now);
		this.#pools = {
			ingest: pool("ingest", maxBytes),
			read: pool("read", maxBytes),
			watch: pool("watch", maxBytes),
			document: pool("document", SMALL_POOL_BYTES),
			metrics: pool("metrics", SMALL_POOL_BYTES),
		};
	}

	/**
	 * Counts a request from now on.
	 *
	 * @param connection is paused for some time when the request is refused
	 * @param onEvicted ends the request when it is evicted, which can happen while its body still arrives. It does not
	 *   count any more then. Not called for a watch: its work never begins, so it would pass for a slow upload
	 * @throws ServiceError `unavailable` when the maximum number of requests is under way, or their bytes leave no room,
	 *   or so many requests are busy that a further one would probably take too long
	 */
	enter(work: Work, connection?: PausableConnection, onEvicted?: OnEvicted): Permit {
		return this.#pools[work].enter(connection, work === "watch" ? undefined : onEvicted);
	}

	/** Returns what is under way of one kind of work. */
	underWay(work: Work): UnderWay {
		const { requests, bytes } = this.#pools[work];
		return { requests, bytes };
	}
}

/** Returns the kind of work of an RPC. `scope` is the scope that a key needs to call it. */
export function workOf(scope: Scope | undefined, isStream: boolean): Work {
	if (isStream) return "watch";
	return scope === "ingest" ? "ingest" : "read";
}
