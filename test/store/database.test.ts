import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { maskPostgresUrl, parsePostgresUrl } from "../../src/store/database.ts";

function parse(url: string) {
	const mistakes: string[] = [];
	return { value: parsePostgresUrl(url, (mistake) => mistakes.push(mistake)), mistakes };
}

const usual = {
	hosts: [{ host: "db", port: 5432 }],
	user: "u",
	password: undefined,
	database: "d",
	tls: { mode: "prefer", rootCert: undefined, cert: undefined, key: undefined },
	connectTimeout: 5000,
	applicationName: "conversation-update-webhook-service",
};

describe("a PostgreSQL URL", () => {
	test.each([
		["postgres://u@db/d", usual],
		["postgresql://u@db:/d", usual],
		["postgres://u:@db/d?target_session_attrs=primary", usual],
		[
			"postgres://u%40x:p%3A%2F%3F%23%40%2C:x@a.example:1,[::1]:65535,127.0.0.1,%2Frun%2Fpg/d%20d?target_session_attrs=read-write&sslmode=verify-full&sslrootcert=/a%20b.crt&sslcert=c&sslkey=k&connect_timeout=3&application_name=a%26b",
			{
				hosts: [
					{ host: "a.example", port: 1 },
					{ host: "::1", port: 65535 },
					{ host: "127.0.0.1", port: 5432 },
					{ host: "/run/pg", port: 5432 },
				],
				user: "u@x",
				password: "p:/?#@,:x",
				database: "d d",
				tls: { mode: "verify-full", rootCert: "/a b.crt", cert: "c", key: "k" },
				connectTimeout: 3000,
				applicationName: "a&b",
			},
		],
	])("%s is parsed", (url, value) => {
		expect(parse(url)).toEqual({ value, mistakes: [] });
	});

	const form = "must be postgres://user:password@host:port/database; other @ / ? # in a part are percent-encoded";
	const hosts = "must have hosts of the form host, host:port or [IPv6]:port, separated by commas";
	const known = "application_name, connect_timeout, sslcert, sslkey, sslmode, sslrootcert, target_session_attrs";
	const timeout = "has a connect_timeout that is not a whole number of seconds from 1 to 60";
	test.each<[string, string[]]>([
		["postgres:d", [form]],
		["postgres://u:can@ary@db/d", [form]],
		["postgres://u:can/ary@db/d", [form]],
		["postgres://db/d", ["must name a user, as in postgres://user@host/database"]],
		["postgres://u@db", ["must name a database, as in postgres://user@host/database"]],
		["postgres://u@/d", [hosts]],
		["postgres://u@a,,b/d", [hosts]],
		["postgres://u@[db]/d", [hosts]],
		["postgres://u@db:0/d", ["has a port that is not from 1 to 65535"]],
		["postgres://u@db:65536/d", ["has a port that is not from 1 to 65535"]],
		[
			"postgres://u:can%ary@db/d",
			["has a percent sign in its password that is not followed by the code of a character"],
		],
		["postgres://u@db/d?sslpassword=canary", [`has a parameter "sslpassword" that is not one of ${known}`]],
		["postgres://u@db/d?canary", [`has a parameter that is not one of ${known}`]],
		["postgres://u@db/d?sslmode", ["has no value for sslmode"]],
		["postgres://u@db/d?connect_timeout=1&connect_timeout=2", ["has connect_timeout twice"]],
		["postgres://u@db/d?connect_timeout=0", [timeout]],
		["postgres://u@db/d?connect_timeout=1.5", [timeout]],
		[
			"postgres://u@db/d?sslmode=allow",
			["has an sslmode that is not one of disable, prefer, require, verify-ca, verify-full"],
		],
		[
			"postgres://u@db/d?sslmode=verify-full",
			["has sslmode=verify-full without sslrootcert, which is a PEM file, or system for what Node.js trusts"],
		],
		["postgres://u@db/d?sslcert=c", ["must have both of sslcert and sslkey, or neither"]],
		[
			"postgres://u@db/d?target_session_attrs=any",
			["has a target_session_attrs that is not read-write or primary; the service writes"],
		],
	])("%s is refused with its mistakes", (url, mistakes) => {
		expect(parse(url)).toEqual({ value: undefined, mistakes });
	});

	test("can contain any user, password, database and application name; its masked form has no password", () => {
		const text = fc.string({ minLength: 1, unit: "grapheme" });
		fc.assert(
			fc.property(text, text, text, text, (user, password, database, applicationName) => {
				const [u, p, d, a] = [user, password, database, applicationName].map(encodeURIComponent);
				const url = `postgres://${u}:${p}@db/${d}?application_name=${a}`;
				expect(parse(url)).toEqual({ value: { ...usual, user, password, database, applicationName }, mistakes: [] });
				expect(maskPostgresUrl(url, "*")).toBe(`postgres://${u}:*@db/${d}?application_name=${a}`);
			}),
		);
		expect(maskPostgresUrl("postgres://u@db/d", "*")).toBe("postgres://u@db/d");
		expect(maskPostgresUrl("sqlite:a:b@c.db", "*")).toBe("sqlite:a:b@c.db");
	});
});
