import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { ServiceError } from "../../errors.ts";
import type { ThreadLog } from "../../threads/worker-thread.ts";
import { dial, type PostgresSettings, requireWrites } from "./dial.ts";
import { DatabaseError, databaseError } from "./failures.ts";
import { type Found, search } from "./search.ts";
import { Slots } from "./slots.ts";

/** Time after which an unused connection is closed, in milliseconds. */
const IDLE_TIME = 60_000;
/** Time between two attempts at a server that has no connection left, in milliseconds. */
const FULL_PAUSE = 100;

/** The server that takes writes, and the pool of connections to it. */
interface Server {
	readonly found: Found;
	readonly pool: pg.Pool;
}

/** What is known of the server that takes writes. */
type State =
	| { readonly name: "found"; readonly server: Server }
	/** Callers wait until a server is found or all hosts have failed. */
	| { readonly name: "searching"; readonly first: Promise<Server> }
	/** All hosts have failed. Callers are told at once, while the search goes on. */
	| { readonly name: "away"; readonly error: ServiceError };

/** A connection, for a while. */
export interface Lease {
	readonly client: pg.ClientBase;
	/** Why the connection broke; undefined as long as it is not known to have. */
	failure(): Error | undefined;
	/** @param usable false when the connection failed: it is closed, and the server is looked for again */
	release(usable: boolean): void;
}

/**
 * Finds the server that takes writes among the hosts of a database, keeps a pool of connections to it, and finds it again
 * when it was lost, after a failover too.
 */
export class Primary implements AsyncDisposable {
	readonly #settings: PostgresSettings;
	readonly #log: ThreadLog;
	readonly #slots: Slots;
	readonly #closing = new AbortController();
	#state: State;
	#searching: Promise<void> = Promise.resolve();

	private constructor(settings: PostgresSettings, log: ThreadLog) {
		this.#settings = settings;
		this.#log = log;
		this.#slots = new Slots(settings.connections);
		this.#state = this.#search(() => undefined);
	}

	/** @throws {ServiceError} `unavailable` when all hosts have failed */
	static async find(settings: PostgresSettings, log: ThreadLog): Promise<Primary> {
		const primary = new Primary(settings, log);
		try {
			await primary.#current();
			return primary;
		} catch (error) {
			await primary[Symbol.asyncDispose]();
			throw error;
		}
	}

	/**
	 * A connection that has no transaction open. Waits for a free one for at most the connect timeout, and for a new one for
	 * at most twice as long, with the search for a server that was lost.
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
					this.#slots.give();
					if (!usable) this.#lose(server);
				}),
			(error: unknown) => {
				this.#slots.give();
				throw error;
			},
		);
		const late = Promise.withResolvers<never>();
		const timer = setTimeout(() => {
			late.reject(new ServiceError("unavailable", "the database has not given a connection in time"));
			// It keeps its slot until it is there.
			connecting.then(({ release }) => release(true)).catch(() => undefined);
		}, 2 * connectTimeout);
		return await Promise.race([connecting, late.promise]).finally(() => clearTimeout(timer));
	}

	/**
	 * A connection beside the pool, which the caller ends.
	 *
	 * @param statementTimeout time in milliseconds, at most 2^30, after which a query fails, if the server does not end it
	 * @throws {ServiceError} `unavailable`
	 */
	async dial(statementTimeout: number): Promise<pg.Client> {
		const server = await this.#current();
		try {
			return (await dial({ ...this.#settings, statementTimeout }, server.found.host)).client;
		} catch (error) {
			const failure = databaseError(error);
			// A server that has no connection left for this one still serves the pool.
			if (!(failure instanceof DatabaseError) || failure.connectionLost) this.#lose(server);
			throw failure;
		}
	}

	async #connect(): Promise<{ client: pg.PoolClient; server: Server }> {
		const until = performance.now() + this.#settings.connectTimeout;
		for (let isLast = false; ; ) {
			const server = await this.#current();
			try {
				return { client: await server.pool.connect(), server };
			} catch (error) {
				const failure = databaseError(error);
				if (isFull(failure) && server.pool.totalCount > 0) {
					// The connections that are there still serve; one of them may be free soon.
					if (performance.now() > until) throw failure;
					await delay(FULL_PAUSE);
					continue;
				}
				this.#lose(server);
				if (isLast) throw failure;
				isLast = true;
			}
		}
	}

	async #current(): Promise<Server> {
		if (this.#closing.signal.aborted) throw new ServiceError("unavailable", "the store is closed");
		const state = this.#state;
		if (state.name === "away") throw state.error;
		return state.name === "found" ? state.server : state.first;
	}

	/** Connections that are free end at once, the others when they are released. */
	#lose(server: Server): void {
		if (this.#state.name !== "found" || this.#state.server !== server) return;
		server.pool.end().catch(() => undefined);
		this.#state = this.#search((error) => this.#log.error({ err: error }, "the database is away"));
	}

	/** @param onAway called once, if all hosts fail */
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

	/** The caller has released all connections. */
	async [Symbol.asyncDispose](): Promise<void> {
		this.#closing.abort();
		await this.#searching;
		if (this.#state.name === "found") await this.#state.server.pool.end();
	}
}

/** Whether a server has as many connections as it may have: of all, of the database, or of the role. */
function isFull(failure: ServiceError): boolean {
	return failure instanceof DatabaseError && failure.sqlState === "53300";
}

/** @param release gives the connection back to its owner */
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
		idleTimeoutMillis: IDLE_TIME,
		// An address may lead to another server than before.
		onConnect: (client) => requireWrites(client, options.connectionTimeoutMillis),
	});
	// The pool has dropped the connection.
	pool.on("error", () => undefined);
	return pool;
}
