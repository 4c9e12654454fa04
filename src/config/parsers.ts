import { createSecretKey, type KeyObject } from "node:crypto";
import { validateHeaderName, validateHeaderValue } from "node:http";
import { isIPv4, isIPv6 } from "node:net";
import { z } from "zod";
import { defaultScopes, hashKey, type KeyEntry, OWNER, type Principal, scopes } from "../access/keys.ts";
import type { RetentionRule } from "../conversations/retention.ts";
import type { Place } from "../forward/broker-settings.ts";
import { isPostgresUrl, type PostgresUrl, parsePostgresUrl } from "../store/database.ts";

/** Parsers of variables. Each function returns the value of a text, and reports each mistake in it. */

/** Reports one mistake in the value of a variable. */
export type Report = (mistake: string) => void;

/** Returns the value of a text, and reports each mistake in it. The text is empty only if there is no default. */
export type Parse<T> = (text: string, report: Report) => T;

/** Minimum length of an access key, in characters: 16 random hexadecimal digits have 64 bits. */
export const MIN_KEY_LENGTH = 16;
/** An hour and a century. A smaller value would prune history that is being read; a larger one is a mistake. */
export const RETENTION_DAYS = { smallest: 1 / 24, largest: 36_525 };
export const MAX_RETENTION_UPDATES = 1_000_000_000;

/** Makes a parser that returns undefined for an empty text. */
export function optional<T>(parse: Parse<T>): Parse<T | undefined> {
	return (text, report) => (text === "" ? undefined : parse(text, report));
}

/** Returns a text as a key object; undefined for an empty text. */
export function secretOf(text: string): KeyObject | undefined {
	return text === "" ? undefined : createSecretKey(Buffer.from(text));
}

/** Host and port of a listener. */
export interface Address {
	/** Host name, IPv4 address, or IPv6 address without brackets. */
	readonly host: string;
	/** 0 to 65535; 0 lets the system choose a free port. */
	readonly port: number;
}

/** Formats an address as in a URL: `host:port`, with an IPv6 host in brackets. */
export function formatAddress({ host, port }: Address): string {
	return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Parses the URL of an agent server; undefined for another one, such as one with a user name. */
export function parseAgentServer(text: string): URL | undefined {
	const url = URL.canParse(text) ? new URL(text) : undefined;
	if (url === undefined || !/^https?:$/.test(url.protocol)) return undefined;
	return url.username + url.password + url.search + url.hash === "" ? url : undefined;
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
 * Parses comma-separated entries `name:key`, `name:key:scope+scope` or `name:key:scope+scope@owner`. Messages refer to
 * entries by number, because a key may be in the place of a name.
 */
export function parseAccessKeys(text: string, report: Report): KeyEntry[] {
	const requireNewName = duplicates("has the same name as");
	const requireNewKey = duplicates("has the same key as");
	return entriesOf(text, report).map(({ item, report }) => {
		const [name = "", key = "", scopeList, ...rest] = item.split(":");
		if (!/^[\x21-\x7e]+$/.test(name)) report("must begin with a name of visible ASCII characters");
		requireNoOwner(name, "name:key:read@owner", report);
		// Only these characters have the same form in an HTTP header and in gRPC metadata.
		if (!/^[\x21-\x7e]+$/.test(key)) report("must have a key of visible ASCII characters after the name and a colon");
		else if (key.length < MIN_KEY_LENGTH) report(`has a key that is shorter than ${MIN_KEY_LENGTH} characters`);
		if (rest.length > 0) report("has more than three parts; a key must not contain a colon");
		requireNewName(name, report);
		requireNewKey(key, report);
		const rights =
			scopeList === undefined ? { scopes: defaultScopes, owner: undefined } : parseRights(scopeList, report);
		return Object.freeze({ name, ...rights, hash: hashKey(key) });
	});
}

/** Parses comma-separated entries `name:scope+scope` or `name:scope+scope@owner`. The name may contain colons, as URIs do. */
export function parseCertificates(text: string, report: Report): Principal[] {
	const form = /^(.+):([^:]*)$/;
	const entries = namedEntries(text, report, form, "must be the name of a certificate, a colon and scopes");
	return Array.from(entries, ({ name, value, report }) => {
		requireNoOwner(name, "name:read@owner", report);
		return Object.freeze({ name, ...parseRights(value, report) });
	});
}

/** Parses comma-separated origins as browsers send them (RFC 6454, section 6.2): scheme, host and port, no path. */
export function parseOrigins(text: string, report: Report): string[] {
	return entriesOf(text, report).map(({ item: origin, report }) => {
		if (origin !== "*" && (!URL.canParse(origin) || new URL(origin).origin !== origin))
			report("must be * or an origin such as https://dashboard.example, without a slash at its end");
		return origin;
	});
}

/** Parses `scope+scope` or `scope+scope@owner`: what a key or certificate may do, and for whom. */
function parseRights(text: string, report: Report): Pick<Principal, "scopes" | "owner"> {
	const [scopeList = "", ...rest] = text.split("@");
	const chosen = scopeList.split("+").flatMap((name) => scopes.find((scope) => scope === name) ?? []);
	if (chosen.length < scopeList.split("+").length) report(`has a scope that is not one of ${scopes.join(", ")}`);
	if (rest.length === 0) return { scopes: new Set(chosen), owner: undefined };
	const owner = rest.join("@");
	requireOwner(owner, report);
	if (chosen.includes("metrics")) report("has an owner and the scope metrics, whose figures are those of all owners");
	return { scopes: new Set(chosen), owner };
}

/** Reports an owner in the place of a name. Such an entry would make a key without an owner, which sees everything. */
function requireNoOwner(name: string, form: string, report: Report): void {
	if (name.includes("@")) report(`has an @ in its name; an owner follows the scopes, as in ${form}`);
}

function requireOwner(owner: string, report: Report): void {
	if (!OWNER.test(owner)) report("has an owner that is not 1 to 64 letters, digits, dots, dashes or underscores");
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
	const form = /^((?:owner|tag):.+)=([^=]*)$/;
	const mistake = "must be owner:NAME=days, tag:KEY=days or tag:KEY=VALUE=days";
	const entries = namedEntries(text, report, form, mistake, "is for the same as");
	return Array.from(entries, ({ name, value: days, report }) => {
		const [, isOwner, of = ""] = /^(?:(owner)|tag):(.*)$/.exec(name) ?? [];
		const [, key = of, value] = /^([^=]*)=(.*)$/.exec(of) ?? [];
		if (isOwner) requireOwner(of, report);
		else if (key === "") report("must have the key of a tag");
		const filter = isOwner ? { owner: of } : value === undefined ? { tagKey: key } : { tags: { [key]: value } };
		return { name, filter, days: parseDays(days, report) };
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

/** Makes a parser of comma-separated entries of the name of a sender and a value. */
function bySender<T>(parse: Parse<T>, form?: RegExp, mistake?: string): Parse<ReadonlyMap<string, T>> {
	return (text, report) => {
		const values = namedEntries(text, report, form, mistake).map(({ name, value, report }) => {
			if (name.includes("@"))
				report("has an @ in its name; a sender has the name of a key or certificate, without its owner");
			return [name, parse(value, report)] as const;
		});
		return new Map(values);
	};
}

/** Parses comma-separated entries `name=zone`. The name may contain equal signs. */
export const parseSenderTimeZones = bySender(
	parseTimeZone,
	/^(.+)=([^=]*)$/,
	"must be the name of a key or certificate, an equal sign and a time zone",
);

/** Parses an http or https URL without user name, query and fragment. Keys belong elsewhere, because the URL is shown. */
export function parseUrl(text: string, report: Report): URL {
	const url = parseAgentServer(text);
	if (url !== undefined) return url;
	report("must be an http or https URL without user name, query and fragment");
	return z.NEVER;
}

/** Parses comma-separated entries `name=value` with percent-encoded values. Messages quote no values. */
export function parseHeaders(text: string, report: Report): ReadonlyMap<string, string> {
	const headers = new Map<string, string>();
	for (const { name, value: encoded, report: reportEntry } of namedEntries(text, report)) {
		try {
			const value = decodeURIComponent(encoded);
			validateHeaderName(name);
			validateHeaderValue(name, value);
			headers.set(name, value);
		} catch {
			reportEntry("must have the name of a header, an equal sign and a percent-encoded value");
		}
	}
	return headers;
}

export function parseServers(text: string, report: Report): readonly string[] {
	return entriesOf(text, report).map(({ item, report }) => {
		const [, port] = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})$/.exec(item) ?? [];
		if (port === undefined || Number(port) < 1 || Number(port) > 65_535) report("must be a host, a colon and a port");
		return item;
	});
}

/** Makes a parser of comma-separated entries `place` or `place@owner`. */
export function placesOf(form: RegExp, description: string): Parse<readonly Place[]> {
	return (text, report) =>
		entriesOf(text, report).map(({ item, report }) => {
			const [, pattern = "", owner] = /^([^@]*)(?:@(.*))?$/.exec(item) ?? [];
			if (!form.test(pattern)) report(`must begin with ${description}`);
			if (owner !== undefined) requireOwner(owner, report);
			return Object.freeze({ pattern, owner });
		});
}

/** Parses comma-separated entries `name=url`. */
export const parseAgentServers = bySender((text, report) =>
	parseUrl(text, (mistake) => report(mistake.replace("must be", "must have"))),
);

/** Parses comma-separated entries `name=key`. Messages quote no keys. */
export const parseAgentServerKeys = bySender((key, report) => {
	// Other characters cannot stand in a header.
	if (!/^[\x21-\x7e]+$/.test(key)) report("must have a key of visible ASCII characters");
	return key;
});

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
	return entriesOf(text, report).map(({ item, report }) => {
		const bytes = Buffer.from(item, "base64");
		// Decoding skips characters that are not base64. Encoding the bytes again shows whether there were any.
		if (bytes.length !== 32 || bytes.toString("base64") !== item) report("must be exactly 32 bytes in base64");
		return createSecretKey(bytes);
	});
}

/** Returns the trimmed entries of a comma-separated list; none for an empty text. */
export function splitList(text: string): string[] {
	return text === "" ? [] : text.split(",").map((item) => item.trim());
}

/** Returns the entries of a comma-separated list, each with a function that reports a mistake in it by its number. */
function entriesOf(text: string, report: Report): { readonly item: string; readonly report: Report }[] {
	return splitList(text).map((item, index) => ({ item, report: (mistake) => report(`entry ${index + 1} ${mistake}`) }));
}

/** Yields the entries of a list that have a form, whose groups are a name and a value. Reports others, and equal names. */
function* namedEntries(
	text: string,
	report: Report,
	form = /^([^=]+)=(.*)$/,
	otherForm = "must begin with a name and an equal sign",
	sameName = "has the same name as",
) {
	const requireNew = duplicates(sameName);
	for (const entry of entriesOf(text, report)) {
		const [, name = "", value = ""] = form.exec(entry.item) ?? [];
		requireNew(name, entry.report);
		if (name === "") entry.report(otherForm);
		else yield { name, value, report: entry.report };
	}
}

/** Returns a function that reports the first entry with the same value. It is called for each entry; empty values are ignored. */
function duplicates(same: string): (value: string, report: Report) => void {
	const seen = new Map<string, number>();
	let number = 0;
	return (value, report) => {
		number += 1;
		const first = seen.getOrInsert(value, number);
		if (first !== number && value !== "") report(`${same} entry ${first}`);
	};
}
