import { readFile } from "node:fs/promises";
import { rootCertificates } from "node:tls";
import pg from "pg";
import type { PostgresHost, PostgresSettings, PostgresTls } from "../database.ts";

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
