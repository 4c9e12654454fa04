import { createSecretKey, type KeyObject } from "node:crypto";
import type { z } from "zod";
import type { KeyEntry, Principal } from "../access/keys.ts";
import type { RetentionRule } from "../conversations/retention.ts";
import type { BrokerTls, KafkaSettings, NatsSettings } from "../forward/broker-settings.ts";
import type { Database, PostgresSettings, PostgresUrl } from "../store/database.ts";
import type { LogLevel } from "../telemetry/log.ts";
import type { LogFormat } from "../telemetry/log-output.ts";
import { type OtelSettings, readOtelSettings, shownOtelVariables } from "../telemetry/otel-settings.ts";
import type { Address } from "./parsers.ts";
import { environment, MASK, mistypedNames, variables } from "./variables.ts";

/** The complete and valid configuration of the service. It has only the hashes of access keys. */
export interface Config {
	readonly httpAddress: Address;
	readonly grpcAddress: Address;
	readonly database: Database;
	/** Settings for any PostgreSQL database. The password applies to a URL without one. */
	readonly postgres: Omit<PostgresSettings, keyof PostgresUrl> & Pick<PostgresSettings, "password">;
	/** Empty when no key is configured. The service then generates a key. */
	readonly accessKeys: readonly KeyEntry[];
	/** Maximum size of a request body or message in bytes, on every transport. */
	readonly maxBodyBytes: number;
	/**
	 * Maximum bytes of the request bodies in progress, and separately of the responses: at least twice `maxBodyBytes`.
	 */
	readonly maxInflightBytes: number;
	/** Prefix of the paths `/api/v1/…` and of the console: empty, or with a leading and no trailing slash. */
	readonly basePath: string;
	/** Whether the browser console is served. */
	readonly console: boolean;
	/** Whether the Model Context Protocol is served. */
	readonly mcp: boolean;
	/** Access key for the command `mcp`. */
	readonly mcpKey: KeyObject | undefined;
	readonly logLevel: LogLevel;
	readonly logFormat: LogFormat;
	/** 32-byte keys for stored secrets: the first encrypts, all decrypt. Empty when secrets are stored redacted. */
	readonly encryptionKeys: readonly KeyObject[];
	/** Time zone of event times without an offset: `UTC` or a name of the IANA time zone database. */
	readonly eventTimeZone: string;
	/** Time zones of senders that have another one, by the names of their keys or certificates. */
	readonly senderTimeZones: ReadonlyMap<string, string>;
	/** Days for which history is kept; undefined keeps all. */
	readonly retentionDays: number | undefined;
	/** Number of updates that are kept of each conversation; undefined keeps all. */
	readonly retentionUpdatesPerConversation: number | undefined;
	/** Days for which events are kept; undefined keeps all. */
	readonly eventRetentionDays: number | undefined;
	/** When conversations are removed as a whole. */
	readonly retentionRules: readonly RetentionRule[];
	/** Maximum bytes of refused posts that are kept. */
	readonly refusedBytes: number;
	/** Whether a refused batch of events is answered with success once it is kept. Needs an encryption key. */
	readonly acceptRefused: boolean;
	/** Maximum seconds from the signal to stop until the process has ended. */
	readonly drainSeconds: number;
	/** Files for TLS on both listeners; undefined without TLS. */
	readonly tls: TlsFiles | undefined;
	/** Names and scopes of client certificates. */
	readonly clientCertificates: readonly Principal[];
	/** Origins whose pages may call the HTTP listener; `*` allows every origin. Empty allows none. */
	readonly corsOrigins: readonly string[];
	/** Maximum requests a second of one key or certificate; undefined for no limit. */
	readonly rateLimitPerKey: number | undefined;
	/** Which traces and metrics are exported over OTLP. */
	readonly otel: OtelSettings;
	/** Session API key for the command `reconcile`; undefined for an agent server without keys. */
	readonly agentServerKey: KeyObject | undefined;
	/** Agent servers that the service compares with what arrived. Empty for none. */
	readonly reconciled: readonly ReconciledAgentServer[];
	/** Whether endpoints may have addresses inside. */
	readonly forwardPrivate: boolean;
	/** Servers of NATS JetStream and of Kafka to which endpoints may forward; undefined for none. */
	readonly forwardNats: NatsSettings | undefined;
	readonly forwardKafka: KafkaSettings | undefined;
	/** Address of the console with a slash at its end; undefined if it is not known. */
	readonly consoleUrl: string | undefined;
	/** Where runs of conversations are sent as traces; undefined for nowhere. */
	readonly traces: TracesConfig | undefined;
	/** All variables with secrets masked. Of the OpenTelemetry variables, only those that are set. */
	readonly settings: readonly Setting[];
}

/** The effective value of a variable. */
export interface Setting {
	readonly name: string;
	/** The value with secrets masked; empty for none. */
	readonly value: string;
	readonly source: "environment" | "default";
}

/** How runs of conversations are sent as traces. */
export interface TracesConfig {
	readonly url: string;
	/** Values of headers by their names. */
	readonly headers: ReadonlyMap<string, KeyObject>;
	/** Whether they have texts of messages and of calls of tools. */
	readonly content: boolean;
	/** Milliseconds between the end of a run and the sending of its trace. */
	readonly delay: number;
}

/** An agent server that is compared with what arrived. */
interface ReconciledAgentServer {
	/** Name of the access key or client certificate with which it posts. */
	readonly sender: string;
	readonly url: URL;
	/** Its session API key; undefined for one without keys. */
	readonly key: KeyObject | undefined;
}

/** Paths of PEM files. */
export interface TlsFiles {
	readonly cert: string;
	readonly key: string;
	/** Authorities of client certificates. If set, a client without a certificate from one of them cannot connect. */
	readonly clientCa: string | undefined;
}

/** The environment is invalid. The message lists every mistake on its own line, without the values of secrets. */
export class ConfigError extends Error {
	override readonly name = "ConfigError";
	readonly mistakes: readonly string[];

	constructor(mistakes: readonly string[]) {
		super(["The configuration is not valid:", ...mistakes].join("\n  "));
		this.mistakes = mistakes;
	}
}

/** Variables that need another variable. */
const REQUIRED_VARIABLES: readonly (readonly [string, string])[] = Object.entries({
	TLS_CERT_FILE: "TLS_KEY_FILE",
	TLS_KEY_FILE: "TLS_CERT_FILE",
	TLS_CLIENT_CA_FILE: "TLS_CERT_FILE",
	CLIENT_CERTIFICATES: "TLS_CLIENT_CA_FILE",
	FORWARD_NATS_SUBJECTS: "FORWARD_NATS",
	FORWARD_NATS_TLS: "FORWARD_NATS",
	FORWARD_NATS_CA_FILE: "FORWARD_NATS_TLS",
	FORWARD_NATS_USER: ["FORWARD_NATS", "FORWARD_NATS_PASSWORD"],
	FORWARD_NATS_PASSWORD: "FORWARD_NATS_USER",
	FORWARD_NATS_TOKEN: "FORWARD_NATS",
	FORWARD_NATS_CREDENTIALS_FILE: "FORWARD_NATS",
	FORWARD_KAFKA_TOPICS: "FORWARD_KAFKA",
	FORWARD_KAFKA_TLS: "FORWARD_KAFKA",
	FORWARD_KAFKA_CA_FILE: "FORWARD_KAFKA_TLS",
	FORWARD_KAFKA_SASL_MECHANISM: ["FORWARD_KAFKA", "FORWARD_KAFKA_USER"],
	FORWARD_KAFKA_USER: ["FORWARD_KAFKA_SASL_MECHANISM", "FORWARD_KAFKA_PASSWORD"],
	FORWARD_KAFKA_PASSWORD: "FORWARD_KAFKA_USER",
	TRACES_OTLP_HEADERS: "TRACES_OTLP_ENDPOINT",
	TRACES_CONTENT: "TRACES_OTLP_ENDPOINT",
	TRACES_DELAY_SECONDS: "TRACES_OTLP_ENDPOINT",
}).flatMap(([name, others]) => [others].flat().map((other) => [name, other] as const));

/** Variables of which only one may be set. */
const NATS_LOGINS = ["FORWARD_NATS_USER", "FORWARD_NATS_TOKEN", "FORWARD_NATS_CREDENTIALS_FILE"];

/**
 * Reads the configuration from environment variables; nothing else in the program reads them. Ignores variables of
 * other programs, unless a name is so similar to one of the service's that it must be mistyped.
 *
 * @throws {ConfigError} listing every mistake
 */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
	const parsed = environment.safeParse(env);
	const invalid = (parsed.error?.issues ?? []).map(({ path, message }) => {
		const name = String(path[0]);
		return `${name}: ${message} (example: ${name}=${variables.find((known) => known.name === name)?.example})`;
	});
	const inconsistent = REQUIRED_VARIABLES.flatMap(([name, other]) =>
		env[name]?.trim() && !env[other]?.trim() ? [`${name}: needs ${other}`] : [],
	);
	const { MAX_BODY_BYTES, MAX_INFLIGHT_BYTES } = parsed.data ?? { MAX_BODY_BYTES: 0, MAX_INFLIGHT_BYTES: 0 };
	if (MAX_INFLIGHT_BYTES < 2 * MAX_BODY_BYTES)
		inconsistent.push("MAX_INFLIGHT_BYTES: must be at least twice MAX_BODY_BYTES");
	const { RECONCILE_AGENT_SERVERS: agentServers, RECONCILE_KEYS: agentServerKeys } = parsed.data ?? {};
	for (const name of agentServerKeys?.keys() ?? [])
		if (!agentServers?.has(name)) inconsistent.push(`RECONCILE_KEYS: RECONCILE_AGENT_SERVERS has no entry "${name}"`);
	if (parsed.data?.ACCEPT_REFUSED && parsed.data.ENCRYPTION_KEY.length === 0)
		inconsistent.push(
			"ACCEPT_REFUSED: needs ENCRYPTION_KEY, because the bodies of accepted batches are stored encrypted",
		);
	for (const broker of ["FORWARD_NATS", "FORWARD_KAFKA"])
		if (env[`${broker}_CA_FILE`]?.trim() && env[`${broker}_TLS`]?.trim() === "off")
			inconsistent.push(`${broker}_CA_FILE: needs ${broker}_TLS=on`);
	const logins = NATS_LOGINS.filter((name) => env[name]?.trim());
	if (logins.length > 1) inconsistent.push(`${logins[0]}: excludes ${logins.slice(1).join(" and ")}`);
	// The client verifies the certificate of a server that has no name as that of localhost.
	if (parsed.data?.FORWARD_NATS_TLS && parsed.data.FORWARD_NATS.some((server) => /^\[|^[\d.]+:/.test(server)))
		inconsistent.push(
			"FORWARD_NATS: must have names of hosts with FORWARD_NATS_TLS, because certificates are verified by name",
		);
	const otel = readOtelSettings(env);
	const mistakes = [...invalid, ...inconsistent, ...otel.mistakes, ...mistypedNames(Object.keys(env))];
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
		console: values.CONSOLE,
		mcp: values.MCP,
		mcpKey: secretOf(values.MCP_ACCESS_KEY),
		logLevel: values.LOG_LEVEL,
		logFormat: values.LOG_FORMAT,
		encryptionKeys: Object.freeze(values.ENCRYPTION_KEY),
		eventTimeZone: values.EVENT_TIME_ZONE,
		senderTimeZones: values.SENDER_TIME_ZONES,
		retentionDays: values.RETENTION_DAYS,
		retentionUpdatesPerConversation: values.RETENTION_UPDATES_PER_CONVERSATION,
		eventRetentionDays: values.EVENT_RETENTION_DAYS,
		retentionRules: Object.freeze(values.RETENTION_RULES),
		refusedBytes: values.REFUSED_BYTES,
		acceptRefused: values.ACCEPT_REFUSED,
		drainSeconds: values.DRAIN_SECONDS,
		tls: cert === "" ? undefined : Object.freeze({ cert, key, clientCa: values.TLS_CLIENT_CA_FILE || undefined }),
		clientCertificates: Object.freeze(values.CLIENT_CERTIFICATES),
		corsOrigins: Object.freeze(values.CORS_ORIGINS),
		rateLimitPerKey: values.RATE_LIMIT_PER_KEY,
		agentServerKey: secretOf(values.AGENT_SERVER_KEY),
		reconciled: Object.freeze(
			[...values.RECONCILE_AGENT_SERVERS].map(([sender, url]) => {
				return Object.freeze({ sender, url, key: secretOf(values.RECONCILE_KEYS.get(sender) ?? "") });
			}),
		),
		forwardPrivate: values.FORWARD_PRIVATE,
		forwardNats: natsOf(values),
		forwardKafka: kafkaOf(values),
		consoleUrl: values.CONSOLE_URL?.href.replace(/\/*$/, "/"),
		traces: tracesOf(values),
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

function natsOf(values: z.infer<typeof environment>): NatsSettings | undefined {
	const { FORWARD_NATS: servers, FORWARD_NATS_SUBJECTS: places, FORWARD_NATS_USER: user } = values;
	if (servers.length === 0) return undefined;
	const [password, token] = [secretOf(values.FORWARD_NATS_PASSWORD), secretOf(values.FORWARD_NATS_TOKEN)];
	const file = values.FORWARD_NATS_CREDENTIALS_FILE;
	const login =
		password !== undefined
			? { user, password }
			: token !== undefined
				? { token }
				: file === ""
					? undefined
					: { credentialsFile: file };
	return Object.freeze({ servers, places, login, tls: tlsOf(values.FORWARD_NATS_TLS, values.FORWARD_NATS_CA_FILE) });
}

function kafkaOf(values: z.infer<typeof environment>): KafkaSettings | undefined {
	const { FORWARD_KAFKA: servers, FORWARD_KAFKA_TOPICS: places, FORWARD_KAFKA_USER: user } = values;
	if (servers.length === 0) return undefined;
	const [mechanism, password] = [values.FORWARD_KAFKA_SASL_MECHANISM, secretOf(values.FORWARD_KAFKA_PASSWORD)];
	const sasl = mechanism === undefined || password === undefined ? undefined : { mechanism, user, password };
	return Object.freeze({ servers, places, sasl, tls: tlsOf(values.FORWARD_KAFKA_TLS, values.FORWARD_KAFKA_CA_FILE) });
}

function tlsOf(isOn: boolean, caFile: string): BrokerTls | undefined {
	return isOn ? { caFile: caFile || undefined } : undefined;
}

function tracesOf(values: z.infer<typeof environment>): TracesConfig | undefined {
	const { TRACES_OTLP_ENDPOINT: url, TRACES_OTLP_HEADERS: headers, TRACES_CONTENT: content } = values;
	if (url === undefined) return undefined;
	const delay = values.TRACES_DELAY_SECONDS * 1000;
	const secrets = [...headers].map(([name, value]) => [name, createSecretKey(Buffer.from(value))] as const);
	return Object.freeze({ url: url.href, headers: new Map(secrets), content, delay });
}

function postgresOf(values: z.infer<typeof environment>): Config["postgres"] {
	return {
		password: secretOf(values.PGPASSWORD),
		connections: values.POSTGRES_CONNECTIONS,
		statementTimeout: values.POSTGRES_STATEMENT_TIMEOUT * 1000,
		lockTimeout: values.POSTGRES_STATEMENT_TIMEOUT * 500,
		notify: values.POSTGRES_NOTIFY,
	};
}

function databaseOf(url: string | PostgresUrl, postgres: Config["postgres"]): Database {
	if (typeof url === "string") return { engine: "sqlite", path: url };
	const password = url.password === undefined ? postgres.password : secretOf(url.password);
	return { engine: "postgres", ...postgres, ...url, password };
}

/** Returns a text as a key object; undefined for an empty text. */
function secretOf(text: string): KeyObject | undefined {
	return text === "" ? undefined : createSecretKey(Buffer.from(text));
}
