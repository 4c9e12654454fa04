import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { rootCertificates } from "node:tls";
import pg from "pg";
import { ServiceError } from "../../errors.ts";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresHost, PostgresSettings, PostgresTls } from "../database.ts";
import { DatabaseError, databaseError } from "./failures.ts";

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

/** Milliseconds after the statement timeout until a server that has not responded counts as unreachable. */
const RESPONSE_MARGIN = 5_000;
/** Milliseconds without traffic after which the operating system sends TCP keepalive probes. */
const KEEP_ALIVE_DELAY = 10_000;

/** Parses int8 as bigint. Other types keep the driver's parsers: int4 as number, bytea as Buffer. */
const types = new pg.TypeOverrides();
types.setTypeParser(pg.types.builtins.INT8, BigInt);

/** Returns the driver's options for a connection. Reads the TLS files each time, so that renewed certificates are used. */
async function clientOptions(settings: PostgresSettings, host: PostgresHost): Promise<pg.ClientConfig> {
	const { user, password, database, connectTimeout, applicationName, statementTimeout } = settings;
	return {
		...host,
		user,
		// A function, so that no object that may be logged contains the password.
		password: () => password?.export().toString() ?? "",
		database,
		application_name: applicationName,
		ssl: await tlsOptions(settings.tls, host.host),
		connectionTimeoutMillis: connectTimeout,
		query_timeout: statementTimeout + RESPONSE_MARGIN,
		keepAlive: true,
		keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY,
		pipeline: true,
		types,
	};
}

/**
 * Connects to a server and checks that it accepts writes.
 *
 * @returns the connection, and the options of the attempt that succeeded
 * @throws Error of the driver or of {@link requireWrites}
 */
async function dial(settings: PostgresSettings, host: PostgresHost) {
	const options = await clientOptions(settings, host);
	try {
		return { client: await connect(options), options };
	} catch (error) {
		if (settings.tls.mode !== "prefer" || !(error instanceof Error) || error.message !== NO_TLS) throw error;
		const clear = { ...options, ssl: false };
		return { client: await connect(clear), options: clear };
	}
}

/** Message of the driver's error when the server does not support TLS. */
const NO_TLS = "The server does not support SSL connections";

async function connect(options: pg.ClientConfig): Promise<pg.Client> {
	const client = new pg.Client(options);
	// Without a listener, an `error` event would be an uncaught exception. The query in progress fails with the same error,
	// and the owner of the connection may add a listener of its own.
	client.on("error", () => undefined);
	try {
		await client.connect();
		await requireWrites(client, options.connectionTimeoutMillis);
		return client;
	} catch (error) {
		// Not awaited, because a server that does not respond would delay the error.
		client.end().catch(() => undefined);
		throw error;
	}
}

/**
 * Checks that a server accepts writes and keeps the commits that it acknowledges.
 *
 * @param timeout in milliseconds; that of other statements when omitted
 * @throws Error when the server is a standby or read-only, has `synchronous_commit` off, or does not respond
 */
export async function requireWrites(client: pg.ClientBase, timeout?: number): Promise<void> {
	const settings =
		"current_setting('transaction_read_only') AS read_only, current_setting('synchronous_commit') AS sync";
	const query = { text: `SELECT ${settings}`, query_timeout: timeout };
	const { rows } = await client.query<{ read_only: string; sync: string }>(query);
	if (rows[0]?.read_only !== "off") throw new Error("the server is a standby or read-only");
	if (rows[0].sync === "off") throw new Error("synchronous_commit is off, so commits could be lost");
}

/** Returns the driver's TLS options. As in libpq, `require` with `sslrootcert` verifies the certificate authority. */
async function tlsOptions(tls: PostgresTls, host: string): Promise<Exclude<pg.ClientConfig["ssl"], undefined>> {
	const { mode, rootCert } = tls;
	if (mode === "disable" || host.startsWith("/")) return false;
	const verifies = mode === "verify-ca" || mode === "verify-full" || (mode === "require" && rootCert !== undefined);
	return {
		// The certificate is verified for this name. The driver itself passes host names only, no IP addresses.
		host,
		rejectUnauthorized: verifies,
		...(mode !== "verify-full" && { checkServerIdentity: () => undefined }),
		...(verifies && { ca: await authorities(rootCert) }),
		...(tls.cert !== undefined && { cert: await readFile(tls.cert) }),
		...(tls.key !== undefined && { key: await readFile(tls.key) }),
	};
}

async function authorities(rootCert: string | undefined): Promise<Buffer | string[]> {
	return rootCert === undefined || rootCert === "system" ? [...rootCertificates] : await readFile(rootCert);
}

/** Milliseconds between two attempts to connect to one host. */
const RETRY_DELAY = 250;

/** The primary that a search has found. */
export interface Found {
	readonly host: PostgresHost;
	/** Options with which the connection to it succeeded. */
	readonly options: pg.ClientConfig;
}

/**
 * Tries all hosts of a database in parallel, each repeatedly, until one accepts writes. A host that does not respond does
 * not delay the attempts at the others.
 *
 * @param signal ends the search
 * @param onFailed called with an `unavailable` error, whose cause names the failure of each host: when all hosts have
 *   failed, and from then on after each further failure
 * @returns undefined when the search was ended
 */
export async function search(
	settings: PostgresSettings,
	signal: AbortSignal,
	onFailed: (error: ServiceError) => void,
): Promise<Found | undefined> {
	const ended = new AbortController();
	const over = AbortSignal.any([signal, ended.signal]);
	const reasons = new Map<PostgresHost, string>();
	const attempts = settings.hosts.map((host) =>
		tryHost(settings, host, over, (reason) => {
			reasons.set(host, reason);
			if (reasons.size === settings.hosts.length) onFailed(allFailedError(reasons));
		}),
	);
	const stopped = Promise.withResolvers<undefined>();
	over.addEventListener("abort", () => stopped.resolve(undefined));
	if (over.aborted) stopped.resolve(undefined);
	try {
		return await Promise.race([...attempts, stopped.promise]);
	} finally {
		ended.abort();
	}
}

/** Tries one host until it accepts writes. Never rejects; stays pending when the search ends before. */
async function tryHost(
	settings: PostgresSettings,
	host: PostgresHost,
	over: AbortSignal,
	onFailed: (reason: string) => void,
): Promise<Found> {
	while (!over.aborted) {
		try {
			const { client, options } = await dial(settings, host);
			client.end().catch(() => undefined);
			return { host, options };
		} catch (error) {
			const { cause } = databaseError(error);
			if (!over.aborted) onFailed(cause instanceof Error ? cause.message : "failed");
		}
		await delay(RETRY_DELAY, undefined, { signal: over }).catch(() => undefined);
	}
	return new Promise(() => undefined);
}

function allFailedError(reasons: ReadonlyMap<PostgresHost, string>): ServiceError {
	const text = [...reasons].map(([{ host, port }, reason]) => `${host}:${port}: ${reason}`).join("; ");
	return new ServiceError("unavailable", "no server of the database accepts writes", { cause: new Error(text) });
}
