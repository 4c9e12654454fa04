import { createSecretKey, type KeyObject } from "node:crypto";
import type { z } from "zod";
import type { BrokerTls, KafkaSettings, NatsSettings } from "../forward/broker-settings.ts";
import type { Database } from "../store/database.ts";
import { readOtelSettings, shownOtelVariables } from "../telemetry/otel-settings.ts";
import { secretOf } from "./parsers.ts";
import { environment, MASK, unknownNames, variables } from "./variables.ts";

/**
 * The complete and valid configuration of the service: the values of the variables, which `variables.ts` describes, and
 * what follows from several of them. It has only the hashes of access keys. What has no value is undefined, or empty if it
 * is a list or a text.
 */
export type Config = ReturnType<typeof readConfig>;

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

/** Paths of PEM files. If `clientCa` is set, clients need a certificate from one of its authorities. */
export interface TlsFiles {
	readonly cert: string;
	readonly key: string;
	readonly clientCa: string | undefined;
}

/** The environment is invalid. The message lists every mistake on its own line, without the values of secrets. */
export class ConfigError extends Error {
	override readonly name = "ConfigError";

	constructor(mistakes: readonly string[]) {
		super(["The configuration is not valid:", ...mistakes].join("\n  "));
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

const NATS_LOGINS = ["FORWARD_NATS_USER", "FORWARD_NATS_TOKEN", "FORWARD_NATS_CREDENTIALS_FILE"];

/**
 * Reads the configuration from environment variables; nothing else in the program reads them. Ignores variables of
 * other programs.
 *
 * @throws {ConfigError} listing every mistake
 */
export function readConfig(env: Readonly<Record<string, string | undefined>>) {
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
	const mistakes = [...invalid, ...inconsistent, ...otel.mistakes, ...unknownNames(Object.keys(env))];
	if (!parsed.success || otel.settings === undefined || mistakes.length > 0) throw new ConfigError(mistakes);
	const values = parsed.data;
	const [cert, key] = [values.TLS_CERT_FILE, values.TLS_KEY_FILE];
	// Texts with secrets. What follows from them has key objects, which no log shows.
	const { DATABASE_URL: _, RECONCILE_KEYS: __, TRACES_OTLP_HEADERS: ___, ...settings } = values;
	return {
		...settings,
		database: databaseOf(values),
		tls: cert === "" ? undefined : { cert, key, clientCa: values.TLS_CLIENT_CA_FILE || undefined },
		/** Agent servers that the service compares with what arrived, with the names under which they post. */
		reconciled: Array.from(values.RECONCILE_AGENT_SERVERS, ([sender, url]) => {
			return { sender, url, key: secretOf(values.RECONCILE_KEYS.get(sender) ?? "") };
		}),
		forwardNats: natsOf(values),
		forwardKafka: kafkaOf(values),
		/** With a slash at its end. */
		consoleUrl: values.CONSOLE_URL?.href.replace(/\/*$/, "/"),
		traces: tracesOf(values),
		otel: otel.settings,
		/** All variables with secrets masked. Of the OpenTelemetry variables, only those that are set. */
		settings: [
			...variables.map(({ name, default: fallback, mask = (text) => text }): Setting => {
				const text = env[name]?.trim() ?? "";
				if (text === "") return { name, value: fallback, source: "default" };
				return { name, value: mask(text), source: "environment" };
			}),
			...shownOtelVariables(env, MASK).map((shown): Setting => ({ ...shown, source: "environment" })),
		],
	};
}

function natsOf(values: z.infer<typeof environment>): NatsSettings | undefined {
	const { FORWARD_NATS: servers, FORWARD_NATS_SUBJECTS: places, FORWARD_NATS_USER: user } = values;
	if (servers.length === 0) return undefined;
	const { FORWARD_NATS_PASSWORD: password, FORWARD_NATS_TOKEN: token } = values;
	const file = values.FORWARD_NATS_CREDENTIALS_FILE;
	const login = password ? { user, password } : token ? { token } : file ? { credentialsFile: file } : undefined;
	return { servers, places, login, tls: tlsOf(values.FORWARD_NATS_TLS, values.FORWARD_NATS_CA_FILE) };
}

function kafkaOf(values: z.infer<typeof environment>): KafkaSettings | undefined {
	const { FORWARD_KAFKA: servers, FORWARD_KAFKA_TOPICS: places, FORWARD_KAFKA_USER: user } = values;
	if (servers.length === 0) return undefined;
	const { FORWARD_KAFKA_SASL_MECHANISM: mechanism, FORWARD_KAFKA_PASSWORD: password } = values;
	const sasl = mechanism && password && { mechanism, user, password };
	return { servers, places, sasl, tls: tlsOf(values.FORWARD_KAFKA_TLS, values.FORWARD_KAFKA_CA_FILE) };
}

function tlsOf(isOn: boolean, caFile: string): BrokerTls | undefined {
	return isOn ? { caFile: caFile || undefined } : undefined;
}

function tracesOf(values: z.infer<typeof environment>): TracesConfig | undefined {
	const { TRACES_OTLP_ENDPOINT: url, TRACES_OTLP_HEADERS: headers, TRACES_CONTENT: content } = values;
	if (url === undefined) return undefined;
	const delay = values.TRACES_DELAY_SECONDS * 1000;
	const secrets = [...headers].map(([name, value]) => [name, createSecretKey(Buffer.from(value))] as const);
	return { url: url.href, headers: new Map(secrets), content, delay };
}

function databaseOf(values: z.infer<typeof environment>): Database {
	const { DATABASE_URL: url, POSTGRES_STATEMENT_TIMEOUT: seconds } = values;
	if (typeof url === "string") return { engine: "sqlite", path: url };
	return {
		engine: "postgres",
		...url,
		password: url.password === undefined ? values.PGPASSWORD : secretOf(url.password),
		connections: values.POSTGRES_CONNECTIONS,
		statementTimeout: seconds * 1000,
		lockTimeout: seconds * 500,
		notify: values.POSTGRES_NOTIFY,
	};
}
