import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { ServiceError } from "../../errors.ts";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "../database.ts";
import { dial, requireWrites } from "./dial.ts";
import { DatabaseError, databaseError } from "./failures.ts";
import { type Found, search } from "./search.ts";

/** Milliseconds after which an unused connection is closed. */
const IDLE_TIMEOUT = 60_000;
/** Milliseconds between two attempts to connect to a server that has no connection left. */
const FULL_RETRY_DELAY = 100;

/** The primary, and the pool of connections to it. */
interface Server {
	readonly found: Found;
	readonly pool: pg.Pool;
}

/** State of the search for the primary. */
type State =
	| { readonly name: "found"; readonly server: Server }
	/** Callers wait for `first`: until a server is found or all hosts have failed. */
	| { readonly name: "searching"; readonly first: Promise<Server> }
	/** All hosts have failed. Calls fail at once with `error`, while the search goes on. */
	| { readonly name: "away"; readonly error: ServiceError };

/** A borrowed connection. */
export interface Lease {
	readonly client: pg.ClientBase;
	/** Returns why the connection broke; undefined while it is not known to be broken. */
	failure(): Error | undefined;
	/**
	 * @param usable false when the connection failed: it is closed, and if it was from the pool, the primary is searched for
	 *   again
	 */
	release(usable: boolean): void;
}

/**
 * Finds the primary (the server that accepts writes) among the hosts of a database, and keeps a pool of connections to it.
 * Searches again when it is lost, also after a failover.
 */
export class Primary implements AsyncDisposable {
	readonly #settings: PostgresSettings;
	readonly #logger: ThreadLogger;
	readonly #slots: Slots;
	readonly #closing = new AbortController();
	#state: State;
	#searching: Promise<void> = Promise.resolve();

	private constructor(settings: PostgresSettings, log: ThreadLogger) {
		this.#settings = settings;
		this.#logger = log;
		this.#slots = new Slots(settings.connections);
		this.#state = this.#search(() => undefined);
	}

	/** @throws {ServiceError} `unavailable` when all hosts have failed */
	static async find(settings: PostgresSettings, log: ThreadLogger): Promise<Primary> {
		const primary = new Primary(settings, log);
		try {
			await primary.#server();
			return primary;
		} catch (error) {
			await primary[Symbol.asyncDispose]();
			throw error;
		}
	}

	/**
	 * Returns a connection of the pool without an open transaction. Waits for a free connection for at most the connect
	 * timeout. Waits for a new connection for at most twice as long, including the search for a primary that was lost.
	 *
	 * @throws {ServiceError} `unavailable`
	 */
	async lease(): Promise<Lease> {
		const { connectTimeout } = this.#settings;
		await this.#slots.take(connectTimeout);
		const connecting = this.#connect().then(
			({ client, server }) =>
				lend(client, (usable) => {
					client.release(!usable);
					this.#slots.release();
					if (!usable) this.#lose(server);
				}),
			(error: unknown) => {
				this.#slots.release();
				throw error;
			},
		);
		const late = Promise.withResolvers<never>();
		const timer = setTimeout(() => {
			late.reject(new ServiceError("unavailable", "no connection to the database was established in time"));
			// The connection keeps its slot until it is established.
			connecting.then(({ release }) => release(true)).catch(() => undefined);
		}, 2 * connectTimeout);
		return await Promise.race([connecting, late.promise]).finally(() => clearTimeout(timer));
	}

	/**
	 * Opens a connection outside of the pool, which the caller ends.
	 *
	 * @param statementTimeout milliseconds, at most 2^30; a query without a response 5 seconds later fails
	 * @throws {ServiceError} `unavailable`
	 */
	async openConnection(statementTimeout: number): Promise<pg.Client> {
		const server = await this.#server();
		try {
			return (await dial({ ...this.#settings, statementTimeout }, server.found.host)).client;
		} catch (error) {
			const failure = databaseError(error);
			// A server without a connection left for this one still serves the pool.
			if (!(failure instanceof DatabaseError) || failure.connectionLost) this.#lose(server);
			throw failure;
		}
	}

	async #connect(): Promise<{ client: pg.PoolClient; server: Server }> {
		const until = performance.now() + this.#settings.connectTimeout;
		for (let isLast = false; ; ) {
			const server = await this.#server();
			try {
				return { client: await server.pool.connect(), server };
			} catch (error) {
				const failure = databaseError(error);
				if (isFull(failure) && server.pool.totalCount > 0) {
					// The existing connections still work; one of them may be free soon.
					if (performance.now() > until) throw failure;
					await delay(FULL_RETRY_DELAY);
					continue;
				}
				this.#lose(server);
				if (isLast) throw failure;
				isLast = true;
			}
		}
	}

	async #server(): Promise<Server> {
		if (this.#closing.signal.aborted) throw new ServiceError("unavailable", "the store is closed");
		const state = this.#state;
		if (state.name === "away") throw state.error;
		return state.name === "found" ? state.server : state.first;
	}

	/**
	 * Ends the pool and searches for the primary again. Idle connections are closed at once, the others when they are
	 * released.
	 */
	#lose(server: Server): void {
		if (this.#state.name !== "found" || this.#state.server !== server) return;
		server.pool.end().catch(() => undefined);
		this.#state = this.#search((error) =>
			this.#logger.error({ err: error }, "no primary of the database can be reached"),
		);
	}

	/** @param onAway called once, when all hosts have failed */
	#search(onAway: (error: ServiceError) => void): State {
		const first = Promise.withResolvers<Server>();
		first.promise.catch(() => undefined);
		const found = search(this.#settings, this.#closing.signal, (error) => {
			if (this.#state.name === "searching") onAway(error);
			this.#state = { name: "away", error };
			first.reject(error);
		});
		this.#searching = found.then((result) => {
			if (result === undefined) return first.reject(new ServiceError("unavailable", "the store is closed"));
			const server = { found: result, pool: makePool(result.options, this.#settings.connections) };
			this.#state = { name: "found", server };
			first.resolve(server);
		});
		return { name: "searching", first: first.promise };
	}

	/** The caller must have released all connections. */
	async [Symbol.asyncDispose](): Promise<void> {
		this.#closing.abort();
		await this.#searching;
		if (this.#state.name === "found") await this.#state.server.pool.end();
	}
}

/** Returns whether a connection limit is reached: that of the server, the database, or the role. */
function isFull(failure: ServiceError): boolean {
	return failure instanceof DatabaseError && failure.sqlState === "53300";
}

/** @param release returns the connection to its owner */
export function lend(client: pg.ClientBase, release: Lease["release"]): Lease {
	let failure: Error | undefined;
	const onError = (error: Error) => {
		failure ??= error;
	};
	client.on("error", onError);
	return {
		client,
		failure: () => failure,
		release: (usable) => {
			client.off("error", onError);
			release(usable && failure === undefined);
		},
	};
}

function makePool(options: pg.ClientConfig, connections: number): pg.Pool {
	const pool = new pg.Pool({
		...options,
		max: connections,
		idleTimeoutMillis: IDLE_TIMEOUT,
		// The address may lead to another server than before.
		onConnect: (client) => requireWrites(client, options.connectionTimeoutMillis),
	});
	// The pool has removed the broken connection already.
	pool.on("error", () => undefined);
	return pool;
}

/** Limits how many connections are in use at the same time. Waiting callers get a slot in the order of arrival. */
class Slots {
	#free: number;
	readonly #waiting = new Set<() => void>();

	/** @param count at least 1 */
	constructor(count: number) {
		this.#free = count;
	}

	/**
	 * Takes a slot, which {@link release} returns.
	 *
	 * @param timeout maximum time to wait, in milliseconds
	 * @throws {ServiceError} `unavailable` when no slot became free in that time
	 */
	async take(timeout: number): Promise<void> {
		if (this.#free > 0) {
			this.#free--;
			return;
		}
		const { promise, resolve, reject } = Promise.withResolvers<void>();
		this.#waiting.add(resolve);
		const timer = setTimeout(() => {
			this.#waiting.delete(resolve);
			reject(new ServiceError("unavailable", "all connections to the database are in use"));
		}, timeout);
		await promise.finally(() => clearTimeout(timer));
	}

	release(): void {
		const [next] = this.#waiting;
		if (next === undefined) {
			this.#free++;
			return;
		}
		this.#waiting.delete(next);
		next();
	}
}
