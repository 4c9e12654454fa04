import type { Scope } from "../access/keys.ts";
import { ServiceError } from "../errors.ts";

/** Kinds of work. Each has limits of its own, so that reads are answered while ingest is full. */
export const WORKS = ["ingest", "read", "watch", "document", "metrics", "keyless"] as const;
export type Work = (typeof WORKS)[number];

/** Requests of one kind of work that are under way, or their limits. */
export interface WorkLimits {
	readonly requests: number;
	/** Bytes that their bodies, responses and stream messages hold together. */
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
	// Health and reflection over gRPC. A client that watches the health has one such call.
	keyless: 1_000,
};
/** Maximum number of bytes of the responses with metrics, of those of public routes, and of keyless requests. */
const SMALL_POOL_BYTES = 16 * 2 ** 20;
const MAX_UNCOUNTED_RESPONSE = 4096;

interface Pool {
	requests: number;
	bytes: number;
	readonly limits: WorkLimits;
}

/**
 * Counts the requests under way and their bytes, over all transports. A request that would pass a limit is refused at
 * once. A request counts until its work is done and its response has left the process, or its connection is gone. The
 * deadlines of `Limits` end requests whose clients send or read too slowly.
 */
export class Admission {
	readonly #pools: Readonly<Record<Work, Pool>>;

	/**
	 * @param maxBytes maximum number of bytes of ingest, of reads and of watches, for each of the three. A request may
	 *   pass it while no other one of its kind holds bytes
	 */
	constructor(maxBytes: number, limits: Partial<Record<Work, WorkLimits>> = {}) {
		const pool = (work: Work, bytes = maxBytes): Pool => {
			return { requests: 0, bytes: 0, limits: limits[work] ?? { requests: MAX_REQUESTS[work], bytes } };
		};
		this.#pools = {
			...{ ingest: pool("ingest"), read: pool("read"), watch: pool("watch") },
			document: pool("document", SMALL_POOL_BYTES),
			metrics: pool("metrics", SMALL_POOL_BYTES),
			keyless: pool("keyless", SMALL_POOL_BYTES),
		};
	}

	/**
	 * Counts a request from now on, until all holders of its permit have released it.
	 *
	 * @throws ServiceError `unavailable` when the maximum number of requests is under way, or their bytes leave no room
	 */
	enter(work: Work): Permit {
		const pool = this.#pools[work];
		if (pool.requests >= pool.limits.requests)
			throw new ServiceError("unavailable", "Too many requests are under way; try again later");
		// Before any of its body is read, which would probably be refused in its middle.
		if (pool.bytes >= pool.limits.bytes) throw tooManyBytes();
		pool.requests += 1;
		return new Permit(pool);
	}

	/**
	 * Counts bytes that the service keeps for several requests of one kind.
	 *
	 * @returns a function that ends the counting; to be called once
	 */
	reserve(work: Work, bytes: number): () => void {
		const pool = this.#pools[work];
		if (pool.bytes > 0 && pool.bytes + bytes > pool.limits.bytes) throw tooManyBytes();
		pool.bytes += bytes;
		return () => {
			pool.bytes -= bytes;
		};
	}

	underWay(work: Work): WorkLimits {
		const { requests, bytes } = this.#pools[work];
		return { requests, bytes };
	}
}

/** The permit of an admitted request. The request counts until all holders of the permit have released it. */
export class Permit {
	readonly #pool: Pool;
	#bytes = 0;
	#holders = 0;
	#over = false;

	/** To be called by {@link Admission.enter} only, which has counted the request. */
	constructor(pool: Pool) {
		this.#pool = pool;
	}

	/**
	 * Counts bytes that the service keeps for the request, until they are given back or the request is over. Has no
	 * effect when it is over already.
	 *
	 * @throws ServiceError `unavailable` when the bytes would pass the limit; they do not count then
	 */
	reserve(bytes: number): void {
		if (this.#over) return;
		const pool = this.#pool;
		// A request may pass the limit while no other one holds bytes. Otherwise each of its retries would be refused.
		if (pool.bytes > this.#bytes && pool.bytes + bytes > pool.limits.bytes) throw tooManyBytes();
		pool.bytes += bytes;
		this.#bytes += bytes;
	}

	/** Ends the counting of reserved bytes before the request is over: the client has taken a message of a stream. */
	giveBack(bytes: number): void {
		if (this.#over) return;
		this.#pool.bytes -= bytes;
		this.#bytes -= bytes;
	}

	/**
	 * Counts the bytes of the response, as {@link reserve} does. A response of up to {@link MAX_UNCOUNTED_RESPONSE} bytes
	 * does not count: the number of requests limits such responses, and a post that was stored must not be refused.
	 */
	reserveResponse(bytes: number): void {
		if (bytes > MAX_UNCOUNTED_RESPONSE) this.reserve(bytes);
	}

	/**
	 * Holds the permit, so that the request counts.
	 *
	 * @returns a function that releases the permit; further calls of it have no effect
	 */
	hold(): () => void {
		this.#holders += 1;
		let holds = true;
		return () => {
			if (!holds) return;
			holds = false;
			this.#holders -= 1;
			if (this.#holders === 0) this.#leave();
		};
	}

	#leave(): void {
		if (this.#over) return;
		this.#over = true;
		this.#pool.requests -= 1;
		this.#pool.bytes -= this.#bytes;
	}
}

/** Returns the kind of work of a route or an RPC. `scope` is the scope that a key needs, or `public` if it needs none. */
export function workOf(scope: Scope | "public" | undefined, isStream: boolean): Work {
	if (isStream) return "watch";
	if (scope === "public") return "document";
	return scope === "ingest" || scope === "metrics" ? scope : "read";
}

/** Returns whether a request with a scope may be as large as a record. */
export function isLarge(scope: Scope | "public" | undefined): boolean {
	return scope === "ingest" || scope === "score";
}

function tooManyBytes(): ServiceError {
	return new ServiceError("unavailable", "Requests and responses under way use too much memory; try again later");
}
