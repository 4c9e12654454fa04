import { createSecretKey, type KeyObject, randomBytes } from "node:crypto";
import { inspect } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hashKey } from "../src/access/keys.ts";
import { ConfigError, readConfig, type Setting } from "../src/config/config.ts";
import { formatAddress } from "../src/config/parsers.ts";
import { variables } from "../src/config/variables.ts";

/** The documentation has the same defaults (checks/docs.test.ts). */
const settings: readonly Setting[] = variables.map(({ name, default: value }) => ({ name, value, source: "default" }));

const defaults = {
	HTTP_ADDRESS: { host: "127.0.0.1", port: 8080 },
	GRPC_ADDRESS: { host: "127.0.0.1", port: 50051 },
	database: { engine: "sqlite", path: "data/conversations.db" },
	ACCESS_KEYS: [],
	MAX_BODY_BYTES: 16777216,
	MAX_INFLIGHT_BYTES: 134217728,
	BASE_PATH: "",
	MCP: true,
	MCP_ACCESS_KEY: undefined,
	CONSOLE: true,
	LOG_LEVEL: "info",
	LOG_FORMAT: "auto",
	ENCRYPTION_KEY: [],
	EVENT_TIME_ZONE: "UTC",
	SENDER_TIME_ZONES: new Map(),
	RETENTION_DAYS: undefined,
	RETENTION_UPDATES_PER_CONVERSATION: undefined,
	EVENT_RETENTION_DAYS: undefined,
	RETENTION_RULES: [],
	REFUSED_BYTES: 67_108_864,
	ACCEPT_REFUSED: false,
	DRAIN_SECONDS: 25,
	tls: undefined,
	CLIENT_CERTIFICATES: [],
	CORS_ORIGINS: [],
	RATE_LIMIT_PER_KEY: undefined,
	AGENT_SERVER_KEY: undefined,
	reconciled: [],
	FORWARD_PRIVATE: false,
	forwardNats: undefined,
	forwardKafka: undefined,
	consoleUrl: undefined,
	traces: undefined,
	PGPASSWORD: undefined,
	POSTGRES_CONNECTIONS: 8,
	POSTGRES_STATEMENT_TIMEOUT: 10,
	POSTGRES_NOTIFY: true,
	TLS_CERT_FILE: "",
	TLS_KEY_FILE: "",
	TLS_CLIENT_CA_FILE: "",
	RECONCILE_AGENT_SERVERS: new Map(),
	FORWARD_NATS: [],
	FORWARD_NATS_SUBJECTS: [],
	FORWARD_NATS_TLS: false,
	FORWARD_NATS_CA_FILE: "",
	FORWARD_NATS_USER: "",
	FORWARD_NATS_PASSWORD: undefined,
	FORWARD_NATS_TOKEN: undefined,
	FORWARD_NATS_CREDENTIALS_FILE: "",
	FORWARD_KAFKA: [],
	FORWARD_KAFKA_TOPICS: [],
	FORWARD_KAFKA_TLS: false,
	FORWARD_KAFKA_CA_FILE: "",
	FORWARD_KAFKA_SASL_MECHANISM: undefined,
	FORWARD_KAFKA_USER: "",
	FORWARD_KAFKA_PASSWORD: undefined,
	CONSOLE_URL: undefined,
	TRACES_OTLP_ENDPOINT: undefined,
	TRACES_CONTENT: false,
	TRACES_DELAY_SECONDS: 60,
	otel: { traces: false, metrics: false, metricInterval: 60_000, sampler: { parentBased: true, share: 1 } },
	settings,
};

/** Access keys of the minimum length. */
const [key1, key2, key3] = ["0123456789abcde1", "0123456789abcde2", "0123456789abcde3"];
/** Valid encryption keys. */
const encryptionKey1 = randomBytes(32).toString("base64");
const encryptionKey2 = randomBytes(32).toString("base64");

/** Returns the mistakes that readConfig reports for an environment, a line each; none if it is valid. */
function mistakes(env: Record<string, string>): readonly string[] {
	try {
		readConfig(env);
		return [];
	} catch (error) {
		if (!(error instanceof ConfigError)) {
			throw error;
		}
		return error.message.split("\n  ").slice(1);
	}
}

const toBase64 = (key: KeyObject) => key.export().toString("base64");

describe("readConfig", () => {
	test("returns the defaults if the variables are absent or blank", () => {
		expect(readConfig({})).toEqual(defaults);
		const blank = ["HTTP_ADDRESS", "DATABASE_URL", "ACCESS_KEYS", "BASE_PATH", "ENCRYPTION_KEY", "RETENTION_DAYS"];
		expect(readConfig(Object.fromEntries(blank.map((name) => [name, " "])))).toEqual(defaults);
		expect(readConfig({ PATH: "/bin", HTTP_ADDRESS: undefined })).toEqual(defaults);
	});

	test("reads every variable", () => {
		const env = {
			HTTP_ADDRESS: "[::1]:0",
			GRPC_ADDRESS: "grpc.example.org:65535",
			DATABASE_URL: "postgres://bridge:canary@db1,db2:6432/bridge?sslmode=require",
			PGPASSWORD: "canary",
			POSTGRES_CONNECTIONS: "20",
			POSTGRES_STATEMENT_TIMEOUT: "30",
			POSTGRES_NOTIFY: "off",
			ACCESS_KEYS: `sender:${key1}, reader:${key2}:read+secrets`,
			MAX_BODY_BYTES: "1024",
			MAX_INFLIGHT_BYTES: "2048",
			BASE_PATH: "/bridge/v2",
			CONSOLE: "off",
			MCP: "off",
			LOG_LEVEL: "silent",
			LOG_FORMAT: "pretty",
			ENCRYPTION_KEY: `${encryptionKey1},${encryptionKey2}`,
			EVENT_TIME_ZONE: "europe/berlin",
			SENDER_TIME_ZONES: "agent-1=america/new_york, a=b=Asia/Tokyo",
			RETENTION_DAYS: "0.5",
			RETENTION_UPDATES_PER_CONVERSATION: "100",
			EVENT_RETENTION_DAYS: "7",
			RETENTION_RULES: "owner:team-a=30, tag:scratch=0.5,tag:env=a=b=14",
			REFUSED_BYTES: "1000000",
			ACCEPT_REFUSED: "on",
			DRAIN_SECONDS: "3",
			TLS_CERT_FILE: "c.pem",
			TLS_KEY_FILE: "k.pem",
			TLS_CLIENT_CA_FILE: "ca.pem",
			CLIENT_CERTIFICATES: "agent-1:ingest, spiffe://corp/dashboard:read+secrets",
			CORS_ORIGINS: "https://a.example, http://localhost:3000,*",
			RATE_LIMIT_PER_KEY: "50",
			RECONCILE_AGENT_SERVERS: "agent-1=http://agent-1:8000/base, agent-2=https://agent-2.example",
			RECONCILE_KEYS: "agent-1=canary=canary",
			FORWARD_PRIVATE: "on",
			FORWARD_NATS: "nats-1:4222, nats-2:4222",
			FORWARD_NATS_SUBJECTS: "agents.>, red.*.a@red,>",
			FORWARD_NATS_TLS: "on",
			FORWARD_NATS_CA_FILE: "nats.pem",
			FORWARD_NATS_USER: "bridge",
			FORWARD_NATS_PASSWORD: "canary",
			FORWARD_KAFKA: "kafka.internal:9092",
			FORWARD_KAFKA_TOPICS: "agents,red.a@red",
			FORWARD_KAFKA_TLS: "on",
			FORWARD_KAFKA_CA_FILE: "kafka.pem",
			FORWARD_KAFKA_SASL_MECHANISM: "SCRAM-SHA-512",
			FORWARD_KAFKA_USER: "bridge",
			FORWARD_KAFKA_PASSWORD: "canary",
			CONSOLE_URL: "https://console.example/base",
			TRACES_OTLP_ENDPOINT: "https://traces.example/v1/traces",
			TRACES_OTLP_HEADERS: "Authorization=Basic%20canary, x-scope=a=b",
			TRACES_CONTENT: "on",
			TRACES_DELAY_SECONDS: "5",
			AGENT_SERVER_KEY: "canary",
			MCP_ACCESS_KEY: "canary",
		};
		const { ENCRYPTION_KEY, database, AGENT_SERVER_KEY, MCP_ACCESS_KEY, reconciled, traces, ...config } =
			readConfig(env);
		expect(AGENT_SERVER_KEY?.export().toString()).toBe("canary");
		expect(MCP_ACCESS_KEY?.export().toString()).toBe("canary");
		expect(reconciled.map(({ sender, url, key }) => [sender, url.href, key?.export().toString()])).toEqual([
			["agent-1", "http://agent-1:8000/base", "canary=canary"],
			["agent-2", "https://agent-2.example/", undefined],
		]);
		expect(traces).toEqual({
			...{ url: "https://traces.example/v1/traces", content: true, delay: 5000 },
			headers: new Map([
				["Authorization", createSecretKey(Buffer.from("Basic canary"))],
				["x-scope", createSecretKey(Buffer.from("a=b"))],
			]),
		});
		expect(inspect(traces, { depth: null })).not.toContain("canary");
		const masked = {
			...env,
			DATABASE_URL: "postgres://bridge:**********@db1,db2:6432/bridge?sslmode=require",
			PGPASSWORD: "**********",
			ACCESS_KEYS: "sender:**********,reader:**********:read+secrets",
			ENCRYPTION_KEY: "**********,**********",
			RECONCILE_KEYS: "agent-1=**********",
			FORWARD_NATS_PASSWORD: "**********",
			FORWARD_KAFKA_PASSWORD: "**********",
			TRACES_OTLP_HEADERS: "Authorization=**********,x-scope=**********",
			AGENT_SERVER_KEY: "**********",
			MCP_ACCESS_KEY: "**********",
		};
		const placeOf = (name: string) => defaults.settings.findIndex((setting) => setting.name === name);
		expect(config).toMatchObject({
			HTTP_ADDRESS: { host: "::1", port: 0 },
			GRPC_ADDRESS: { host: "grpc.example.org", port: 65535 },
			ACCESS_KEYS: [
				{ name: "sender", scopes: new Set(["ingest", "read"]), hash: hashKey(key1) },
				{ name: "reader", scopes: new Set(["read", "secrets"]), hash: hashKey(key2) },
			],
			MAX_BODY_BYTES: 1024,
			MAX_INFLIGHT_BYTES: 2048,
			BASE_PATH: "/bridge/v2",
			CONSOLE: false,
			MCP: false,
			LOG_LEVEL: "silent",
			LOG_FORMAT: "pretty",
			EVENT_TIME_ZONE: "Europe/Berlin",
			SENDER_TIME_ZONES: new Map([
				["agent-1", "America/New_York"],
				["a=b", "Asia/Tokyo"],
			]),
			RETENTION_DAYS: 0.5,
			RETENTION_UPDATES_PER_CONVERSATION: 100,
			EVENT_RETENTION_DAYS: 7,
			RETENTION_RULES: [
				{ name: "owner:team-a", filter: { owner: "team-a" }, days: 30 },
				{ name: "tag:scratch", filter: { tagKey: "scratch" }, days: 0.5 },
				{ name: "tag:env=a=b", filter: { tags: { env: "a=b" } }, days: 14 },
			],
			REFUSED_BYTES: 1_000_000,
			ACCEPT_REFUSED: true,
			DRAIN_SECONDS: 3,
			tls: { cert: "c.pem", key: "k.pem", clientCa: "ca.pem" },
			CLIENT_CERTIFICATES: [
				{ name: "agent-1", scopes: new Set(["ingest"]) },
				{ name: "spiffe://corp/dashboard", scopes: new Set(["read", "secrets"]) },
			],
			CORS_ORIGINS: ["https://a.example", "http://localhost:3000", "*"],
			RATE_LIMIT_PER_KEY: 50,
			FORWARD_PRIVATE: true,
			forwardNats: {
				servers: ["nats-1:4222", "nats-2:4222"],
				places: [
					{ pattern: "agents.>", owner: undefined },
					{ pattern: "red.*.a", owner: "red" },
					{ pattern: ">", owner: undefined },
				],
				tls: { caFile: "nats.pem" },
				login: { user: "bridge", password: createSecretKey(Buffer.from("canary")) },
			},
			forwardKafka: {
				servers: ["kafka.internal:9092"],
				places: [
					{ pattern: "agents", owner: undefined },
					{ pattern: "red.a", owner: "red" },
				],
				tls: { caFile: "kafka.pem" },
				sasl: { mechanism: "SCRAM-SHA-512", user: "bridge", password: createSecretKey(Buffer.from("canary")) },
			},
			consoleUrl: "https://console.example/base/",
			otel: defaults.otel,
			// Of the logins to NATS, only one can be set.
			settings: Object.entries({ ...masked, FORWARD_NATS_TOKEN: "", FORWARD_NATS_CREDENTIALS_FILE: "" })
				.map(([name, value]) => ({ name, value, source: value === "" ? "default" : "environment" }))
				.sort((a, b) => placeOf(a.name) - placeOf(b.name)),
		});
		expect(ENCRYPTION_KEY.map(toBase64)).toEqual([encryptionKey1, encryptionKey2]);
		expect(database).toEqual({
			engine: "postgres",
			hosts: [
				{ host: "db1", port: 5432 },
				{ host: "db2", port: 6432 },
			],
			user: "bridge",
			password: createSecretKey(Buffer.from("canary")),
			database: "bridge",
			tls: { mode: "require", rootCert: undefined, cert: undefined, key: undefined },
			connectTimeout: 5000,
			applicationName: "conversation-update-webhook-service",
			connections: 20,
			statementTimeout: 30_000,
			lockTimeout: 15_000,
			notify: false,
		});
		expect(inspect([database, config], { depth: null })).not.toContain("canary");
	});

	test("takes the password of PostgreSQL from the URL, or else from PGPASSWORD", () => {
		const password = (url: string, PGPASSWORD = "") => {
			const { database } = readConfig({ DATABASE_URL: url, PGPASSWORD });
			return database.engine === "postgres" ? database.password?.export().toString() : "none";
		};
		expect(password("postgres://u:a@db/d", "b")).toBe("a");
		expect(password("postgres://u@db/d", "b")).toBe("b");
		expect(password("postgres://u@db/d")).toBe(undefined);
	});

	test("reports all mistakes in one error", () => {
		const env = {
			HTTP_ADDRESS: "8080",
			GRPC_ADDRESS: "bad_host:65536",
			DATABASE_URL: "postgres://user:canary@db/x?sslmode=canary",
			POSTGRES_CONNECTIONS: "0",
			POSTGRES_STATEMENT_TIMEOUT: "-1",
			POSTGRES_NOTIFY: "no",
			ACCESS_KEYS: "canary,a:canary-long-enough:admin,b:canary",
			MAX_BODY_BYTES: "16 MiB",
			MAX_INFLIGHT_BYTES: "x",
			BASE_PATH: "bridge/",
			LOG_LEVEL: "loud",
			ENCRYPTION_KEY: "canary",
			EVENT_TIME_ZONE: "Mars/Olympus",
			RETENTION_DAYS: "0",
			RETENTION_UPDATES_PER_CONVERSATION: "1.5",
			EVENT_RETENTION_DAYS: "-1",
			RETENTION_RULES: "owner:a=1,owner:a=2,tag:a,owner:a b=1,tag:=a=1,tag:a=x,status:idle=1,tag:b=0",
			DRAIN_SECONDS: "0",
			TLS_KEY_FILE: "k.pem",
			CLIENT_CERTIFICATES: "a",
			CORS_ORIGINS: "a.example",
			RATE_LIMIT_PER_KEY: "0",
			TLS_CERTIFICATE: "c.pem",
		};
		const lines = [
			"HTTP_ADDRESS: must be host:port, with an IPv6 host in brackets (example: HTTP_ADDRESS=127.0.0.1:8080 or [::1]:8080)",
			"GRPC_ADDRESS: has a host that is neither a host name nor an IP address; use 0.0.0.0 or [::] for every interface (example: GRPC_ADDRESS=127.0.0.1:50051 or [::1]:50051)",
			"GRPC_ADDRESS: has a port above 65535 (example: GRPC_ADDRESS=127.0.0.1:50051 or [::1]:50051)",
			"DATABASE_URL: has an sslmode that is not one of disable, prefer, require, verify-ca, verify-full (example: DATABASE_URL=sqlite:data/conversations.db)",
			"POSTGRES_CONNECTIONS: must be a whole number from 1 to 1000 (example: POSTGRES_CONNECTIONS=8)",
			"POSTGRES_STATEMENT_TIMEOUT: must be a whole number from 1 to 3600 (example: POSTGRES_STATEMENT_TIMEOUT=10)",
			"POSTGRES_NOTIFY: must be on or off (example: POSTGRES_NOTIFY=on)",
			"ACCESS_KEYS: entry 1 must have a key of visible ASCII characters after the name and a colon (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)",
			"ACCESS_KEYS: entry 2 has a scope that is not one of ingest, read, secrets, metrics, keys, erase, forward, pause, score (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)",
			"ACCESS_KEYS: entry 3 has a key that is shorter than 16 characters (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)",
			"MAX_BODY_BYTES: must be a whole number from 1 to 536870888 (example: MAX_BODY_BYTES=16777216)",
			"MAX_INFLIGHT_BYTES: must be a whole number from 1 to 1099511627776 (example: MAX_INFLIGHT_BYTES=134217728)",
			"BASE_PATH: must be a path that begins with a slash and does not end with one (example: BASE_PATH=/bridge)",
			"LOG_LEVEL: must be one of trace, debug, info, warn, error, fatal, silent (example: LOG_LEVEL=info)",
			"ENCRYPTION_KEY: entry 1 must be exactly 32 bytes in base64 (example: ENCRYPTION_KEY=$(openssl rand -base64 32))",
			"EVENT_TIME_ZONE: must be UTC or the name of a time zone in the IANA database (example: EVENT_TIME_ZONE=Europe/Berlin)",
			"RETENTION_DAYS: must be from an hour (0.0417) to 36525 days (example: RETENTION_DAYS=30)",
			"RETENTION_UPDATES_PER_CONVERSATION: must be a whole number from 1 to 1000000000 (example: RETENTION_UPDATES_PER_CONVERSATION=1000)",
			"EVENT_RETENTION_DAYS: must be a number of days (example: EVENT_RETENTION_DAYS=90)",
			...[
				"entry 2 is for the same as entry 1",
				"entry 3 must be owner:NAME=days, tag:KEY=days or tag:KEY=VALUE=days",
				"entry 4 has an owner that is not 1 to 64 letters, digits, dots, dashes or underscores",
				"entry 5 must have the key of a tag",
				"entry 6 must be a number of days",
				"entry 7 must be owner:NAME=days, tag:KEY=days or tag:KEY=VALUE=days",
				"entry 8 must be from an hour (0.0417) to 36525 days",
			].map(
				(mistake) =>
					`RETENTION_RULES: ${mistake} (example: RETENTION_RULES=owner:team-a=30,tag:scratch=7,tag:env=dev=14)`,
			),
			"DRAIN_SECONDS: must be a whole number from 1 to 3600 (example: DRAIN_SECONDS=25)",
			"CLIENT_CERTIFICATES: entry 1 must be the name of a certificate, a colon and scopes (example: CLIENT_CERTIFICATES=agent-server:ingest,dashboard:read+secrets)",
			"CORS_ORIGINS: entry 1 must be * or an origin such as https://dashboard.example, without a slash at its end (example: CORS_ORIGINS=https://dashboard.example)",
			"RATE_LIMIT_PER_KEY: must be a whole number from 1 to 1000000 (example: RATE_LIMIT_PER_KEY=100)",
			"TLS_KEY_FILE: needs TLS_CERT_FILE",
			"CLIENT_CERTIFICATES: needs TLS_CLIENT_CA_FILE",
			"TLS_CERTIFICATE: is not a variable of the service",
		];
		expect(mistakes(env)).toEqual(lines);
		expect(() => readConfig(env)).toThrow(["The configuration is not valid:", ...lines].join("\n  "));
	});
});

describe("HTTP_ADDRESS", () => {
	test.each(["0.0.0.0:80", "localhost:1", "a-b.example.org.:65535", "[::]:0", "[fe80::1]:8080"])(
		"%s is accepted",
		(text) => {
			expect(formatAddress(readConfig({ HTTP_ADDRESS: text }).HTTP_ADDRESS)).toBe(text);
		},
	);

	test.each([
		":8080",
		"localhost",
		"localhost:x",
		"localhost:-1",
		"::1:8080",
		"[localhost]:80",
		"[127.0.0.1]:80",
		"[::1]",
		"127.0.0.256:80",
		"1.2.3:80",
		"-a:80",
		"a b:80",
		"http://a:80",
		"a:80/",
	])("%s is refused", (text) => {
		expect(mistakes({ HTTP_ADDRESS: text })).toHaveLength(1);
	});
});

describe("DATABASE_URL", () => {
	test.each([
		["sqlite:x.db", "x.db"],
		["sqlite:./a b/x.db", "./a b/x.db"],
		["sqlite:/x.db", "/x.db"],
	])("%s names a SQLite file", (text, path) => {
		expect(readConfig({ DATABASE_URL: text }).database).toEqual({ engine: "sqlite", path });
	});

	test.each(["sqlite", "x.db", "sqlite:", "sqlite::memory:", "sqlite://x.db", "mysql:x"])("%s is refused", (text) => {
		expect(mistakes({ DATABASE_URL: text })).toHaveLength(1);
	});
});

describe("ACCESS_KEYS", () => {
	const UNKNOWN_SCOPE =
		"entry 1 has a scope that is not one of ingest, read, secrets, metrics, keys, erase, forward, pause, score";
	const example = " (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)";

	test.each([
		["a:", "entry 1 must have a key of visible ASCII characters after the name and a colon"],
		[`:${key1}`, "entry 1 must begin with a name of visible ASCII characters"],
		["a:schlüssel", "entry 1 must have a key of visible ASCII characters after the name and a colon"],
		[`a:${key1.slice(1)}`, "entry 1 has a key that is shorter than 16 characters"],
		[`a:${key1}:read:x`, "entry 1 has more than three parts; a key must not contain a colon"],
		[`a:${key1}:`, UNKNOWN_SCOPE],
		[`a:${key1}:read+`, UNKNOWN_SCOPE],
		[`a:${key1}:Read`, UNKNOWN_SCOPE],
		[`a@team-a:${key1}:read`, "entry 1 has an @ in its name; an owner follows the scopes, as in name:key:read@owner"],
		[`a:${key1},b:${key2},a:${key3}`, "entry 3 has the same name as entry 1"],
		[`a:${key1},b:${key1}`, "entry 2 has the same key as entry 1"],
	])("%s is refused: %s", (text, message) => {
		expect(mistakes({ ACCESS_KEYS: text })).toEqual([`ACCESS_KEYS: ${message}${example}`]);
	});

	test("a trailing comma is refused, because it leaves an empty entry", () => {
		expect(mistakes({ ACCESS_KEYS: `a:${key1},` })).toEqual([
			`ACCESS_KEYS: entry 2 must begin with a name of visible ASCII characters${example}`,
			`ACCESS_KEYS: entry 2 must have a key of visible ASCII characters after the name and a colon${example}`,
		]);
	});
});

test.each(["/", "a", "/a/", "//a", "/a//b", "/a b", "/a?b", "/a#b", "/..", "/a/./b", "/ä"])(
	"the base path %s is refused",
	(text) => {
		expect(mistakes({ BASE_PATH: text })).toHaveLength(1);
	},
);

test.each(["/a", "/a/b.c", "/...", "/.well-known", "/a%20b", "/~x:y@z"])("the base path %s is accepted", (text) => {
	expect(readConfig({ BASE_PATH: text }).BASE_PATH).toBe(text);
});

test("MAX_INFLIGHT_BYTES must be at least twice MAX_BODY_BYTES", () => {
	expect(readConfig({ MAX_BODY_BYTES: "1000", MAX_INFLIGHT_BYTES: "2000" }).MAX_INFLIGHT_BYTES).toBe(2000);
	const expected = ["MAX_INFLIGHT_BYTES: must be at least twice MAX_BODY_BYTES"];
	expect(mistakes({ MAX_BODY_BYTES: "1000", MAX_INFLIGHT_BYTES: "1999" })).toEqual(expected);
	expect(mistakes({ MAX_BODY_BYTES: "100000000" })).toEqual(expected);
});

test.each(["0", "-1", "1e3", "1.0", "0x10", "1000000001"])("%s is refused as a number of updates or bytes", (text) => {
	expect(mistakes({ RETENTION_UPDATES_PER_CONVERSATION: text, MAX_BODY_BYTES: text })).toHaveLength(2);
});

test("RETENTION_UPDATES_PER_CONVERSATION accepts its maximum", () => {
	expect(readConfig({ RETENTION_UPDATES_PER_CONVERSATION: "1000000000" })).toMatchObject({
		RETENTION_UPDATES_PER_CONVERSATION: 1_000_000_000,
	});
});

test.each(["0.0417", "1", "36525"])("%s is accepted as a number of days", (text) => {
	const { RETENTION_DAYS: retentionDays, EVENT_RETENTION_DAYS: eventRetentionDays } = readConfig({
		RETENTION_DAYS: text,
		EVENT_RETENTION_DAYS: text,
	});
	expect([retentionDays, eventRetentionDays]).toEqual([Number(text), Number(text)]);
});

test.each(["0.0", "0.0416", "36525.1", "-1", "1e3", "Infinity", ".5", "9".repeat(400)])(
	"%s is refused as a number of days",
	(text) => {
		expect(mistakes({ RETENTION_DAYS: text, EVENT_RETENTION_DAYS: text })).toHaveLength(2);
	},
);

test.each([
	randomBytes(31).toString("base64"),
	randomBytes(33).toString("base64"),
	randomBytes(32).toString("hex"),
	`${encryptionKey1},`,
	`${encryptionKey1.slice(0, -1)}!`,
	`${"A".repeat(42)}B=`,
])("the encryption key %s is refused", (text) => {
	expect(mistakes({ ENCRYPTION_KEY: text })).toHaveLength(1);
});

test.each(["UTC", "Etc/UTC", "utc"])("the time zone %s is read as UTC", (text) => {
	expect(readConfig({ EVENT_TIME_ZONE: text }).EVENT_TIME_ZONE).toBe("UTC");
});

test.each(["+02:00", "Local", "Europe", "Europe/Berlin,UTC", "Europe/Berlin\0"])("%j is no time zone", (text) => {
	expect(mistakes({ EVENT_TIME_ZONE: text })).toHaveLength(1);
});

test.each([
	["agent-1", "entry 1 must be the name of a key or certificate, an equal sign and a time zone"],
	["=UTC", "entry 1 must be the name of a key or certificate, an equal sign and a time zone"],
	["a=UTC,b=Nowhere", "entry 2 must be UTC or the name of a time zone in the IANA database"],
	["a=UTC,a=Asia/Tokyo", "entry 2 has the same name as entry 1"],
	["a@team-a=UTC", "entry 1 has an @ in its name; a sender has the name of a key or certificate, without its owner"],
])("the time zones of senders %j are refused", (text, mistake) => {
	expect(mistakes({ SENDER_TIME_ZONES: text })).toEqual([expect.stringContaining(mistake)]);
});

describe("a configuration in which variables do not fit", () => {
	const tls = { TLS_CERT_FILE: "c.pem", TLS_KEY_FILE: "k.pem", TLS_CLIENT_CA_FILE: "ca.pem" };
	const [nats, kafka] = [{ FORWARD_NATS: "a:1" }, { FORWARD_KAFKA: "a:1" }];

	test.each<[Record<string, string>, string]>([
		[{ TLS_CERT_FILE: "c.pem" }, "TLS_CERT_FILE: needs TLS_KEY_FILE"],
		[{ TLS_CLIENT_CA_FILE: "ca.pem" }, "TLS_CLIENT_CA_FILE: needs TLS_CERT_FILE"],
		[
			{ ...tls, CLIENT_CERTIFICATES: "a@team-a:read" },
			"CLIENT_CERTIFICATES: entry 1 has an @ in its name; an owner follows the scopes, as in name:read@owner",
		],
		[{ ...tls, CLIENT_CERTIFICATES: "a:write" }, "CLIENT_CERTIFICATES: entry 1 has a scope"],
		[{ ...tls, CLIENT_CERTIFICATES: "a:read,a:ingest" }, "CLIENT_CERTIFICATES: entry 2 has the same name"],
		[{ CORS_ORIGINS: "https://a.example/" }, "CORS_ORIGINS: entry 1 must be"],
		[{ TRACES_OTLP_ENDPOINT: "https://h/v1/traces?key=canary" }, "TRACES_OTLP_ENDPOINT: must be"],
		[{ TRACES_OTLP_HEADERS: "a=b" }, "TRACES_OTLP_HEADERS: needs TRACES_OTLP_ENDPOINT"],
		[
			{ TRACES_OTLP_ENDPOINT: "https://h/", TRACES_OTLP_HEADERS: "a=%canary" },
			"TRACES_OTLP_HEADERS: entry 1 must have the name of a header",
		],
		[{ RECONCILE_AGENT_SERVERS: "agent-1" }, "entry 1 must begin with a name"],
		[
			{ RECONCILE_AGENT_SERVERS: "agent-1@team-a=http://host" },
			"RECONCILE_AGENT_SERVERS: entry 1 has an @ in its name; a sender has the name of a key or certificate",
		],
		[
			{ RECONCILE_AGENT_SERVERS: "agent-1=http://u:canary@host" },
			"RECONCILE_AGENT_SERVERS: entry 1 must have an http or https URL without user name",
		],
		[{ RECONCILE_KEYS: "agent-1=canary" }, 'RECONCILE_KEYS: RECONCILE_AGENT_SERVERS has no entry "agent-1"'],
		[{ ACCEPT_REFUSED: "on" }, "ACCEPT_REFUSED: needs ENCRYPTION_KEY"],
		[{ FORWARD_NATS_SUBJECTS: "a" }, "FORWARD_NATS_SUBJECTS: needs FORWARD_NATS"],
		[{ FORWARD_NATS: "a:1,b" }, "FORWARD_NATS: entry 2 must be a host, a colon and a port"],
		[
			{ ...nats, FORWARD_NATS_SUBJECTS: "a,b.>.c@red" },
			"FORWARD_NATS_SUBJECTS: entry 2 must begin with a subject, in which * is one token and > the rest",
		],
		[{ ...nats, FORWARD_NATS_SUBJECTS: "a*" }, "FORWARD_NATS_SUBJECTS: entry 1 must begin with a subject"],
		[
			{ ...nats, FORWARD_NATS_TOKEN: "canary", FORWARD_NATS_CREDENTIALS_FILE: "a" },
			"FORWARD_NATS_TOKEN: excludes FORWARD_NATS_CREDENTIALS_FILE",
		],
		[{ ...nats, FORWARD_NATS_USER: "a" }, "FORWARD_NATS_USER: needs FORWARD_NATS_PASSWORD"],
		[
			{ ...nats, FORWARD_NATS_TLS: "off", FORWARD_NATS_CA_FILE: "a" },
			"FORWARD_NATS_CA_FILE: needs FORWARD_NATS_TLS=on",
		],
		[
			{ FORWARD_NATS: "a:1,10.0.0.1:1", FORWARD_NATS_TLS: "on" },
			"FORWARD_NATS: must have names of hosts with FORWARD_NATS_TLS",
		],
		[
			{ ...kafka, FORWARD_KAFKA_TOPICS: "red.*@red" },
			"FORWARD_KAFKA_TOPICS: entry 1 must begin with the name of a topic",
		],
		[
			{ ...kafka, FORWARD_KAFKA_TOPICS: "red@red@blue" },
			"FORWARD_KAFKA_TOPICS: entry 1 has an owner that is not 1 to 64 letters",
		],
		[
			{ ...kafka, FORWARD_KAFKA_SASL_MECHANISM: "GSSAPI", FORWARD_KAFKA_USER: "a", FORWARD_KAFKA_PASSWORD: "canary" },
			"FORWARD_KAFKA_SASL_MECHANISM: must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
		],
	])("%j is refused: %s", (env, mistake) => {
		expect(mistakes(env)).toEqual([expect.stringContaining(mistake)]);
	});
});

describe("an unknown variable whose name begins as those of the service", () => {
	test.each([
		"http_address",
		"GRPC_ADDRES",
		"ACCESS_KEY_FILE",
		"ENCRYPTION_KEYS",
		"MAX_BODY_SIZE",
		"TLS_CLIENT_CA",
		"RATE_LIMIT",
	])("%s is refused", (name) => {
		expect(mistakes({ [name]: "" })).toEqual([`${name}: is not a variable of the service`]);
	});

	test("that systemd, Kubernetes, npm or a library sets is ignored", () => {
		const service = ["SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"];
		const names = [
			...["KUBERNETES", "RETENTION_API", "ACCESS_KEYS", "DATABASE", "HTTP", "GRPC"].flatMap((prefix) =>
				service.map((end) => `${prefix}_${end}`),
			),
			...["INVOCATION_ID", "NOTIFY_SOCKET", "STATE_DIRECTORY", "LOGS_DIRECTORY", "HTTP_PROXY", "http_proxy"],
			...["GRPC_VERBOSITY", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "SSL_CERT_FILE", "PORT", "HOST", "NODE_OPTIONS"],
			...["PATH", "HOME", "MVP", "MCP_TIMEOUT", "LOGNAME", "npm_config_loglevel", ""],
		];
		expect(readConfig(Object.fromEntries(names.map((name) => [name, "x"])))).toEqual(defaults);
	});
});

test("neither a configuration nor the mistakes in one contain a secret", () => {
	const secret = fc.stringMatching(/^[!-+\--9;-~]{16,40}$/);
	fc.assert(
		fc.property(
			secret,
			fc.constantFrom("", "a:", "a:b:", `a:${key1}:`),
			fc.constantFrom("", ":x", ",", ":read", " y"),
			(key, before, after) => {
				const text = before + key + after;
				const env = { ACCESS_KEYS: text, ENCRYPTION_KEY: text, DATABASE_URL: `postgres://u:${key}@db` };
				expect(mistakes(env).join()).not.toContain(key);
				const config = readConfig({ ACCESS_KEYS: `name:${key}`, ENCRYPTION_KEY: encryptionKey1 });
				const shown = inspect(config, { depth: null }) + JSON.stringify(config);
				expect(shown).not.toContain(key);
				expect(shown).not.toContain(encryptionKey1);
			},
		),
	);
});
