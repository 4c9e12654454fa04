import type { KeyObject } from "node:crypto";
import { isIPv6 } from "node:net";

/** One of the servers in a database URL. */
export interface PostgresHost {
	/** Host name, IP address without brackets, or absolute path of the directory with the server's Unix socket. */
	readonly host: string;
	/** 1 to 65535. */
	readonly port: number;
}

/** Values of `sslmode`, as libpq defines them. */
const sslModes = ["disable", "prefer", "require", "verify-ca", "verify-full"] as const;
type SslMode = (typeof sslModes)[number];

/** How connections are encrypted, and how the server is authenticated. */
export interface PostgresTls {
	readonly mode: SslMode;
	/** PEM file of the authorities that may sign the server's certificate; `system` for those that Node.js trusts. */
	readonly rootCert: string | undefined;
	/** PEM files of the client certificate and its private key; both or neither. */
	readonly cert: string | undefined;
	readonly key: string | undefined;
}

/** The parts of a database URL. */
export interface PostgresUrl {
	/** At least one. The service uses the one that accepts writes. */
	readonly hosts: readonly PostgresHost[];
	readonly user: string;
	/** Undefined when the URL has none. */
	readonly password: string | undefined;
	readonly database: string;
	readonly tls: PostgresTls;
	/** Timeout of a connection attempt to one server, in milliseconds. */
	readonly connectTimeout: number;
	/** `application_name` of the connections, which `pg_stat_activity` shows. */
	readonly applicationName: string;
}

/** Settings of a PostgreSQL database, from its URL and from further environment variables. */
export interface PostgresSettings extends Omit<PostgresUrl, "password"> {
	/** Undefined when none is configured. */
	readonly password: KeyObject | undefined;
	/** Maximum number of connections in the pool. One more listens for notifications. */
	readonly connections: number;
	/** `statement_timeout` in milliseconds. */
	readonly statementTimeout: number;
	/** `lock_timeout` in milliseconds. */
	readonly lockTimeout: number;
	/** Whether notifications are sent and listened for. */
	readonly notify: boolean;
}

/** The location of a store's data. */
export type Database =
	| { readonly engine: "sqlite"; readonly path: string }
	| ({ readonly engine: "postgres" } & PostgresSettings);

const DEFAULT_PORT = "5432";
const DEFAULT_CONNECT_TIMEOUT_SECONDS = "5";
const MAX_CONNECT_TIMEOUT_SECONDS = 60;
const DEFAULT_APPLICATION_NAME = "conversation-update-webhook-service";

/** Supported parameters of the URL, a subset of those of libpq. */
const parameters = [
	"application_name",
	"connect_timeout",
	"sslcert",
	"sslkey",
	"sslmode",
	"sslrootcert",
	"target_session_attrs",
] as const;
type Parameter = (typeof parameters)[number];

/** Returns whether a text has the scheme of a PostgreSQL URL. */
export function isPostgresUrl(text: string): boolean {
	return /^postgres(?:ql)?:/.test(text);
}

/** Returns a valid URL with its password replaced by `mask`. */
export function maskPostgresUrl(url: string, mask: string): string {
	return url.replace(/^(postgres(?:ql)?:\/\/[^:@/?]*:)[^@/?]*@/, (_, before: string) => `${before}${mask}@`);
}

/**
 * Parses a URL as libpq does: `postgres://user:password@host:port,host:port/database?parameter=value&…`, with percent
 * encoding. User, host and database are required.
 *
 * @param report called with each mistake; its text contains no part of the password
 * @returns undefined when there was a mistake
 * @see https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-CONNSTRING-URIS
 */
export function parsePostgresUrl(text: string, report: (mistake: string) => void): PostgresUrl | undefined {
	let mistaken = false;
	const mistake = (message: string) => {
		mistaken = true;
		report(message);
	};
	const decode = (part: string, what: string) => {
		try {
			return decodeURIComponent(part);
		} catch {
			mistake(`has a percent sign in its ${what} that is not followed by the code of a character`);
			return "";
		}
	};
	const [whole, userInfo, servers = "", path = "", query = ""] =
		/^postgres(?:ql)?:\/\/(?:([^@/?#]*)@)?([^@/?#]*)(?:\/([^/?#]*))?(?:\?([^#]*))?$/.exec(text) ?? [];
	if (whole === undefined) {
		mistake("must be postgres://user:password@host:port/database; other @ / ? # in a part are percent-encoded");
		return undefined;
	}
	const [name = "", ...rest] = (userInfo ?? "").split(":");
	const user = decode(name, "user");
	if (user === "") mistake("must name a user, as in postgres://user@host/database");
	const password = rest.length === 0 ? undefined : decode(rest.join(":"), "password");
	const database = decode(path, "database");
	if (database === "") mistake("must name a database, as in postgres://user@host/database");
	const hosts = servers.split(",").map((server) => parseHost(server, decode, mistake));
	const given = parseParameters(query, decode, mistake);

	const attributes = given.get("target_session_attrs") ?? "read-write";
	if (attributes !== "read-write" && attributes !== "primary")
		mistake("has a target_session_attrs that is not read-write or primary; the service writes");
	const modeText = given.get("sslmode") ?? "prefer";
	const mode = sslModes.find((known) => known === modeText);
	if (mode === undefined) mistake(`has an sslmode that is not one of ${sslModes.join(", ")}`);
	const [rootCert, cert, key] = [given.get("sslrootcert"), given.get("sslcert"), given.get("sslkey")];
	if ((mode === "verify-ca" || mode === "verify-full") && rootCert === undefined)
		mistake(`has sslmode=${mode} without sslrootcert, which is a PEM file, or system for what Node.js trusts`);
	if ((cert === undefined) !== (key === undefined)) mistake("must have both of sslcert and sslkey, or neither");
	const timeout = given.get("connect_timeout") ?? DEFAULT_CONNECT_TIMEOUT_SECONDS;
	const seconds = Number(timeout);
	if (!/^[0-9]+$/.test(timeout) || seconds < 1 || seconds > MAX_CONNECT_TIMEOUT_SECONDS)
		mistake(`has a connect_timeout that is not a whole number of seconds from 1 to ${MAX_CONNECT_TIMEOUT_SECONDS}`);

	if (mistaken || mode === undefined) return undefined;
	return {
		hosts,
		user,
		password: password === "" ? undefined : password,
		database,
		tls: { mode, rootCert, cert, key },
		connectTimeout: seconds * 1000,
		applicationName: given.get("application_name") ?? DEFAULT_APPLICATION_NAME,
	};
}

type Decode = (part: string, what: string) => string;
type Mistake = (message: string) => void;

function parseHost(text: string, decode: Decode, mistake: Mistake): PostgresHost {
	const [whole, bracketed, plain = "", digits] = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::([0-9]*))?$/.exec(text) ?? [];
	const host = bracketed ?? decode(plain, "host");
	const port = Number(digits || DEFAULT_PORT);
	if (whole === undefined || host === "" || (bracketed !== undefined && !isIPv6(bracketed)))
		mistake("must have hosts of the form host, host:port or [IPv6]:port, separated by commas");
	else if (port < 1 || port > 65535) mistake("has a port that is not from 1 to 65535");
	return { host, port };
}

function parseParameters(query: string, decode: Decode, mistake: Mistake): ReadonlyMap<Parameter, string> {
	const given = new Map<Parameter, string>();
	for (const part of query === "" ? [] : query.split("&")) {
		const [, name = "", value] = /^([^=]*)(?:=(.*))?$/.exec(part) ?? [];
		const known = parameters.find((parameter) => parameter === name);
		// A password that was not percent-encoded may end up here. So the message shows only a text that looks like a parameter
		// name.
		const shown = value !== undefined && /^[A-Za-z_]{1,40}$/.test(name) ? ` "${name}"` : "";
		if (known === undefined) mistake(`has a parameter${shown} that is not one of ${parameters.join(", ")}`);
		else if (!value) mistake(`has no value for ${known}`);
		else if (given.has(known)) mistake(`has ${known} twice`);
		else given.set(known, decode(value, known));
	}
	return given;
}
