import { createSecretKey, type KeyObject } from "node:crypto";
import type { z } from "zod";
import type { KeyEntry, Principal } from "../access/keys.ts";
import type { Database } from "../store/open.ts";
import type { PostgresUrl } from "../store/postgres/database-url.ts";
import type { PostgresSettings } from "../store/postgres/dial.ts";
import type { LogLevel } from "../telemetry/log.ts";
import type { LogFormat } from "../telemetry/log-format.ts";
import { type OtelSettings, readOtelSettings, shownOtelVariables } from "../telemetry/otel-settings.ts";
import type { Address } from "./address.ts";
import { mistypedNames } from "./names.ts";
import { environment, MASK, variables } from "./variables.ts";

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
	/** All variables as a person may read them; of those of OpenTelemetry the ones that are set. */
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

/** Variables that mean nothing without others. */
const NEEDED = {
	TLS_CERT_FILE: "TLS_KEY_FILE",
	TLS_KEY_FILE: "TLS_CERT_FILE",
	TLS_CLIENT_CA_FILE: "TLS_CERT_FILE",
	CLIENT_CERTIFICATES: "TLS_CLIENT_CA_FILE",
} as const;

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
		settings: Object.freeze([
			...variables.map(({ name, default: fallback, mask = (text) => text }): Setting => {
				const text = env[name]?.trim() ?? "";
				if (text === "") return { name, value: fallback, source: "default" };
				return { name, value: mask(text), source: "environment" };
			}),
			...shownOtelVariables(env, MASK).map((shown): Setting => ({ ...shown, source: "environment" })),
		]),
	});
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
