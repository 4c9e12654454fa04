import { constants } from "node:buffer";
import { createSecretKey, type KeyObject } from "node:crypto";
import { isIPv4, isIPv6 } from "node:net";
import { z } from "zod";
import { defaultScopes, hashKey, type KeyEntry, type Principal, type Scope, scopes } from "./access/keys.ts";
import { type LogLevel, logLevels } from "./telemetry/log.ts";

/** Where a listener listens. */
export interface Address {
	/** Host name, IPv4 address, or IPv6 address without brackets. */
	readonly host: string;
	/** 0 to 65535; 0 lets the system choose a free port. */
	readonly port: number;
}

/** The service's configuration, complete and valid. It holds no access key, only hashes. */
export interface Config {
	readonly httpAddress: Address;
	readonly grpcAddress: Address;
	readonly database: { readonly engine: "sqlite"; readonly path: string };
	/** Empty when none is configured: the service then makes its own key. */
	readonly accessKeys: readonly KeyEntry[];
	/** Most bytes that a request's body or message may have, on every transport. */
	readonly maxBodyBytes: number;
	/** Prefix of the webhook's path: empty, or with a leading and no trailing slash. */
	readonly basePath: string;
	readonly logLevel: LogLevel;
	/** 32-byte keys for secrets at rest: the first encrypts, all decrypt. Empty when secrets are stored redacted. */
	readonly encryptionKeys: readonly KeyObject[];
	/** Days that history is kept; undefined keeps all. */
	readonly retentionDays: number | undefined;
	/** Updates that are kept of each conversation; undefined keeps all. */
	readonly retentionUpdatesPerConversation: number | undefined;
	/** Seconds from the signal to stop until the process has ended. */
	readonly drainSeconds: number;
	/** Files for TLS on both listeners; undefined for clear text. */
	readonly tls: TlsFiles | undefined;
	/** Scopes by the names of client certificates. */
	readonly clientCertificates: readonly Principal[];
	/** Origins whose pages may call the HTTP listener; `*` stands for every one. Empty for none. */
	readonly corsOrigins: readonly string[];
	/** Requests a second that one key or certificate may make; undefined for any number. */
	readonly rateLimitPerKey: number | undefined;
}

/** Paths of PEM files. */
export interface TlsFiles {
	readonly cert: string;
	readonly key: string;
	/** Authorities of client certificates. With it, a client without a certificate of theirs cannot connect. */
	readonly clientCa: string | undefined;
}

/** What is wrong with the environment: every mistake, on a line each, without the values of secrets. */
export class ConfigError extends Error {
	override readonly name = "ConfigError";
	readonly mistakes: readonly string[];

	constructor(mistakes: readonly string[]) {
		super(["The configuration is not valid:", ...mistakes].join("\n  "));
		this.mistakes = mistakes;
	}
}

/** Reports one thing that is wrong with a variable. */
type Report = (mistake: string) => void;

/** A variable: unset, empty and blank all mean its default. `parse` gives the value, or reports what is wrong. */
function variable<T>(fallback: T, parse: (text: string, report: Report) => T | undefined) {
	return z
		.string()
		.optional()
		.transform((raw, context): T => {
			const text = raw?.trim() ?? "";
			if (text === "") return fallback;
			const value = parse(text, (message) => context.addIssue({ code: "custom", message }));
			return value === undefined ? z.NEVER : value;
		});
}

const environment = z.object({
	HTTP_ADDRESS: variable<Address>({ host: "127.0.0.1", port: 8080 }, parseAddress),
	GRPC_ADDRESS: variable<Address>({ host: "127.0.0.1", port: 50051 }, parseAddress),
	DATABASE_URL: variable("data/conversations.db", parseSqliteUrl),
	ACCESS_KEYS: variable<readonly KeyEntry[]>([], parseAccessKeys),
	// The body becomes one string, and strings have a greatest length.
	MAX_BODY_BYTES: variable(16 * 1024 * 1024, parseInteger(constants.MAX_STRING_LENGTH)),
	BASE_PATH: variable("", parseBasePath),
	LOG_LEVEL: variable<LogLevel>("info", parseLogLevel),
	ENCRYPTION_KEY: variable<readonly KeyObject[]>([], parseEncryptionKeys),
	RETENTION_DAYS: variable<number | undefined>(undefined, parseDays),
	RETENTION_UPDATES_PER_CONVERSATION: variable<number | undefined>(undefined, parseInteger(Number.MAX_SAFE_INTEGER)),
	DRAIN_SECONDS: variable(25, parseInteger(3600)),
	TLS_CERT_FILE: variable("", (text) => text),
	TLS_KEY_FILE: variable("", (text) => text),
	TLS_CLIENT_CA_FILE: variable("", (text) => text),
	CLIENT_CERTIFICATES: variable<readonly Principal[]>([], parseCertificates),
	CORS_ORIGINS: variable<readonly string[]>([], parseOrigins),
	RATE_LIMIT_PER_KEY: variable<number | undefined>(undefined, parseInteger(1_000_000)),
});

/** Variables that mean nothing without others. */
const needed = {
	TLS_CERT_FILE: ["TLS_KEY_FILE"],
	TLS_KEY_FILE: ["TLS_CERT_FILE"],
	TLS_CLIENT_CA_FILE: ["TLS_CERT_FILE"],
	CLIENT_CERTIFICATES: ["TLS_CLIENT_CA_FILE"],
} as const;

/** For each variable a value as it may be written, for the messages about mistakes. */
const examples: Readonly<Record<string, string>> = {
	HTTP_ADDRESS: "127.0.0.1:8080 or [::1]:8080",
	GRPC_ADDRESS: "127.0.0.1:50051 or [::1]:50051",
	DATABASE_URL: "sqlite:data/conversations.db",
	ACCESS_KEYS: "<name>:<key>,<name>:<key>:read+secrets",
	MAX_BODY_BYTES: "16777216",
	BASE_PATH: "/bridge",
	LOG_LEVEL: "info",
	ENCRYPTION_KEY: "$(openssl rand -base64 32)",
	RETENTION_DAYS: "30",
	RETENTION_UPDATES_PER_CONVERSATION: "1000",
	DRAIN_SECONDS: "25",
	TLS_CERT_FILE: "/etc/service/tls.crt",
	TLS_KEY_FILE: "/etc/service/tls.key",
	TLS_CLIENT_CA_FILE: "/etc/service/clients.crt",
	CLIENT_CERTIFICATES: "agent-server:ingest,dashboard:read+secrets",
	CORS_ORIGINS: "https://dashboard.example",
	RATE_LIMIT_PER_KEY: "100",
};

/**
 * Reads the configuration from environment variables; nothing else in the program reads them. Variables that are not
 * the service's are ignored.
 *
 * @throws {ConfigError} listing every mistake
 */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
	const parsed = environment.safeParse(env);
	if (!parsed.success) {
		const mistakes = parsed.error.issues.map(({ path, message }) => {
			const name = String(path[0]);
			return `${name}: ${message} (example: ${name}=${examples[name]})`;
		});
		throw new ConfigError(mistakes);
	}
	const values = parsed.data;
	const lacking = Object.entries(needed).flatMap(([name, others]) =>
		env[name]?.trim() ? others.filter((other) => !env[other]?.trim()).map((other) => `${name}: needs ${other}`) : [],
	);
	if (lacking.length > 0) throw new ConfigError(lacking);
	const [cert, key] = [values.TLS_CERT_FILE, values.TLS_KEY_FILE];
	return Object.freeze({
		httpAddress: Object.freeze(values.HTTP_ADDRESS),
		grpcAddress: Object.freeze(values.GRPC_ADDRESS),
		database: Object.freeze({ engine: "sqlite", path: values.DATABASE_URL }),
		accessKeys: Object.freeze(values.ACCESS_KEYS),
		maxBodyBytes: values.MAX_BODY_BYTES,
		basePath: values.BASE_PATH,
		logLevel: values.LOG_LEVEL,
		encryptionKeys: Object.freeze(values.ENCRYPTION_KEY),
		retentionDays: values.RETENTION_DAYS,
		retentionUpdatesPerConversation: values.RETENTION_UPDATES_PER_CONVERSATION,
		drainSeconds: values.DRAIN_SECONDS,
		tls: cert === "" ? undefined : { cert, key, clientCa: values.TLS_CLIENT_CA_FILE || undefined },
		clientCertificates: values.CLIENT_CERTIFICATES,
		corsOrigins: values.CORS_ORIGINS,
		rateLimitPerKey: values.RATE_LIMIT_PER_KEY,
	});
}

/** The configuration in effect, by variable, for a person to read: secrets are masked, what is unset is `none`. */
export function describeConfig(config: Config): Record<string, string> {
	const mask = "**********";
	const list = (entries: readonly string[]) => (entries.length === 0 ? "none" : entries.join(","));
	return {
		HTTP_ADDRESS: formatAddress(config.httpAddress),
		GRPC_ADDRESS: formatAddress(config.grpcAddress),
		DATABASE_URL: `${config.database.engine}:${config.database.path}`,
		ACCESS_KEYS: list(config.accessKeys.map(({ name, scopes }) => `${name}:${mask}:${[...scopes].join("+")}`)),
		MAX_BODY_BYTES: String(config.maxBodyBytes),
		BASE_PATH: config.basePath,
		LOG_LEVEL: config.logLevel,
		ENCRYPTION_KEY: list(config.encryptionKeys.map(() => mask)),
		RETENTION_DAYS: String(config.retentionDays ?? "none"),
		RETENTION_UPDATES_PER_CONVERSATION: String(config.retentionUpdatesPerConversation ?? "none"),
		DRAIN_SECONDS: String(config.drainSeconds),
		TLS_CERT_FILE: config.tls?.cert ?? "none",
		TLS_KEY_FILE: config.tls?.key ?? "none",
		TLS_CLIENT_CA_FILE: config.tls?.clientCa ?? "none",
		CLIENT_CERTIFICATES: list(config.clientCertificates.map(({ name, scopes }) => `${name}:${[...scopes].join("+")}`)),
		CORS_ORIGINS: list(config.corsOrigins),
		RATE_LIMIT_PER_KEY: String(config.rateLimitPerKey ?? "none"),
	};
}

/** An address as it is written in a URL: `host:port`, an IPv6 host in brackets. */
export function formatAddress({ host, port }: Address): string {
	return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function parseAddress(text: string, report: Report): Address | undefined {
	const [whole, bracketed, plain = "", digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):([0-9]+)$/.exec(text) ?? [];
	if (whole === undefined) {
		report("must be host:port, with an IPv6 host in brackets");
		return undefined;
	}
	const port = Number(digits);
	if (bracketed === undefined ? !isHost(plain) : !isIPv6(bracketed))
		report("has a host that is neither a host name nor an IP address; use 0.0.0.0 or [::] for every interface");
	if (port > 65535) report("has a port above 65535");
	return { host: bracketed ?? plain, port };
}

/** A host name (RFC 1123, section 2.1) or IPv4 address; nothing but digits and dots can only be the latter. */
function isHost(host: string): boolean {
	const label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
	return /^[0-9.]*$/.test(host) ? isIPv4(host) : new RegExp(`^${label}(?:\\.${label})*\\.?$`).test(host);
}

function parseSqliteUrl(text: string, report: Report): string | undefined {
	const scheme = /^[A-Za-z][A-Za-z0-9+.-]*(?=:)/.exec(text)?.[0];
	// Only the scheme is shown: the rest may hold a password.
	if (scheme !== "sqlite") {
		report(scheme === undefined ? "must be sqlite:<path>" : `names the engine "${scheme}", and only sqlite is there`);
		return undefined;
	}
	const path = text.slice("sqlite:".length);
	if (path === "" || path.startsWith("//") || path.startsWith(":"))
		report("must name a file, as in sqlite:relative/path or sqlite:/absolute/path");
	return path;
}

/** The messages name entries by number, because a name may be a key at the wrong place. */
function parseAccessKeys(text: string, report: Report): KeyEntry[] {
	const names = new Map<string, number>();
	const hashes = new Map<string, number>();
	return splitList(text).map((item, index) => {
		const entry = `entry ${index + 1}`;
		const [name = "", key = "", scopeList, ...rest] = item.split(":");
		if (!/^[\x21-\x7e]+$/.test(name)) {
			report(`${entry} must begin with a name of visible ASCII characters`);
		}
		// HTTP and gRPC carry only these characters alike in a header.
		if (!/^[\x21-\x7e]+$/.test(key)) {
			report(`${entry} must have a key of visible ASCII characters after the name and a colon`);
		}
		if (rest.length > 0) {
			report(`${entry} has more than three parts; a key has no colon`);
		}
		const hash = hashKey(key);
		reportRepetition(names, name, index, (other) => report(`${entry} has the name of entry ${other}`));
		reportRepetition(hashes, Buffer.from(hash).toString("hex"), index, (other) => {
			report(`${entry} has the key of entry ${other}`);
		});
		const chosen = scopeList === undefined ? defaultScopes : parseScopes(scopeList);
		if (chosen === undefined) {
			report(`${entry} has a scope that is not one of ${scopes.join(", ")}`);
		}
		return Object.freeze({ name, scopes: chosen ?? defaultScopes, hash });
	});
}

/** The name may hold colons, as URIs do. */
function parseCertificates(text: string, report: Report): Principal[] {
	const names = new Map<string, number>();
	return splitList(text).map((item, index) => {
		const entry = `entry ${index + 1}`;
		const [, name = "", scopeList = ""] = /^(.+):([^:]*)$/.exec(item) ?? [];
		const chosen = parseScopes(scopeList);
		if (name === "") report(`${entry} must be the name of a certificate, a colon and scopes`);
		else if (chosen === undefined) report(`${entry} has a scope that is not one of ${scopes.join(", ")}`);
		reportRepetition(names, name, index, (other) => report(`${entry} has the name of entry ${other}`));
		return Object.freeze({ name, scopes: chosen ?? defaultScopes });
	});
}

/** Origins as browsers send them (RFC 6454, section 6.2): scheme, host and port, without a path. */
function parseOrigins(text: string, report: Report): string[] {
	return splitList(text).map((origin, index) => {
		if (origin !== "*" && (!URL.canParse(origin) || new URL(origin).origin !== origin))
			report(`entry ${index + 1} must be * or an origin such as https://dashboard.example, without a slash at its end`);
		return origin;
	});
}

function parseScopes(text: string): ReadonlySet<Scope> | undefined {
	const chosen = text.split("+").map((name) => scopes.find((scope) => scope === name));
	const known = chosen.filter((scope) => scope !== undefined);
	return known.length === chosen.length ? new Set(known) : undefined;
}

function parseInteger(largest: number): (text: string, report: Report) => number {
	return (text, report) => {
		const value = Number(text);
		if (!/^[0-9]+$/.test(text) || value < 1 || value > largest) {
			report(`must be a whole number from 1 to ${largest}`);
		}
		return value;
	};
}

function parseDays(text: string, report: Report): number {
	const value = Number(text);
	if (!/^[0-9]+(?:\.[0-9]+)?$/.test(text) || value <= 0 || !Number.isFinite(value))
		report("must be a number of days above 0");
	return value;
}

/** Segments of RFC 3986, section 3.3; clients resolve `.` and `..` away before they send a path. */
function parseBasePath(text: string, report: Report): string {
	if (!/^(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+$/.test(text))
		report("must be a path that begins with a slash and does not end with one");
	return text;
}

function parseLogLevel(text: string, report: Report): LogLevel | undefined {
	const level = logLevels.find((known) => known === text);
	if (level === undefined) {
		report(`must be one of ${logLevels.join(", ")}`);
	}
	return level;
}

function parseEncryptionKeys(text: string, report: Report): KeyObject[] {
	return splitList(text).map((item, index) => {
		const bytes = Buffer.from(item, "base64");
		// Decoding skips characters that are not base64. Encoding again shows whether there were any.
		if (bytes.length !== 32 || bytes.toString("base64") !== item) {
			report(`entry ${index + 1} must be exactly 32 bytes in base64`);
		}
		return createSecretKey(bytes);
	});
}

function splitList(text: string): string[] {
	return text.split(",").map((item) => item.trim());
}

/** Calls `repeated` with the number, from 1, of the earlier entry that has the same value. Empty values are not compared. */
function reportRepetition(seen: Map<string, number>, value: string, index: number, repeated: (entry: number) => void) {
	const other = seen.get(value);
	if (other !== undefined && value !== "") repeated(other + 1);
	seen.set(value, other ?? index);
}
