import { constants } from "node:buffer";
import { createSecretKey, type KeyObject } from "node:crypto";
import { isIPv4, isIPv6 } from "node:net";
import leven, { closestMatch } from "leven";
import { z } from "zod";
import { defaultScopes, hashKey, type KeyEntry, type Principal, type Scope, scopes } from "./access/keys.ts";
import type { Database } from "./store/open.ts";
import { isPostgresUrl, maskPostgresUrl, type PostgresUrl, parsePostgresUrl } from "./store/postgres/database-url.ts";
import type { PostgresSettings } from "./store/postgres/dial.ts";
import { type LogLevel, logLevels } from "./telemetry/log.ts";
import { type LogFormat, logFormats } from "./telemetry/log-format.ts";
import { type OtelSettings, readOtelSettings } from "./telemetry/otel-settings.ts";

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
	readonly database: Database;
	/** How a PostgreSQL database is used, whichever it is. The password is for a URL that has none. */
	readonly postgres: Omit<PostgresSettings, keyof PostgresUrl> & Pick<PostgresSettings, "password">;
	/** Empty when none is configured: the service then makes its own key. */
	readonly accessKeys: readonly KeyEntry[];
	/** Most bytes that a request's body or message may have, on every transport. */
	readonly maxBodyBytes: number;
	/** Most bytes of the bodies under way, and once more of the answers: at least twice `maxBodyBytes`. */
	readonly maxInflightBytes: number;
	/** Prefix of the webhook's path: empty, or with a leading and no trailing slash. */
	readonly basePath: string;
	readonly logLevel: LogLevel;
	readonly logFormat: LogFormat;
	/** 32-byte keys for secrets at rest: the first encrypts, all decrypt. Empty when secrets are stored redacted. */
	readonly encryptionKeys: readonly KeyObject[];
	/** Time zone of event times without an offset: `UTC` or a name of the IANA time zone database. */
	readonly eventTimeZone: string;
	/** Days that history is kept; undefined keeps all. */
	readonly retentionDays: number | undefined;
	/** Updates that are kept of each conversation; undefined keeps all. */
	readonly retentionUpdatesPerConversation: number | undefined;
	/** Days that events are kept; undefined keeps all. */
	readonly eventRetentionDays: number | undefined;
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
	/** What is sent to receivers of OTLP. */
	readonly otel: OtelSettings;
	/** All variables as a person may read them. */
	readonly settings: readonly Setting[];
}

/** A variable's value in effect. */
export interface Setting {
	readonly name: string;
	/** The value with secrets masked; empty for none. */
	readonly value: string;
	readonly source: "environment" | "default";
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

/** What a person is told of a variable. */
interface VariableText {
	/** One line of Markdown. */
	readonly meaning: string;
	/** The value that counts when the variable is unset, empty or blank; empty for none. */
	readonly default: string;
	/** A value as it may be written, for the messages about mistakes. */
	readonly example: string;
	/** Shows a valid value without its secrets. Left out when it has none. */
	readonly mask?: (text: string) => string;
}

/** Gives the value of a text, which is empty only when there is no default, or reports what is wrong with it. */
type Parse<T> = (text: string, report: Report) => T;

const texts = z.registry<VariableText>();

function variable<T>({ parse, ...text }: VariableText & { readonly parse: Parse<T> }) {
	return z
		.string()
		.optional()
		.transform((raw, context): T => {
			return parse(raw?.trim() || text.default, (message) => context.addIssue({ code: "custom", message }));
		})
		.register(texts, text);
}

export const MASK = "**********";
/** Shortest access key, in characters: 16 random hexadecimal digits are 64 bits. */
const MIN_KEY_LENGTH = 16;
/** An hour and a century: less empties the history while it is read, more is a mistake. */
const RETENTION_DAYS = { smallest: 1 / 24, largest: 36_525 };
const MAX_RETENTION_UPDATES = 1_000_000_000;

/** The variables of the service. Parsing, `config`, `--help` and the check of the README's table derive from it. */
const environment = z.object({
	HTTP_ADDRESS: variable({
		meaning:
			"`host:port` of the listener for the webhook, the JSON reads, Connect and gRPC-Web. IPv6 hosts stand in brackets; port 0 is any free port",
		default: "127.0.0.1:8080",
		example: "127.0.0.1:8080 or [::1]:8080",
		parse: parseAddress,
	}),
	GRPC_ADDRESS: variable({
		meaning: "`host:port` of the listener for gRPC",
		default: "127.0.0.1:50051",
		example: "127.0.0.1:50051 or [::1]:50051",
		parse: parseAddress,
	}),
	DATABASE_URL: variable({
		meaning:
			"`sqlite:` and the path of the database file, or `postgres://user:password@host:port/database`, as docs/postgres.md describes it",
		default: "sqlite:data/conversations.db",
		example: "sqlite:data/conversations.db",
		mask: (text) => maskPostgresUrl(text, MASK),
		parse: parseDatabaseUrl,
	}),
	PGPASSWORD: variable({
		meaning: "password for PostgreSQL, in place of one in `DATABASE_URL`",
		default: "",
		example: "<password>",
		mask: () => MASK,
		parse: (text) => text,
	}),
	POSTGRES_CONNECTIONS: variable({
		meaning: "most connections in the pool to PostgreSQL; one more listens",
		default: "8",
		example: "8",
		parse: parseInteger(1000),
	}),
	POSTGRES_STATEMENT_TIMEOUT: variable({
		meaning: "seconds that a statement may take in PostgreSQL",
		default: "10",
		example: "10",
		parse: parseInteger(3600),
	}),
	POSTGRES_LOCK_TIMEOUT: variable({
		meaning: "seconds that a statement may wait for a lock in PostgreSQL",
		default: "5",
		example: "5",
		parse: parseInteger(3600),
	}),
	POSTGRES_NOTIFY: variable({
		meaning:
			"`on` or `off`: whether replicas tell each other of updates by `NOTIFY`. `off` for a pooler in transaction mode; watchers then follow within a second",
		default: "on",
		example: "on",
		parse: parseSwitch,
	}),
	ACCESS_KEYS: variable({
		meaning: `comma-separated entries \`name:key\` or \`name:key:scope+scope\`; a key has at least ${MIN_KEY_LENGTH} characters. Scopes are \`ingest\`, \`read\`, \`secrets\`, \`metrics\`; without any: \`ingest+read\`. Without entries, the first start makes a key`,
		default: "",
		example: "<name>:<key>,<name>:<key>:read+secrets",
		mask: (text) =>
			splitList(text)
				.map((entry) => entry.split(":").with(1, MASK).join(":"))
				.join(","),
		parse: parseAccessKeys,
	}),
	MAX_BODY_BYTES: variable({
		meaning: "most bytes of a request's body or message, after decompression",
		default: "16777216",
		example: "16777216",
		// The body becomes one string, and strings have a greatest length.
		parse: parseInteger(constants.MAX_STRING_LENGTH),
	}),
	MAX_INFLIGHT_BYTES: variable({
		meaning:
			"most bytes of the bodies under way at a time, on all transports together, and once more of the answers; at least twice `MAX_BODY_BYTES`",
		default: "134217728",
		example: "134217728",
		parse: parseInteger(2 ** 40),
	}),
	BASE_PATH: variable({
		meaning: "prefix of the paths `/api/v1/…`, such as `/bridge`",
		default: "",
		example: "/bridge",
		parse: parseBasePath,
	}),
	LOG_LEVEL: variable({
		meaning: "`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`",
		default: "info",
		example: "info",
		parse: oneOf(logLevels),
	}),
	LOG_FORMAT: variable({
		meaning: "`json` is one object a line, `pretty` is for people; `auto` is `pretty` on a terminal, else `json`",
		default: "auto",
		example: "json",
		parse: oneOf(logFormats),
	}),
	ENCRYPTION_KEY: variable({
		meaning:
			"32 bytes in base64, several comma-separated: the first encrypts secrets, all decrypt. Without one, secrets are stored redacted",
		default: "",
		example: "$(openssl rand -base64 32)",
		mask: (text) =>
			splitList(text)
				.map(() => MASK)
				.join(","),
		parse: parseEncryptionKeys,
	}),
	EVENT_TIME_ZONE: variable({
		meaning:
			"time zone of event times without an offset, such as `Europe/Berlin`: the one that the agent server runs in",
		default: "UTC",
		example: "Europe/Berlin",
		parse: parseTimeZone,
	}),
	RETENTION_DAYS: variable({
		meaning: `days for which history is kept, such as \`30\` or \`0.5\`; from an hour to ${RETENTION_DAYS.largest} days. Without it, all is kept`,
		default: "",
		example: "30",
		parse: optional(parseDays),
	}),
	RETENTION_UPDATES_PER_CONVERSATION: variable({
		meaning: `updates that are kept of each conversation, at most ${MAX_RETENTION_UPDATES}. Without it, all are kept`,
		default: "",
		example: "1000",
		parse: optional(parseInteger(MAX_RETENTION_UPDATES)),
	}),
	EVENT_RETENTION_DAYS: variable({
		meaning: `days for which events are kept, such as \`90\` or \`0.5\`; from an hour to ${RETENTION_DAYS.largest} days. Without it, all are kept`,
		default: "",
		example: "90",
		parse: optional(parseDays),
	}),
	DRAIN_SECONDS: variable({
		meaning: "seconds that a stop may take",
		default: "25",
		example: "25",
		parse: parseInteger(3600),
	}),
	TLS_CERT_FILE: variable({
		meaning: "PEM file with the certificate and its chain. With it, both listeners speak TLS",
		default: "",
		example: "/etc/service/tls.crt",
		parse: (text) => text,
	}),
	TLS_KEY_FILE: variable({
		meaning: "PEM file with the certificate's key",
		default: "",
		example: "/etc/service/tls.key",
		parse: (text) => text,
	}),
	TLS_CLIENT_CA_FILE: variable({
		meaning:
			"PEM file with the authorities of client certificates. A client without one of theirs cannot connect, probes included",
		default: "",
		example: "/etc/service/clients.crt",
		parse: (text) => text,
	}),
	CLIENT_CERTIFICATES: variable({
		meaning:
			"comma-separated entries `name:scope+scope` for clients that send no key. The name is the certificate's common name, or without one its first alternative name, such as `spiffe://corp/agent`",
		default: "",
		example: "agent-server:ingest,dashboard:read+secrets",
		parse: parseCertificates,
	}),
	CORS_ORIGINS: variable({
		meaning: "comma-separated origins whose pages may call the HTTP listener; `*` is every one",
		default: "",
		example: "https://dashboard.example",
		parse: parseOrigins,
	}),
	RATE_LIMIT_PER_KEY: variable({
		meaning:
			"requests a second for each key or certificate, on all transports together, at most 1000000. Without it, any number",
		default: "",
		example: "100",
		parse: optional(parseInteger(1_000_000)),
	}),
});

/** Variables that mean nothing without others. */
const NEEDED = {
	TLS_CERT_FILE: "TLS_KEY_FILE",
	TLS_KEY_FILE: "TLS_CERT_FILE",
	TLS_CLIENT_CA_FILE: "TLS_CERT_FILE",
	CLIENT_CERTIFICATES: "TLS_CLIENT_CA_FILE",
} as const;

/** What a person is told of each variable. */
export const variables: readonly (VariableText & { readonly name: string })[] = Object.entries(
	environment.shape,
).flatMap(([name, schema]) => {
	const text = texts.get(schema);
	return text === undefined ? [] : [{ name, ...text }];
});

/**
 * Reads the configuration from environment variables; nothing else in the program reads them. Variables that are not
 * the service's are ignored, unless their names are so close to its own that they must be mistyped.
 *
 * @throws {ConfigError} listing every mistake
 */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
	const parsed = environment.safeParse(env);
	const wrong = (parsed.error?.issues ?? []).map(({ path, message }) => {
		const name = String(path[0]);
		return `${name}: ${message} (example: ${name}=${variables.find((known) => known.name === name)?.example})`;
	});
	const lacking = Object.entries(NEEDED).flatMap(([name, other]) =>
		env[name]?.trim() && !env[other]?.trim() ? [`${name}: needs ${other}`] : [],
	);
	const { MAX_BODY_BYTES, MAX_INFLIGHT_BYTES } = parsed.data ?? { MAX_BODY_BYTES: 0, MAX_INFLIGHT_BYTES: 0 };
	if (MAX_INFLIGHT_BYTES < 2 * MAX_BODY_BYTES)
		lacking.push("MAX_INFLIGHT_BYTES: must be at least twice MAX_BODY_BYTES");
	const otel = readOtelSettings(env);
	const mistakes = [...wrong, ...lacking, ...otel.mistakes, ...mistypedNames(Object.keys(env))];
	if (!parsed.success || otel.settings === undefined || mistakes.length > 0) throw new ConfigError(mistakes);
	const values = parsed.data;
	const postgres = postgresOf(values);
	const [cert, key] = [values.TLS_CERT_FILE, values.TLS_KEY_FILE];
	return Object.freeze({
		httpAddress: Object.freeze(values.HTTP_ADDRESS),
		grpcAddress: Object.freeze(values.GRPC_ADDRESS),
		database: Object.freeze(databaseOf(values.DATABASE_URL, postgres)),
		postgres: Object.freeze(postgres),
		accessKeys: Object.freeze(values.ACCESS_KEYS),
		maxBodyBytes: values.MAX_BODY_BYTES,
		maxInflightBytes: values.MAX_INFLIGHT_BYTES,
		basePath: values.BASE_PATH,
		logLevel: values.LOG_LEVEL,
		logFormat: values.LOG_FORMAT,
		encryptionKeys: Object.freeze(values.ENCRYPTION_KEY),
		eventTimeZone: values.EVENT_TIME_ZONE,
		retentionDays: values.RETENTION_DAYS,
		retentionUpdatesPerConversation: values.RETENTION_UPDATES_PER_CONVERSATION,
		eventRetentionDays: values.EVENT_RETENTION_DAYS,
		drainSeconds: values.DRAIN_SECONDS,
		tls: cert === "" ? undefined : Object.freeze({ cert, key, clientCa: values.TLS_CLIENT_CA_FILE || undefined }),
		clientCertificates: Object.freeze(values.CLIENT_CERTIFICATES),
		corsOrigins: Object.freeze(values.CORS_ORIGINS),
		rateLimitPerKey: values.RATE_LIMIT_PER_KEY,
		otel: Object.freeze(otel.settings),
		settings: Object.freeze(
			variables.map(({ name, default: fallback, mask = (text) => text }): Setting => {
				const text = env[name]?.trim() ?? "";
				if (text === "") return { name, value: fallback, source: "default" };
				return { name, value: mask(text), source: "environment" };
			}),
		),
	});
}

/** Beginnings of names that only this service's variables have. */
const RESERVED =
	/^(?:RETENTION_|EVENT_|ACCESS_KEY|ENCRYPTION_KEY|MAX_BODY|MAX_INFLIGHT|DRAIN_|TLS_|CLIENT_CERTIFICATE|CORS_|RATE_LIMIT)/;
/** What Kubernetes sets for each Service of its namespace, whatever the Service's name. */
const KUBERNETES = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$/;

/** A line for each name that is not the service's and must be meant for one of its own. */
function mistypedNames(names: readonly string[]): string[] {
	const own = variables.map(({ name }) => name);
	return names.flatMap((name) => {
		if (own.includes(name) || KUBERNETES.test(name)) return [];
		const [prefix = ""] = RESERVED.exec(name) ?? [];
		const likely = own.filter((known) => known.startsWith(prefix));
		const nearest = closestMatch(name.toUpperCase(), likely);
		if (nearest === undefined) return [];
		// In a short name two other letters make another word.
		const near = leven(name.toUpperCase(), nearest) <= (nearest.length < 10 ? 1 : 2);
		return near || prefix !== "" ? [`${name}: is not a variable of the service; the nearest is ${nearest}`] : [];
	});
}

/** An address as it is written in a URL: `host:port`, an IPv6 host in brackets. */
export function formatAddress({ host, port }: Address): string {
	return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The value is undefined when there is no text. */
function optional<T>(parse: Parse<T>): Parse<T | undefined> {
	return (text, report) => (text === "" ? undefined : parse(text, report));
}

function parseAddress(text: string, report: Report): Address {
	const [whole, bracketed, plain = "", digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):([0-9]+)$/.exec(text) ?? [];
	if (whole === undefined) {
		report("must be host:port, with an IPv6 host in brackets");
		return z.NEVER;
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

/** Gives the path of an SQLite database, or what a PostgreSQL URL says. */
function parseDatabaseUrl(text: string, report: Report): string | PostgresUrl {
	if (isPostgresUrl(text)) return parsePostgresUrl(text, report) ?? z.NEVER;
	const scheme = /^[A-Za-z][A-Za-z0-9+.-]*(?=:)/.exec(text)?.[0];
	// Only the scheme is shown: the rest may hold a password.
	if (scheme !== "sqlite") {
		const named = scheme === undefined ? "" : `names the engine "${scheme}"; it `;
		report(`${named}must be sqlite:<path> or postgres://<user>@<host>/<database>`);
		return z.NEVER;
	}
	const path = text.slice("sqlite:".length);
	if (path === "" || path.startsWith("//") || path.startsWith(":"))
		report("must name a file, as in sqlite:relative/path or sqlite:/absolute/path");
	return path;
}

function postgresOf(values: z.infer<typeof environment>): Config["postgres"] {
	return {
		password: secretOf(values.PGPASSWORD),
		connections: values.POSTGRES_CONNECTIONS,
		statementTimeout: values.POSTGRES_STATEMENT_TIMEOUT * 1000,
		lockTimeout: values.POSTGRES_LOCK_TIMEOUT * 1000,
		notify: values.POSTGRES_NOTIFY,
	};
}

function databaseOf(url: string | PostgresUrl, postgres: Config["postgres"]): Database {
	if (typeof url === "string") return { engine: "sqlite", path: url };
	const password = url.password === undefined ? postgres.password : secretOf(url.password);
	return { engine: "postgres", ...postgres, ...url, password };
}

/** Undefined for an empty text. */
function secretOf(text: string): KeyObject | undefined {
	return text === "" ? undefined : createSecretKey(Buffer.from(text));
}

/**
 * The database of a URL in the form of DATABASE_URL.
 *
 * @throws {ConfigError} listing every mistake
 */
export function databaseAt(url: string, { postgres }: Config): Database {
	const parsed = environment.shape.DATABASE_URL.safeParse(url);
	if (!parsed.success) throw new ConfigError(parsed.error.issues.map(({ message }) => message));
	return databaseOf(parsed.data, postgres);
}

function parseSwitch(text: string, report: Report): boolean {
	if (text !== "on" && text !== "off") report("must be on or off");
	return text === "on";
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
		} else if (key.length < MIN_KEY_LENGTH) {
			report(`${entry} has a key that is shorter than ${MIN_KEY_LENGTH} characters`);
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

function parseInteger(largest: number): Parse<number> {
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
	const { smallest, largest } = RETENTION_DAYS;
	if (!/^[0-9]+(?:\.[0-9]+)?$/.test(text)) report("must be a number of days");
	else if (value < smallest || value > largest) report(`must be from an hour (0.0417) to ${largest} days`);
	return value;
}

/** Segments of RFC 3986, section 3.3; clients resolve `.` and `..` away before they send a path. */
function parseBasePath(text: string, report: Report): string {
	if (text !== "" && !/^(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+$/.test(text))
		report("must be a path that begins with a slash and does not end with one");
	return text;
}

/** Fixed offsets, which the runtime takes too, are refused: they hide when the clocks change. */
function parseTimeZone(text: string, report: Report): string {
	try {
		if (/^[A-Za-z]/.test(text)) return new Intl.DateTimeFormat("en", { timeZone: text }).resolvedOptions().timeZone;
	} catch (error) {
		if (!(error instanceof RangeError)) throw error;
	}
	report("must be UTC or the name of a time zone in the IANA database");
	return z.NEVER;
}

function oneOf<T extends string>(words: readonly T[]): Parse<T> {
	return (text, report) => {
		const word = words.find((known) => known === text);
		if (word === undefined) report(`must be one of ${words.join(", ")}`);
		return word ?? z.NEVER;
	};
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
	return text === "" ? [] : text.split(",").map((item) => item.trim());
}

/** Calls `repeated` with the number, from 1, of the earlier entry that has the same value. Empty values are not compared. */
function reportRepetition(seen: Map<string, number>, value: string, index: number, repeated: (entry: number) => void) {
	const other = seen.get(value);
	if (other !== undefined && value !== "") repeated(other + 1);
	seen.set(value, other ?? index);
}
