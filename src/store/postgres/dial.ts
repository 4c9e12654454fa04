import type { KeyObject } from "node:crypto";
import { readFile } from "node:fs/promises";
import { rootCertificates } from "node:tls";
import pg from "pg";
import type { PostgresHost, PostgresTls, PostgresUrl } from "./database-url.ts";

/** How the service uses a PostgreSQL database: what its URL says, and the variables beside it. */
export interface PostgresSettings extends Omit<PostgresUrl, "password"> {
	/** Undefined for a server that asks for none. */
	readonly password: KeyObject | undefined;
	/** Most connections in the pool; one or two more listen and search. */
	readonly connections: number;
	/** Longest time of a statement in milliseconds. */
	readonly statementTimeout: number;
	/** Longest time in milliseconds for which a statement waits for a lock. */
	readonly lockTimeout: number;
	/** Whether notifications are sent and listened for. */
	readonly notify: boolean;
}

/** How long after the end of a statement's time the server may be silent, in milliseconds. */
const SILENCE = 5_000;
/** Time without traffic after which the system asks whether the other side is there, in milliseconds. */
const KEEP_ALIVE = 10_000;

/** PostgreSQL's int8 has 64 bits. The other types come as the driver gives them: int4 as number, bytea as Buffer. */
const types = new pg.TypeOverrides();
types.setTypeParser(pg.types.builtins.INT8, BigInt);

/** What the driver is told to connect to a server. The files of TLS are read each time, so that renewed ones count. */
async function clientOptions(settings: PostgresSettings, host: PostgresHost): Promise<pg.ClientConfig> {
	const { user, password, database, connectTimeout, applicationName, statementTimeout } = settings;
	return {
		...host,
		user,
		// A function, so that no object that may be shown holds the password.
		password: () => password?.export().toString() ?? "",
		database,
		application_name: applicationName,
		ssl: await tlsOptions(settings.tls, host.host),
		connectionTimeoutMillis: connectTimeout,
		query_timeout: statementTimeout + SILENCE,
		keepAlive: true,
		keepAliveInitialDelayMillis: KEEP_ALIVE,
		pipeline: true,
		types,
	};
}

/**
 * Connects to a server and makes sure that it takes writes.
 *
 * @returns the connection, and the options with which it came about
 * @throws Error of the driver, or when the server is a standby or read-only
 */
export async function dial(settings: PostgresSettings, host: PostgresHost) {
	const options = await clientOptions(settings, host);
	try {
		return { client: await connect(options), options };
	} catch (error) {
		if (settings.tls.mode !== "prefer" || !(error instanceof Error) || error.message !== NO_TLS) throw error;
		const clear = { ...options, ssl: false };
		return { client: await connect(clear), options: clear };
	}
}

/** What the driver says when the server has no TLS. */
const NO_TLS = "The server does not support SSL connections";

async function connect(options: pg.ClientConfig): Promise<pg.Client> {
	const client = new pg.Client(options);
	// The query that is under way gets the error, and the owner may listen too.
	client.on("error", () => undefined);
	try {
		await client.connect();
		await requireWrites(client, options.connectionTimeoutMillis);
		return client;
	} catch (error) {
		// Not awaited: a server that is silent would hold it up.
		client.end().catch(() => undefined);
		throw error;
	}
}

/**
 * @param limit milliseconds in which the server has to answer; those of any statement when left out
 * @throws Error when the server takes no writes, does not keep what it acknowledges, or does not answer
 */
export async function requireWrites(client: pg.ClientBase, limit?: number): Promise<void> {
	const settings =
		"current_setting('transaction_read_only') AS read_only, current_setting('synchronous_commit') AS sync";
	const query = { text: `SELECT ${settings}`, query_timeout: limit };
	const { rows } = await client.query<{ read_only: string; sync: string }>(query);
	if (rows[0]?.read_only !== "off") throw new Error("the server is a standby or read-only");
	if (rows[0].sync === "off") throw new Error("synchronous_commit is off, so commits could be lost");
}

/** `require` with authorities verifies them, as libpq does it. */
async function tlsOptions(tls: PostgresTls, host: string): Promise<Exclude<pg.ClientConfig["ssl"], undefined>> {
	const { mode, rootCert } = tls;
	if (mode === "disable" || host.startsWith("/")) return false;
	const verifies = mode === "verify-ca" || mode === "verify-full" || (mode === "require" && rootCert !== undefined);
	return {
		// The name that the certificate is compared with; the driver tells it for names only, not for addresses.
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
