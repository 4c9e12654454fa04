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
/** Message of the pool's error when no connection became free in time. */
const NONE_FREE = "timeout exceeded when trying to connect";
/** SQLSTATE when a connection limit is reached: that of the server, the database, or the role. */
const TOO_MANY_CONNECTIONS = "53300";

/** The pools of connections to the primary. */
interface Server {
	readonly pool: pg.Pool;
	/** Without a limit: for connections that are held for long. They are closed when they are released. */
	readonly outside: pg.Pool;
}

/** A borrowed connection. */
export interface Lease {
	readonly client: pg.ClientBase;
	/** @param usable false when the connection failed: if it was from the pool, the next call looks for the primary again */
	release(usable: boolean): void;
}

/** Connections to the primary (the server that accepts writes) of the hosts of a database. */
export type Primary = Awaited<ReturnType<typeof findPrimary>>;

/**
 * Finds the primary. When it is lost, the next call tries all hosts again.
 *
 * @param prepare statements that each connection of the pool begins with; empty for none
 * @throws {ServiceError} `unavailable` when all hosts have failed; its cause names the failure of each host
 */
export async function findPrimary(settings: PostgresSettings, log: ThreadLogger, prepare: string) {
	let finding: Promise<Server> | undefined = firstOf(settings, prepare);
	/** Whether the last search failed. */
	let isAway = false;
	let isClosed = false;
	await finding;

	async function findAgain(): Promise<Server> {
		try {
			const server = await firstOf(settings, prepare);
			isAway = false;
			return server;
		} catch (error) {
			if (!isAway) log.error({ err: error }, "no primary of the database can be reached");
			isAway = true;
			finding = undefined;
			throw error;
		}
	}

	/** Idle connections are closed at once, the others when they are released. */
	async function lose(found: Promise<Server> | undefined, server: Server): Promise<void> {
		if (finding !== found) return;
		finding = undefined;
		await endPools(server);
	}

	return {
		/**
		 * Returns a connection without an open transaction. Waits for a free connection of the pool for at most the connect timeout.
		 *
		 * @param isOutside whether it is a connection outside of the pool, whose queries have no timeout
		 * @throws {ServiceError} `unavailable`
		 */
		async lease(isOutside = false): Promise<Lease> {
			if (isClosed) throw new ServiceError("unavailable", "the store is closed");
			const until = performance.now() + settings.connectTimeout;
			finding ??= findAgain();
			const found = finding;
			const server = await found;
			const pool = isOutside ? server.outside : server.pool;
			for (;;)
				try {
					const client = await pool.connect();
					const release = (usable: boolean) => {
						client.release(isOutside || !usable);
						if (!isOutside && !usable) void lose(found, server);
					};
					return { client, release };
				} catch (error) {
					if (error instanceof Error && error.message === NONE_FREE)
						throw new ServiceError("unavailable", "all connections to the database are in use");
					const failure = databaseError(error);
					// The existing connections still work; one of them may be free soon.
					const isFull = failure instanceof DatabaseError && failure.sqlState === TOO_MANY_CONNECTIONS;
					const serves = isFull && server.pool.totalCount > 0;
					if (!serves) void lose(found, server);
					if (!serves || performance.now() > until) throw failure;
					await delay(FULL_RETRY_DELAY);
				}
		},
		/** The caller must have released all connections. */
		async [Symbol.asyncDispose](): Promise<void> {
			isClosed = true;
			const found = finding;
			const server = await found?.catch(() => undefined);
			if (server !== undefined) await lose(found, server);
		},
	};
}

/**
 * Tries all hosts of a database in parallel. Returns the first that accepts writes: one that does not respond delays nothing.
 *
 * @throws {ServiceError} `unavailable` when all have failed; its cause names the failure of each host
 */
async function firstOf(settings: PostgresSettings, prepare: string): Promise<Server> {
	const reasons: string[] = [];
	const attempts = settings.hosts.map(async (host, n) => {
		try {
			return await serverAt(settings, host, prepare);
		} catch (error) {
			const { cause } = databaseError(error);
			reasons[n] = `${host.host}:${host.port}: ${cause instanceof Error ? cause.message : "failed"}`;
			throw error;
		}
	});
	const first = await Promise.any(attempts).catch(() => {
		const cause = new Error(reasons.join("; "));
		throw new ServiceError("unavailable", "no server of the database accepts writes", { cause });
	});
	for (const attempt of attempts)
		attempt.then(
			(other) => (other === first ? undefined : endPools(other)),
			() => undefined,
		);
	return first;
}

/**
 * Connects to a server.
 *
 * @throws Error of the driver or of {@link requireWrites}
 */
async function serverAt(settings: PostgresSettings, host: PostgresHost, prepare: string): Promise<Server> {
	const serverWith = async (options: pg.PoolConfig) => {
		const server = {
			pool: makePool({ ...options, max: settings.connections }, prepare),
			outside: makePool({ ...options, max: Number.POSITIVE_INFINITY, query_timeout: NO_TIMEOUT }, ""),
		};
		try {
			(await server.pool.connect()).release();
			return server;
		} catch (error) {
			void endPools(server);
			throw error;
		}
	};
	const options = await clientOptions(settings, host);
	try {
		return await serverWith(options);
	} catch (error) {
		if (settings.tls.mode !== "prefer" || !(error instanceof Error) || error.message !== NO_TLS) throw error;
		return await serverWith({ ...options, ssl: false });
	}
}

async function endPools({ pool, outside }: Server): Promise<void> {
	await Promise.all([pool.end(), outside.end()]);
}

/** Message of the driver's error when the server does not support TLS. */
const NO_TLS = "The server does not support SSL connections";

const broken = new WeakMap<pg.ClientBase, Error>();

/** Returns why a connection broke, if it is known to be broken. */
export function whyBroken(client: pg.ClientBase): Error | undefined {
	return broken.get(client);
}

function makePool(options: pg.PoolConfig, prepare: string): pg.Pool {
	const pool = new pg.Pool({
		...options,
		idleTimeoutMillis: IDLE_TIMEOUT,
		// The address may lead to another server than before.
		async onConnect(client) {
			// Without a listener, an `error` event would be an uncaught exception. The query in progress fails with the same error.
			client.on("error", (error) => broken.set(client, error));
			await requireWrites(client, options.connectionTimeoutMillis);
			if (prepare !== "") await client.query(prepare);
		},
	});
	// The pool has removed the broken connection already.
	pool.on("error", () => undefined);
	return pool;
}

/** Timeout in milliseconds of queries without a limit: 12 days. */
const NO_TIMEOUT = 2 ** 30;
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
 * Checks that a server accepts writes and keeps the commits that it acknowledges.
 *
 * @param timeout in milliseconds
 * @throws Error when the server is a standby or read-only, has `synchronous_commit` off, or does not respond
 */
export async function requireWrites(client: pg.ClientBase, timeout: number | undefined): Promise<void> {
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
	const isFile = rootCert !== undefined && rootCert !== "system";
	return {
		// The certificate is verified for this name. The driver itself passes host names only, no IP addresses.
		host,
		rejectUnauthorized: verifies,
		...(mode !== "verify-full" && { checkServerIdentity: () => undefined }),
		...(verifies && { ca: isFile ? await readFile(rootCert) : [...rootCertificates] }),
		...(tls.cert !== undefined && { cert: await readFile(tls.cert) }),
		...(tls.key !== undefined && { key: await readFile(tls.key) }),
	};
}
