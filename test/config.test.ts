import { type KeyObject, randomBytes } from "node:crypto";
import { inspect } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { hashKey } from "../src/access/keys.ts";
import { type Config, ConfigError, describeConfig, formatAddress, readConfig } from "../src/config.ts";

const defaults: Config = {
	httpAddress: { host: "127.0.0.1", port: 8080 },
	grpcAddress: { host: "127.0.0.1", port: 50051 },
	database: { engine: "sqlite", path: "data/conversations.db" },
	accessKeys: [],
	maxBodyBytes: 16777216,
	basePath: "",
	logLevel: "info",
	encryptionKeys: [],
	retentionDays: undefined,
	retentionUpdatesPerConversation: undefined,
	drainSeconds: 25,
	tls: undefined,
	clientCertificates: [],
	corsOrigins: [],
	rateLimitPerKey: undefined,
};

const first = randomBytes(32).toString("base64");
const second = randomBytes(32).toString("base64");

/** The lines that report what is wrong with an environment. */
function mistakes(env: Record<string, string>): readonly string[] {
	try {
		readConfig(env);
		return [];
	} catch (error) {
		if (!(error instanceof ConfigError)) {
			throw error;
		}
		return error.mistakes;
	}
}

const bytes = (key: KeyObject) => key.export().toString("base64");

describe("readConfig", () => {
	test("gives the defaults for an environment that says nothing", () => {
		expect(readConfig({})).toEqual(defaults);
		const blank = ["HTTP_ADDRESS", "DATABASE_URL", "ACCESS_KEYS", "BASE_PATH", "ENCRYPTION_KEY", "RETENTION_DAYS"];
		expect(readConfig(Object.fromEntries(blank.map((name) => [name, " "])))).toEqual(defaults);
		expect(readConfig({ PATH: "/bin", HTTP_ADDRESS: undefined })).toEqual(defaults);
	});

	test("reads every variable", () => {
		const { encryptionKeys, ...config } = readConfig({
			HTTP_ADDRESS: "[::1]:0",
			GRPC_ADDRESS: "grpc.example.org:65535",
			DATABASE_URL: "sqlite:/var/lib/bridge/store.db",
			ACCESS_KEYS: "sender:key-1, reader:key-2:read+secrets",
			MAX_BODY_BYTES: "1024",
			BASE_PATH: "/bridge/v2",
			LOG_LEVEL: "silent",
			ENCRYPTION_KEY: `${first},${second}`,
			RETENTION_DAYS: "0.5",
			RETENTION_UPDATES_PER_CONVERSATION: "100",
		});
		expect(config).toEqual({
			...defaults,
			encryptionKeys: undefined,
			httpAddress: { host: "::1", port: 0 },
			grpcAddress: { host: "grpc.example.org", port: 65535 },
			database: { engine: "sqlite", path: "/var/lib/bridge/store.db" },
			accessKeys: [
				{ name: "sender", scopes: new Set(["ingest", "read"]), hash: hashKey("key-1") },
				{ name: "reader", scopes: new Set(["read", "secrets"]), hash: hashKey("key-2") },
			],
			maxBodyBytes: 1024,
			basePath: "/bridge/v2",
			logLevel: "silent",
			retentionDays: 0.5,
			retentionUpdatesPerConversation: 100,
		});
		expect(encryptionKeys.map(bytes)).toEqual([first, second]);
	});

	test("is frozen", () => {
		const config = readConfig({ ACCESS_KEYS: "a:b" });
		for (const part of [config, config.httpAddress, config.database, config.accessKeys, config.accessKeys[0]]) {
			expect(Object.isFrozen(part)).toBe(true);
		}
	});

	test("lists every mistake at once, each with an example", () => {
		const env = {
			HTTP_ADDRESS: "8080",
			GRPC_ADDRESS: "bad_host:65536",
			DATABASE_URL: "postgres://user:canary@db/x",
			ACCESS_KEYS: "canary,a:canary:admin",
			MAX_BODY_BYTES: "16 MiB",
			BASE_PATH: "bridge/",
			LOG_LEVEL: "loud",
			ENCRYPTION_KEY: "canary",
			RETENTION_DAYS: "0",
			RETENTION_UPDATES_PER_CONVERSATION: "1.5",
		};
		const lines = [
			"HTTP_ADDRESS: must be host:port, with an IPv6 host in brackets (example: HTTP_ADDRESS=127.0.0.1:8080 or [::1]:8080)",
			"GRPC_ADDRESS: has a host that is neither a host name nor an IP address; use 0.0.0.0 or [::] for every interface (example: GRPC_ADDRESS=127.0.0.1:50051 or [::1]:50051)",
			"GRPC_ADDRESS: has a port above 65535 (example: GRPC_ADDRESS=127.0.0.1:50051 or [::1]:50051)",
			'DATABASE_URL: names the engine "postgres", and only sqlite is there (example: DATABASE_URL=sqlite:data/conversations.db)',
			"ACCESS_KEYS: entry 1 must have a key of visible ASCII characters after the name and a colon (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)",
			"ACCESS_KEYS: entry 2 has a scope that is not one of ingest, read, secrets (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)",
			"MAX_BODY_BYTES: must be a whole number from 1 to 536870888 (example: MAX_BODY_BYTES=16777216)",
			"BASE_PATH: must be a path that begins with a slash and does not end with one (example: BASE_PATH=/bridge)",
			"LOG_LEVEL: must be one of trace, debug, info, warn, error, fatal, silent (example: LOG_LEVEL=info)",
			"ENCRYPTION_KEY: entry 1 must be exactly 32 bytes in base64 (example: ENCRYPTION_KEY=$(openssl rand -base64 32))",
			"RETENTION_DAYS: must be a number of days above 0 (example: RETENTION_DAYS=30)",
			"RETENTION_UPDATES_PER_CONVERSATION: must be a whole number from 1 to 9007199254740991 (example: RETENTION_UPDATES_PER_CONVERSATION=1000)",
		];
		expect(mistakes(env)).toEqual(lines);
		expect(() => readConfig(env)).toThrow(["The configuration is not valid:", ...lines].join("\n  "));
	});
});

describe("addresses", () => {
	test.each(["0.0.0.0:80", "localhost:1", "a-b.example.org.:65535", "[::]:0", "[fe80::1]:8080"])(
		"%s is one",
		(text) => {
			expect(formatAddress(readConfig({ HTTP_ADDRESS: text }).httpAddress)).toBe(text);
		},
	);

	test.each([
		":8080",
		"localhost",
		"localhost:",
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
	])("%s is none", (text) => {
		expect(mistakes({ HTTP_ADDRESS: text })).toHaveLength(1);
	});
});

describe("database URLs", () => {
	test.each([
		["sqlite:x.db", "x.db"],
		["sqlite:./a b/x.db", "./a b/x.db"],
		["sqlite:/x.db", "/x.db"],
	])("%s", (text, path) => {
		expect(readConfig({ DATABASE_URL: text }).database).toEqual({ engine: "sqlite", path });
	});

	test.each(["sqlite", "x.db", "sqlite:", "sqlite::memory:", "sqlite://x.db", "mysql:x"])("%s is none", (text) => {
		expect(mistakes({ DATABASE_URL: text })).toHaveLength(1);
	});
});

describe("access keys", () => {
	const example = " (example: ACCESS_KEYS=<name>:<key>,<name>:<key>:read+secrets)";

	test.each([
		["a:", "entry 1 must have a key of visible ASCII characters after the name and a colon"],
		[":k", "entry 1 must begin with a name of visible ASCII characters"],
		["a:k 1", "entry 1 must have a key of visible ASCII characters after the name and a colon"],
		["a:schlüssel", "entry 1 must have a key of visible ASCII characters after the name and a colon"],
		["a:k:read:x", "entry 1 has more than three parts; a key has no colon"],
		["a:k:", "entry 1 has a scope that is not one of ingest, read, secrets"],
		["a:k:read+", "entry 1 has a scope that is not one of ingest, read, secrets"],
		["a:k:Read", "entry 1 has a scope that is not one of ingest, read, secrets"],
		["a:k,b:l,a:m", "entry 3 has the name of entry 1"],
		["a:k,b:k", "entry 2 has the key of entry 1"],
	])("%s: %s", (text, message) => {
		expect(mistakes({ ACCESS_KEYS: text })).toEqual([`ACCESS_KEYS: ${message}${example}`]);
	});

	test("an empty entry, as a trailing comma leaves one, is a mistake", () => {
		expect(mistakes({ ACCESS_KEYS: "a:k," })).toEqual([
			`ACCESS_KEYS: entry 2 must begin with a name of visible ASCII characters${example}`,
			`ACCESS_KEYS: entry 2 must have a key of visible ASCII characters after the name and a colon${example}`,
		]);
	});
});

test.each(["/", "a", "/a/", "//a", "/a//b", "/a b", "/a?b", "/a#b", "/..", "/a/./b", "/ä"])(
	"%s is no base path",
	(text) => {
		expect(mistakes({ BASE_PATH: text })).toHaveLength(1);
	},
);

test.each(["/a", "/a/b.c", "/...", "/.well-known", "/a%20b", "/~x:y@z"])("%s is a base path", (text) => {
	expect(readConfig({ BASE_PATH: text }).basePath).toBe(text);
});

test.each(["0", "-1", "1e3", "1.0", "0x10", "9007199254740992"])("%s is no number of updates or bytes", (text) => {
	expect(mistakes({ RETENTION_UPDATES_PER_CONVERSATION: text, MAX_BODY_BYTES: text })).toHaveLength(2);
});

test.each(["0.0", "-1", "1e3", "Infinity", ".5", "9".repeat(400)])("%s is no number of days", (text) => {
	expect(mistakes({ RETENTION_DAYS: text })).toHaveLength(1);
});

test.each([
	randomBytes(31).toString("base64"),
	randomBytes(33).toString("base64"),
	randomBytes(32).toString("hex"),
	`${first},`,
	`${first.slice(0, -1)}!`,
	`${"A".repeat(42)}B=`,
])("%s is no encryption key", (text) => {
	expect(mistakes({ ENCRYPTION_KEY: text })).toHaveLength(1);
});

describe("the variables of the listeners", () => {
	const tls = { TLS_CERT_FILE: "c.pem", TLS_KEY_FILE: "k.pem", TLS_CLIENT_CA_FILE: "ca.pem" };

	test("are read", () => {
		const config = readConfig({
			...tls,
			DRAIN_SECONDS: "3",
			CLIENT_CERTIFICATES: "agent-1:ingest, spiffe://corp/dashboard:read+secrets",
			CORS_ORIGINS: "https://a.example, http://localhost:3000,*",
			RATE_LIMIT_PER_KEY: "50",
		});
		expect(config).toEqual({
			...defaults,
			drainSeconds: 3,
			tls: { cert: "c.pem", key: "k.pem", clientCa: "ca.pem" },
			clientCertificates: [
				{ name: "agent-1", scopes: new Set(["ingest"]) },
				{ name: "spiffe://corp/dashboard", scopes: new Set(["read", "secrets"]) },
			],
			corsOrigins: ["https://a.example", "http://localhost:3000", "*"],
			rateLimitPerKey: 50,
		});
		expect(describeConfig(config)).toMatchObject({
			...tls,
			CLIENT_CERTIFICATES: "agent-1:ingest,spiffe://corp/dashboard:read+secrets",
			CORS_ORIGINS: "https://a.example,http://localhost:3000,*",
		});
	});

	test.each<[string, Record<string, string>, string]>([
		["a certificate without its key", { TLS_CERT_FILE: "c.pem" }, "TLS_CERT_FILE: needs TLS_KEY_FILE"],
		["a key without its certificate", { TLS_KEY_FILE: "k.pem" }, "TLS_KEY_FILE: needs TLS_CERT_FILE"],
		["authorities without TLS", { TLS_CLIENT_CA_FILE: "ca.pem" }, "TLS_CLIENT_CA_FILE: needs TLS_CERT_FILE"],
		[
			"certificates without authorities",
			{ CLIENT_CERTIFICATES: "a:read" },
			"CLIENT_CERTIFICATES: needs TLS_CLIENT_CA_FILE",
		],
		["a certificate without scopes", { CLIENT_CERTIFICATES: "a" }, "CLIENT_CERTIFICATES: entry 1 must be the name"],
		["an unknown scope", { CLIENT_CERTIFICATES: "a:write" }, "CLIENT_CERTIFICATES: entry 1 has a scope"],
		["one name twice", { CLIENT_CERTIFICATES: "a:read,a:ingest" }, "CLIENT_CERTIFICATES: entry 2 has the name"],
		["an origin with a path", { CORS_ORIGINS: "https://a.example/" }, "CORS_ORIGINS: entry 1 must be"],
		["an origin without a scheme", { CORS_ORIGINS: "a.example" }, "CORS_ORIGINS: entry 1 must be"],
		["a rate of none", { RATE_LIMIT_PER_KEY: "0" }, "RATE_LIMIT_PER_KEY: must be a whole number"],
		["no time to stop", { DRAIN_SECONDS: "0" }, "DRAIN_SECONDS: must be a whole number"],
	])("are refused with %s", (_, env, mistake) => {
		expect(mistakes(env)).toEqual([expect.stringContaining(mistake)]);
	});
});

describe("describeConfig", () => {
	test("gives the defaults", () => {
		expect(describeConfig(readConfig({}))).toEqual({
			HTTP_ADDRESS: "127.0.0.1:8080",
			GRPC_ADDRESS: "127.0.0.1:50051",
			DATABASE_URL: "sqlite:data/conversations.db",
			ACCESS_KEYS: "none",
			MAX_BODY_BYTES: "16777216",
			BASE_PATH: "",
			LOG_LEVEL: "info",
			ENCRYPTION_KEY: "none",
			RETENTION_DAYS: "none",
			RETENTION_UPDATES_PER_CONVERSATION: "none",
			DRAIN_SECONDS: "25",
			TLS_CERT_FILE: "none",
			TLS_KEY_FILE: "none",
			TLS_CLIENT_CA_FILE: "none",
			CLIENT_CERTIFICATES: "none",
			CORS_ORIGINS: "none",
			RATE_LIMIT_PER_KEY: "none",
		});
	});

	test("masks secrets", () => {
		const config = readConfig({
			ACCESS_KEYS: "a:canary-1,b:canary-2:secrets",
			ENCRYPTION_KEY: `${first},${second}`,
		});
		expect(describeConfig(config)).toMatchObject({
			ACCESS_KEYS: "a:**********:ingest+read,b:**********:secrets",
			ENCRYPTION_KEY: "**********,**********",
		});
	});
});

test("no secret shows in a configuration or in what is wrong with one", () => {
	const secret = fc.stringMatching(/^[!-+\--9;-~]{12,40}$/);
	fc.assert(
		fc.property(
			secret,
			fc.constantFrom("", "a:", "a:b:"),
			fc.constantFrom("", ":x", ",", ":read", " y"),
			(key, before, after) => {
				const text = before + key + after;
				const env = { ACCESS_KEYS: text, ENCRYPTION_KEY: text, DATABASE_URL: `postgres://u:${key}@db` };
				expect(mistakes(env).join()).not.toContain(key);
				const right = readConfig({ ACCESS_KEYS: `name:${key}`, ENCRYPTION_KEY: first });
				const shown = inspect(right, { depth: null }) + JSON.stringify(right) + JSON.stringify(describeConfig(right));
				expect(shown).not.toContain(key);
				expect(shown).not.toContain(first);
			},
		),
	);
});
