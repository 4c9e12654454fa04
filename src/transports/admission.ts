import type { Scope } from "../access/keys.ts";
import type { Reading } from "./back-off.ts";
import { type GiveUp, type Permit, Pool, type WorkBounds } from "./permits.ts";

/** What a request is for. Each kind of work has bounds of its own, so that reads answer while ingest is full. */
export const WORKS = ["ingest", "read", "watch", "document", "metrics"] as const;
export type Work = (typeof WORKS)[number];

/** What is under way of one kind of work. */
export interface UnderWay {
	readonly requests: number;
	readonly bytes: number;
}

/**
 * Most requests under way, all transports together. At a rate of 500 posts a second, the last one of a full ingest waits
 * for a second.
 */
const REQUESTS: Readonly<Record<Work, number>> = {
	ingest: 512,
	read: 1_024,
	watch: 2_000,
	document: 64,
	metrics: 16,
};
/** Most bytes of the requests of watches, of the answers with metrics, and of those to who has no key. */
const SMALL_BYTES = 16 * 2 ** 20;

/**
 * Counts the requests under way and their bytes, over all transports. A request that would pass a bound is refused at
 * once, unless slow uploads hold too much of it: then the newest of these is given up. A request counts until it is done
 * and its answer has left the process, or its connection is gone, or it is given up.
 */
export class Admission {
	readonly #pools: Readonly<Record<Work, Pool>>;

	/**
	 * @param maxBytes most bytes of ingest, and once more of reads; one request that is alone may pass it
	 * @param bounds in place of the usual ones
	 * @param now gives milliseconds of a clock that only goes forward
	 */
	constructor(
		maxBytes: number,
		bounds: Partial<Record<Work, WorkBounds>> = {},
		now: () => number = () => performance.now(),
	) {
		const pool = (work: Work, bytes: number) => new Pool(bounds[work] ?? { requests: REQUESTS[work], bytes }, now);
		this.#pools = {
			ingest: pool("ingest", maxBytes),
			read: pool("read", maxBytes),
			watch: pool("watch", maxBytes),
			document: pool("document", SMALL_BYTES),
			metrics: pool("metrics", SMALL_BYTES),
		};
	}

	/**
	 * Counts a request from here on.
	 *
	 * @param connection is left unread for some time when the request is refused
	 * @param giveUp ends the request, with what it is refused with, while its body still arrives. It does not count any
	 *   more then. Not called for a watch, whose work never begins
	 * @throws ServiceError `unavailable` when as many are under way as may be, or their bytes leave no room, or so
	 *   many are under way that the last one would be done too late
	 */
	enter(work: Work, connection?: Reading, giveUp?: GiveUp): Permit {
		return this.#pools[work].enter(connection, work === "watch" ? undefined : giveUp);
	}

	/** What is under way. */
	underWay(work: Work): UnderWay {
		const { requests, bytes } = this.#pools[work];
		return { requests, bytes };
	}
}

/** The work of a method, by the scope that a key needs for it. */
export function workOf(scope: Scope | undefined, isStream: boolean): Work {
	if (isStream) return "watch";
	return scope === "ingest" ? "ingest" : "read";
}
