import { constants } from "node:buffer";
import { z } from "zod";
import { SASL_MECHANISMS, SUBJECTS, TOPIC } from "../forward/broker-settings.ts";
import { maskPostgresUrl } from "../store/database.ts";
import { logLevels } from "../telemetry/log.ts";
import { logFormats } from "../telemetry/log-output.ts";
import {
	MAX_RETENTION_UPDATES,
	MIN_KEY_LENGTH,
	oneOf,
	optional,
	type Parse,
	parseAccessKeys,
	parseAddress,
	parseAgentServerKeys,
	parseAgentServers,
	parseBasePath,
	parseCertificates,
	parseDatabaseUrl,
	parseDays,
	parseEncryptionKeys,
	parseHeaders,
	parseInteger,
	parseOrigins,
	parseRetentionRules,
	parseSenderTimeZones,
	parseServers,
	parseSwitch,
	parseTimeZone,
	parseUrl,
	placesOf,
	RETENTION_DAYS,
	secretOf,
	splitList,
} from "./parsers.ts";

export const MASK = "**********";

/** Description of a variable for the user. */
interface VariableText {
	/** One line of Markdown. */
	readonly meaning: string;
	/** Value that applies when the variable is unset, empty or blank; empty if there is none. */
	readonly default: string;
	/** Example of a value, for messages about mistakes. */
	readonly example: string;
	/** Masks the secrets in a valid value. Left out for a variable without secrets. */
	readonly mask?: (text: string) => string;
}

const texts = z.registry<VariableText>();

/** What is written down of a variable: without a default there is none, without an example the default is one. */
interface Written<T> extends Partial<Omit<VariableText, "meaning">> {
	readonly parse: Parse<T>;
}

function variable<T>(meaning: string, { parse, default: fallback = "", ...text }: Written<T>) {
	return z
		.string()
		.optional()
		.transform((raw, context): T => {
			return parse(raw?.trim() || fallback, (message) => context.addIssue({ code: "custom", message }));
		})
		.register(texts, { meaning, example: fallback, ...text, default: fallback });
}

const textVariable = (meaning: string, example: string) => variable(meaning, { example, parse: (value) => value });

const secretVariable = (meaning: string, example: string) =>
	variable(meaning, { example, mask: () => MASK, parse: secretOf });

/** A variable whose example is the other value than the default if that is `off`. */
const switchVariable = (meaning: string, fallback: "on" | "off") =>
	variable(`\`on\` or \`off\`: ${meaning}`, { default: fallback, example: "on", parse: parseSwitch });

/** Masks each of comma-separated entries. */
function maskEach(mask: (entry: string) => string): (text: string) => string {
	return (text) => splitList(text).map(mask).join();
}

/** Masks the values of comma-separated entries `name=value`. */
const maskValues = maskEach((entry) => entry.replace(/=.*/, `=${MASK}`));

/** The variables of the service. Parsing, the command `config`, `--help` and docs/configuration.md follow from it. */
export const environment = z.object({
	HTTP_ADDRESS: variable(
		"`host:port` of the listener for the webhooks, JSON reads, Connect and gRPC-Web. An IPv6 host is written in brackets; port 0 selects any free port",
		{ default: "127.0.0.1:8080", example: "127.0.0.1:8080 or [::1]:8080", parse: parseAddress },
	),
	GRPC_ADDRESS: variable("`host:port` of the listener for gRPC", {
		default: "127.0.0.1:50051",
		example: "127.0.0.1:50051 or [::1]:50051",
		parse: parseAddress,
	}),
	DATABASE_URL: variable(
		"`sqlite:` and the path of the database file, or `postgres://user:password@host:port/database` (see docs/postgres.md)",
		{ default: "sqlite:data/conversations.db", mask: (text) => maskPostgresUrl(text, MASK), parse: parseDatabaseUrl },
	),
	PGPASSWORD: secretVariable("password for PostgreSQL if `DATABASE_URL` contains none", "<password>"),
	POSTGRES_CONNECTIONS: variable(
		"maximum number of connections in the PostgreSQL connection pool; one more connection listens for notifications",
		{ default: "8", parse: parseInteger(1000) },
	),
	POSTGRES_STATEMENT_TIMEOUT: variable(
		"maximum duration of a statement in PostgreSQL, in seconds; it waits for a lock for at most half of it",
		{ default: "10", parse: parseInteger(3600) },
	),
	POSTGRES_NOTIFY: switchVariable(
		"whether replicas notify each other of updates with `NOTIFY`. Behind a connection pooler in transaction mode it must be `off`: watchers then receive updates within a second, and prepared statements are not reused",
		"on",
	),
	ACCESS_KEYS: variable(
		`comma-separated entries \`name:key\`, \`name:key:scope+scope\` or \`name:key:scope+scope@owner\`; a key has at least ${MIN_KEY_LENGTH} characters. Scopes are \`ingest\`, \`read\`, \`secrets\`, \`metrics\`, \`keys\`, \`erase\`, \`forward\`, \`pause\`, \`score\`; the default is \`ingest+read\`. Keys that are created while the service runs (see docs/operations.md) are valid beside them. Without entries, the first start with SQLite creates a key with \`ingest+read+score+metrics+keys\``,
		{
			example: "<name>:<key>,<name>:<key>:read+secrets",
			mask: maskEach((entry) => entry.split(":").with(1, MASK).join(":")),
			parse: parseAccessKeys,
		},
	),
	MAX_BODY_BYTES: variable("maximum size of a request body or message in bytes, after decompression", {
		default: "16777216",
		// The body becomes one string, so the maximum length of a string limits it.
		parse: parseInteger(constants.MAX_STRING_LENGTH),
	}),
	MAX_INFLIGHT_BYTES: variable(
		"maximum total bytes of request bodies in progress, on all transports together, and separately of responses; at least twice `MAX_BODY_BYTES`",
		{ default: "134217728", parse: parseInteger(2 ** 40) },
	),
	BASE_PATH: variable(
		"prefix of the paths `/api/v1/…` and of the console, such as `/bridge`; Connect and gRPC-Web are served with it and without",
		{ example: "/bridge", parse: parseBasePath },
	),
	CONSOLE: switchVariable(
		"whether the HTTP listener serves the browser console at `/`, or below `BASE_PATH` (see docs/console.md)",
		"on",
	),
	MCP: switchVariable(
		"whether the HTTP listener serves agents over the Model Context Protocol at `/mcp`, or below `BASE_PATH` (see docs/mcp.md)",
		"on",
	),
	LOG_LEVEL: variable("`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`", {
		default: "info",
		parse: oneOf(logLevels),
	}),
	LOG_FORMAT: variable(
		"`json` writes one object per line, `pretty` is for people; `auto` means `pretty` on a terminal, otherwise `json`",
		{ default: "auto", example: "json", parse: oneOf(logFormats) },
	),
	ENCRYPTION_KEY: variable(
		"one or more comma-separated keys, each 32 bytes in base64: the first encrypts secrets, all decrypt. Without a key, secrets are stored redacted",
		{ example: "$(openssl rand -base64 32)", mask: maskEach(() => MASK), parse: parseEncryptionKeys },
	),
	EVENT_TIME_ZONE: variable(
		"time zone of event times without an offset, such as `Europe/Berlin`; it should be the time zone of the agent server",
		{ default: "UTC", example: "Europe/Berlin", parse: parseTimeZone },
	),
	SENDER_TIME_ZONES: variable(
		"comma-separated entries `name=zone` for senders in other time zones than `EVENT_TIME_ZONE`. The name is that of the access key or client certificate",
		{ example: "agent-1=America/New_York,agent-2=Asia/Tokyo", parse: parseSenderTimeZones },
	),
	RETENTION_DAYS: variable(
		`days for which history is kept, such as \`30\` or \`0.5\`; from an hour to ${RETENTION_DAYS.largest} days. If unset, all history is kept`,
		{ example: "30", parse: optional(parseDays) },
	),
	RETENTION_UPDATES_PER_CONVERSATION: variable(
		`number of updates that are kept of each conversation, at most ${MAX_RETENTION_UPDATES}. If unset, all updates are kept`,
		{ example: "1000", parse: optional(parseInteger(MAX_RETENTION_UPDATES)) },
	),
	EVENT_RETENTION_DAYS: variable(
		`days for which events are kept, such as \`90\` or \`0.5\`; from an hour to ${RETENTION_DAYS.largest} days. If unset, all events are kept`,
		{ example: "90", parse: optional(parseDays) },
	),
	RETENTION_RULES: variable(
		"comma-separated entries `owner:NAME=days`, `tag:KEY=days` and `tag:KEY=VALUE=days`: days without activity after which a conversation of this owner, or with this tag, is removed as a whole (see docs/operations.md)",
		{ example: "owner:team-a=30,tag:scratch=7,tag:env=dev=14", parse: parseRetentionRules },
	),
	REFUSED_BYTES: variable(
		"maximum bytes of refused posts that are kept, at most for 30 days (see docs/operations.md); the oldest make room for new ones. Their bodies are kept only with `ENCRYPTION_KEY`",
		{ default: "67108864", parse: parseInteger(2 ** 40) },
	),
	ACCEPT_REFUSED: switchVariable(
		"whether a batch of events that breaks rules is answered with success, once its body is kept among the refused posts (see docs/operations.md). Needs `ENCRYPTION_KEY`",
		"off",
	),
	DRAIN_SECONDS: variable("maximum duration of a stop, in seconds", { default: "25", parse: parseInteger(3600) }),
	TLS_CERT_FILE: textVariable(
		"PEM file with the certificate and its chain. If set, both listeners use TLS",
		"/etc/service/tls.crt",
	),
	TLS_KEY_FILE: textVariable("PEM file with the certificate's private key", "/etc/service/tls.key"),
	TLS_CLIENT_CA_FILE: textVariable(
		"PEM file with the authorities that sign client certificates. If set, no client can connect without such a certificate, not even a probe",
		"/etc/service/clients.crt",
	),
	CLIENT_CERTIFICATES: variable(
		"comma-separated entries `name:scope+scope` or `name:scope+scope@owner` for clients that send no key. The name is the certificate's common name, or if it has none its first alternative name, such as `spiffe://corp/agent`",
		{ example: "agent-server:ingest,dashboard:read+secrets", parse: parseCertificates },
	),
	CORS_ORIGINS: variable("comma-separated origins whose pages may call the HTTP listener; `*` allows every origin", {
		example: "https://dashboard.example",
		parse: parseOrigins,
	}),
	RATE_LIMIT_PER_KEY: variable(
		"maximum requests per second of each key or client certificate, on all transports together; at most 1000000. If unset, there is no limit",
		{ example: "100", parse: optional(parseInteger(1_000_000)) },
	),
	RECONCILE_AGENT_SERVERS: variable(
		"comma-separated entries `name=url`: agent servers from which the service fetches what never arrived (see docs/agent-server.md). The name is that of the access key or client certificate with which the agent server posts. If unset, nothing is fetched",
		{ example: "agent-1=http://agent-1.internal:8000", parse: parseAgentServers },
	),
	RECONCILE_KEYS: variable(
		"comma-separated entries `name=key` with the session API keys of these agent servers, if they have any",
		{ example: "agent-1=<key>", mask: maskValues, parse: parseAgentServerKeys },
	),
	FORWARD_PRIVATE: switchVariable(
		"whether endpoints may have private, loopback and link-local addresses (see docs/forwarding.md)",
		"off",
	),
	FORWARD_NATS: variable(
		"comma-separated entries `host:port`: servers of NATS JetStream, to whose subjects endpoints may forward (see docs/forwarding.md)",
		{ example: "nats.internal:4222", parse: parseServers },
	),
	FORWARD_NATS_SUBJECTS: variable(
		"comma-separated entries `subject` or `subject@owner`: to which endpoints may forward, with `*` for one token and `>` for the rest. An endpoint with an owner may use the entries with its owner only, one without an owner all, or any subject if there are no entries",
		{
			example: "agents.>,agents.team-a.>@team-a",
			parse: placesOf(SUBJECTS, "a subject, in which * is one token and > the rest"),
		},
	),
	FORWARD_NATS_TLS: switchVariable("whether connections to NATS must have TLS", "off"),
	FORWARD_NATS_CA_FILE: textVariable(
		"PEM file with the authorities that sign the certificates of NATS. If unset, those of Node.js count",
		"/etc/service/nats-ca.crt",
	),
	FORWARD_NATS_USER: textVariable("user name for NATS", "bridge"),
	FORWARD_NATS_PASSWORD: secretVariable("password of this user", "<password>"),
	FORWARD_NATS_TOKEN: secretVariable("token for NATS, in place of a user", "<token>"),
	FORWARD_NATS_CREDENTIALS_FILE: textVariable(
		"credentials file for NATS, with a JWT and the seed of an NKey, in place of a user",
		"/etc/service/nats.creds",
	),
	FORWARD_KAFKA: variable(
		"comma-separated entries `host:port`: brokers of Kafka, to whose topics endpoints may forward",
		{ example: "kafka.internal:9092", parse: parseServers },
	),
	FORWARD_KAFKA_TOPICS: variable(
		"comma-separated entries `topic` or `topic@owner`: to which endpoints may forward, with the same meaning as those of `FORWARD_NATS_SUBJECTS`",
		{ example: "agents,agents-team-a@team-a", parse: placesOf(TOPIC, "the name of a topic") },
	),
	FORWARD_KAFKA_TLS: switchVariable("whether connections to Kafka must have TLS", "off"),
	FORWARD_KAFKA_CA_FILE: textVariable(
		"PEM file with the authorities that sign the certificates of Kafka. If unset, those of Node.js count",
		"/etc/service/kafka-ca.crt",
	),
	FORWARD_KAFKA_SASL_MECHANISM: variable(
		"`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`: how the service authenticates to Kafka. If unset, it does not",
		{ example: "SCRAM-SHA-512", parse: optional(oneOf(SASL_MECHANISMS)) },
	),
	FORWARD_KAFKA_USER: textVariable("user name for Kafka", "bridge"),
	FORWARD_KAFKA_PASSWORD: secretVariable("password of this user", "<password>"),
	CONSOLE_URL: variable(
		"address at which people open the console; texts for chats link to it. If unset, they have no link",
		{ example: "https://conversations.example/", parse: optional(parseUrl) },
	),
	TRACES_OTLP_ENDPOINT: variable(
		"URL to which runs of conversations are sent as OTLP traces, with `/v1/traces` or another path (see docs/traces.md). If unset, none are sent",
		{ example: "http://127.0.0.1:4318/v1/traces", parse: optional(parseUrl) },
	),
	TRACES_OTLP_HEADERS: variable(
		"comma-separated entries `name=value` with headers of these requests; values are percent-encoded",
		{ example: "Authorization=Bearer%20<key>", mask: maskValues, parse: parseHeaders },
	),
	TRACES_CONTENT: switchVariable(
		"whether these traces have the texts of messages, and arguments and results of tools",
		"off",
	),
	TRACES_DELAY_SECONDS: variable(
		"seconds between the end of a run and the sending of its trace; longer than agent servers hold back events (`flush_delay`, see docs/agent-server.md)",
		{ default: "60", parse: parseInteger(3600) },
	),
	AGENT_SERVER_KEY: secretVariable(
		"session API key of the agent server for the command `reconcile`, if it has one",
		"<key>",
	),
	MCP_ACCESS_KEY: secretVariable("access key of the service for the command `mcp`", "<key>"),
});

export const variables: readonly (VariableText & { readonly name: string })[] = Object.entries(
	environment.shape,
).flatMap(([name, schema]) => {
	const text = texts.get(schema);
	return text === undefined ? [] : [{ name, ...text }];
});

/** Beginnings of names that only variables of this service have. */
const OWN_NAME =
	/^(?:HTTP_ADDR|GRPC_ADDR|DATABASE_UR|RETENTION_|EVENT_|SENDER_|ACCESS_KEY|ENCRYPTION_KEY|MAX_BODY|MAX_INFLIGHT|REFUSED_|ACCEPT_REFUSED|RECONCILE_|FORWARD_|TRACES_OTLP_|DRAIN_|TLS_|CLIENT_CERTIFICATE|CORS_|RATE_LIMIT)/i;
/** Variables that Kubernetes sets for each Service of the namespace, whatever the name of the Service. */
const KUBERNETES_VARIABLE = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/;

/** Returns a message for each name that begins as those of the service do, but is none of them. */
export function unknownNames(names: readonly string[]): string[] {
	// Kubernetes sets RETENTION_PORT together with RETENTION_SERVICE_HOST.
	const isServicePort = (name: string) =>
		name.endsWith("_PORT") && names.includes(name.replace(/PORT$/, "SERVICE_HOST"));
	return names
		.filter((name) => OWN_NAME.test(name) && !Object.hasOwn(environment.shape, name))
		.filter((name) => !KUBERNETES_VARIABLE.test(name) && !isServicePort(name))
		.map((name) => `${name}: is not a variable of the service`);
}
