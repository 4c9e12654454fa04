import { createSecretKey, type KeyObject } from "node:crypto";
import { validateHeaderName, validateHeaderValue } from "node:http";
import { isIPv4, isIPv6 } from "node:net";
import { z } from "zod";
import { defaultScopes, hashKey, type KeyEntry, OWNER, type Principal, type Scope, scopes } from "../access/keys.ts";
import type { RetentionRule } from "../conversations/retention.ts";
import { parseAgentServer } from "../reconcile/address.ts";
import { isPostgresUrl, type PostgresUrl, parsePostgresUrl } from "../store/database.ts";
import type { Address } from "./address.ts";

/** Parsers of variables. Each function returns the value of a text, and reports each mistake in it. */

/** Reports one mistake in the value of a variable. */
export type Report = (mistake: string) => void;

/** Returns the value of a text, and reports each mistake in it. The text is empty only if there is no default. */
export type Parse<T> = (text: string, report: Report) => T;

/** Minimum length of an access key, in characters: 16 random hexadecimal digits have 64 bits. */
export const MIN_KEY_LENGTH = 16;
/** An hour and a century. A smaller value would prune history that is being read; a larger one is a mistake. */
export const RETENTION_DAYS = { smallest: 1 / 24, largest: 36_525 };
/** Maximum number of updates to keep of a conversation. */
export const MAX_RETENTION_UPDATES = 1_000_000_000;

/** Makes a parser that returns undefined for an empty text. */
export function optional<T>(parse: Parse<T>): Parse<T | undefined> {
	return (text, report) => (text === "" ? undefined : parse(text, report));
}

/** Parses `host:port`, with an IPv6 host in brackets. */
export function parseAddress(text: string, report: Report): Address {
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

/** Tests for a host name (RFC 1123, section 2.1) or an IPv4 address. A text of digits and dots must be an address. */
function isHost(host: string): boolean {
	const label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
	return /^[0-9.]*$/.test(host) ? isIPv4(host) : new RegExp(`^${label}(?:\\.${label})*\\.?$`).test(host);
}

/** Parses a database URL. Returns the path of a SQLite database, or the parts of a PostgreSQL URL. */
export function parseDatabaseUrl(text: string, report: Report): string | PostgresUrl {
	if (isPostgresUrl(text)) return parsePostgresUrl(text, report) ?? z.NEVER;
	const scheme = /^[A-Za-z][A-Za-z0-9+.-]*(?=:)/.exec(text)?.[0];
	// The message shows only the scheme, because the rest may contain a password.
	if (scheme !== "sqlite") {
		const named = scheme === undefined ? "" : `has the unsupported scheme "${scheme}"; it `;
		report(`${named}must be sqlite:<path> or postgres://<user>@<host>/<database>`);
		return z.NEVER;
	}
	const path = text.slice("sqlite:".length);
	if (path === "" || path.startsWith("//") || path.startsWith(":"))
		report("must name a file, as in sqlite:relative/path or sqlite:/absolute/path");
	return path;
}

/** Parses `on` as true and `off` as false. */
export function parseSwitch(text: string, report: Report): boolean {
	if (text !== "on" && text !== "off") report("must be on or off");
	return text === "on";
}

/**
 * Parses comma-separated entries `name:key`, `name:key:scope+scope` or `name:key:scope+scope@owner`. Messages refer to entries by number, because a
 * key may be in the place of a name.
 */
export function parseAccessKeys(text: string, report: Report): KeyEntry[] {
	const names = new Map<string, number>();
	const hashes = new Map<string, number>();
	return splitList(text).map((item, index) => {
		const entry = `entry ${index + 1}`;
		const [name = "", key = "", scopeList, ...rest] = item.split(":");
		if (!/^[\x21-\x7e]+$/.test(name)) {
			report(`${entry} must begin with a name of visible ASCII characters`);
		}
		// Only these characters have the same form in an HTTP header and in gRPC metadata.
		if (!/^[\x21-\x7e]+$/.test(key)) {
			report(`${entry} must have a key of visible ASCII characters after the name and a colon`);
		} else if (key.length < MIN_KEY_LENGTH) {
			report(`${entry} has a key that is shorter than ${MIN_KEY_LENGTH} characters`);
		}
		if (rest.length > 0) {
			report(`${entry} has more than three parts; a key must not contain a colon`);
		}
		const hash = hashKey(key);
		reportDuplicate(names, name, index, (other) => report(`${entry} has the same name as entry ${other}`));
		reportDuplicate(hashes, Buffer.from(hash).toString("hex"), index, (other) => {
			report(`${entry} has the same key as entry ${other}`);
		});
		const rights = scopeList === undefined ? { scopes: defaultScopes, owner: undefined } : parseRights(scopeList);
		reportRights(rights, entry, report);
		return Object.freeze({ name, scopes: rights.scopes ?? defaultScopes, owner: rights.owner, hash });
	});
}

/** Parses comma-separated entries `name:scope+scope` or `name:scope+scope@owner`. The name may contain colons, as URIs do. */
export function parseCertificates(text: string, report: Report): Principal[] {
	const names = new Map<string, number>();
	return splitList(text).map((item, index) => {
		const entry = `entry ${index + 1}`;
		const [, name = "", scopeList = ""] = /^(.+):([^:]*)$/.exec(item) ?? [];
		const rights = parseRights(scopeList);
		if (name === "") report(`${entry} must be the name of a certificate, a colon and scopes`);
		else reportRights(rights, entry, report);
		reportDuplicate(names, name, index, (other) => report(`${entry} has the same name as entry ${other}`));
		return Object.freeze({ name, scopes: rights.scopes ?? defaultScopes, owner: rights.owner });
	});
}

/** Parses comma-separated origins as browsers send them (RFC 6454, section 6.2): scheme, host and port, no path. */
export function parseOrigins(text: string, report: Report): string[] {
	return splitList(text).map((origin, index) => {
		if (origin !== "*" && (!URL.canParse(origin) || new URL(origin).origin !== origin))
			report(`entry ${index + 1} must be * or an origin such as https://dashboard.example, without a slash at its end`);
		return origin;
	});
}

/** What a key or certificate may do, and for whom. */
interface Rights {
	/** Undefined when a name is not a scope. */
	readonly scopes: ReadonlySet<Scope> | undefined;
	readonly owner: string | undefined;
}

/** Parses `scope+scope` or `scope+scope@owner`. */
function parseRights(text: string): Rights {
	const [scopeList = "", ...owner] = text.split("@");
	return { scopes: parseScopes(scopeList), owner: owner.length === 0 ? undefined : owner.join("@") };
}

function reportRights({ scopes: chosen, owner }: Rights, entry: string, report: Report): void {
	if (chosen === undefined) report(`${entry} has a scope that is not one of ${scopes.join(", ")}`);
	if (owner === undefined) return;
	if (!OWNER.test(owner))
		report(`${entry} has an owner that is not 1 to 64 letters, digits, dots, dashes or underscores`);
	if (chosen?.has("metrics") === true)
		report(`${entry} has an owner and the scope metrics, whose figures are those of all owners`);
}

/** Returns undefined when a name is not a scope. */
function parseScopes(text: string): ReadonlySet<Scope> | undefined {
	const chosen = text.split("+").map((name) => scopes.find((scope) => scope === name));
	const known = chosen.filter((scope) => scope !== undefined);
	return known.length === chosen.length ? new Set(known) : undefined;
}

/** Makes a parser of whole numbers from 1 to `largest`. */
export function parseInteger(largest: number): Parse<number> {
	return (text, report) => {
		const value = Number(text);
		if (!/^[0-9]+$/.test(text) || value < 1 || value > largest) {
			report(`must be a whole number from 1 to ${largest}`);
		}
		return value;
	};
}

/** Parses a number of days in the range {@link RETENTION_DAYS}. */
export function parseDays(text: string, report: Report): number {
	const value = Number(text);
	const { smallest, largest } = RETENTION_DAYS;
	if (!/^[0-9]+(?:\.[0-9]+)?$/.test(text)) report("must be a number of days");
	else if (value < smallest || value > largest) report(`must be from an hour (0.0417) to ${largest} days`);
	return value;
}

/**
 * Parses comma-separated entries `owner:NAME=days`, `tag:KEY=days` and `tag:KEY=VALUE=days`. A key has no equal sign, and a
 * value may have some.
 */
export function parseRetentionRules(text: string, report: Report): readonly RetentionRule[] {
	const names = new Map<string, number>();
	return splitList(text).map((item, index) => {
		const entry = `entry ${index + 1}`;
		const [, name = "", kind, of = "", days = ""] = /^((owner|tag):(.+))=([^=]*)$/.exec(item) ?? [];
		if (name === "") {
			report(`${entry} must be owner:NAME=days, tag:KEY=days or tag:KEY=VALUE=days`);
			return z.NEVER;
		}
		reportDuplicate(names, name, index, (other) => report(`${entry} is for the same as entry ${other}`));
		const [, key = of, value] = /^([^=]*)=(.*)$/.exec(of) ?? [];
		const filter =
			kind === "owner" ? { owner: of } : value === undefined ? { tagKey: key } : { tags: { [key]: value } };
		if (kind === "owner" && !OWNER.test(of))
			report(`${entry} has an owner that is not 1 to 64 letters, digits, dots, dashes or underscores`);
		if (kind === "tag" && key === "") report(`${entry} must have the key of a tag`);
		return { name, filter, days: parseDays(days, (mistake) => report(`${entry} ${mistake}`)) };
	});
}

/** Parses a path (RFC 3986, section 3.3). Rejects `.` and `..`, which clients resolve before they send a path. */
export function parseBasePath(text: string, report: Report): string {
	if (text !== "" && !/^(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+$/.test(text))
		report("must be a path that begins with a slash and does not end with one");
	return text;
}

/**
 * Parses `UTC` or an IANA time zone name. Rejects fixed offsets, which Node.js also accepts: they ignore clock changes.
 */
export function parseTimeZone(text: string, report: Report): string {
	try {
		if (/^[A-Za-z]/.test(text)) return new Intl.DateTimeFormat("en", { timeZone: text }).resolvedOptions().timeZone;
	} catch (error) {
		if (!(error instanceof RangeError)) throw error;
	}
	report("must be UTC or the name of a time zone in the IANA database");
	return z.NEVER;
}

/** Parses comma-separated entries `name=zone`. The name may contain equal signs. */
export function parseSenderTimeZones(text: string, report: Report): ReadonlyMap<string, string> {
	const names = new Map<string, number>();
	return new Map(
		splitList(text).map((item, index) => {
			const entry = `entry ${index + 1}`;
			const [, name = "", zone = ""] = /^(.+)=([^=]*)$/.exec(item) ?? [];
			if (name === "") report(`${entry} must be the name of a key or certificate, an equal sign and a time zone`);
			reportDuplicate(names, name, index, (other) => report(`${entry} has the same name as entry ${other}`));
			return [name, name === "" ? zone : parseTimeZone(zone, (mistake) => report(`${entry} ${mistake}`))];
		}),
	);
}

/** Parses an http or https URL without user name, query and fragment. Returns it with a slash at its end. */
export function parseConsoleUrl(text: string, report: Report): string {
	const url = parseAgentServer(text);
	if (url !== undefined) return url.href.replace(/\/*$/, "/");
	report("must be an http or https URL without user name, query and fragment");
	return z.NEVER;
}

/** Parses the URL of a receiver of traces. Keys belong into headers, because the URL is shown. */
export function parseTracesEndpoint(text: string, report: Report): string {
	const url = parseAgentServer(text);
	if (url !== undefined) return url.href;
	report("must be an http or https URL without user name, query and fragment");
	return z.NEVER;
}

/** Parses comma-separated entries `name=value` with percent-encoded values. Messages quote no values. */
export function parseHeaders(text: string, report: Report): ReadonlyMap<string, string> {
	const headers = new Map<string, string>();
	for (const [name, encoded, entry] of namedEntries(text, report)) {
		try {
			const value = decodeURIComponent(encoded);
			validateHeaderName(name);
			validateHeaderValue(name, value);
			headers.set(name, value);
		} catch {
			report(`${entry} must have the name of a header, an equal sign and a percent-encoded value`);
		}
	}
	return headers;
}

/** Parses comma-separated entries `host:port`. */
export function parseServers(text: string, report: Report): readonly string[] {
	return splitList(text).map((item, index) => {
		const [, port] = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})$/.exec(item) ?? [];
		if (port === undefined || Number(port) < 1 || Number(port) > 65_535)
			report(`entry ${index + 1} must be a host, a colon and a port`);
		return item;
	});
}

/** Parses comma-separated entries `name=url`. */
export function parseAgentServers(text: string, report: Report): ReadonlyMap<string, URL> {
	const urls = new Map<string, URL>();
	for (const [name, value, entry] of namedEntries(text, report)) {
		const url = parseAgentServer(value);
		if (url === undefined) report(`${entry} must have an http or https URL without user name, query and fragment`);
		else urls.set(name, url);
	}
	return urls;
}

/** Parses comma-separated entries `name=key`. Messages quote no keys. */
export function parseAgentServerKeys(text: string, report: Report): ReadonlyMap<string, string> {
	const keys = new Map<string, string>();
	for (const [name, key, entry] of namedEntries(text, report)) {
		// Other characters cannot stand in a header.
		if (!/^[\x21-\x7e]+$/.test(key)) report(`${entry} must have a key of visible ASCII characters`);
		keys.set(name, key);
	}
	return keys;
}

/** Splits entries at their first equal sign. Returns each with its name, its value, and its number for messages. */
function namedEntries(text: string, report: Report): (readonly [name: string, value: string, entry: string])[] {
	const names = new Map<string, number>();
	return splitList(text).flatMap((item, index) => {
		const entry = `entry ${index + 1}`;
		const [, name = "", value = ""] = /^([^=]+)=(.*)$/.exec(item) ?? [];
		if (name === "") report(`${entry} must begin with a name and an equal sign`);
		reportDuplicate(names, name, index, (other) => report(`${entry} has the same name as entry ${other}`));
		return name === "" ? [] : [[name, value, entry] as const];
	});
}

/** Makes a parser that accepts one of `words`. */
export function oneOf<T extends string>(words: readonly T[]): Parse<T> {
	return (text, report) => {
		const word = words.find((known) => known === text);
		if (word === undefined) report(`must be one of ${words.join(", ")}`);
		return word ?? z.NEVER;
	};
}

/** Parses comma-separated keys of 32 bytes in base64. */
export function parseEncryptionKeys(text: string, report: Report): KeyObject[] {
	return splitList(text).map((item, index) => {
		const bytes = Buffer.from(item, "base64");
		// Decoding skips characters that are not base64. Encoding the bytes again shows whether there were any.
		if (bytes.length !== 32 || bytes.toString("base64") !== item) {
			report(`entry ${index + 1} must be exactly 32 bytes in base64`);
		}
		return createSecretKey(bytes);
	});
}

/** Returns the trimmed entries of a comma-separated list; none for an empty text. */
export function splitList(text: string): string[] {
	return text === "" ? [] : text.split(",").map((item) => item.trim());
}

/** Calls `report` with the number, from 1, of the first entry with the same value. Ignores empty values. */
function reportDuplicate(seen: Map<string, number>, value: string, index: number, report: (entry: number) => void) {
	const first = seen.getOrInsert(value, index);
	if (first !== index && value !== "") report(first + 1);
}
