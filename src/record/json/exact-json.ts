import { isAscii, isUtf8 } from "node:buffer";
import jsonc from "jsonc-parser";
import { ServiceError } from "../../errors.ts";
import { REDACTED, replaceUserinfo } from "../../userinfo.ts";
import {
	type ExactJson,
	type ExactJsonObject,
	isJsonObject,
	type JsonSize,
	MAX_RECORD_DEPTH,
	MAX_VALUES,
	measure,
	setMember,
} from "./json-value.ts";

/** A JSON value within the limits of a record. Passwords and tokens of URLs in its member names are redacted. */
export interface ParsedJson {
	readonly json: ExactJson;
	/** Whether a string can contain a lone surrogate. Valid UTF-8 has none, so only an escape can produce one. */
	readonly mayHaveSurrogates: boolean;
	readonly size: JsonSize;
}

/**
 * Parses a JSON text (RFC 8259) in UTF-8 with at most {@link MAX_VALUES} elements and members and
 * {@link MAX_RECORD_DEPTH} levels. A byte-order mark is ignored. Of several members with the same name, the last one
 * counts. An integer beyond 2^53 becomes a bigint in any notation (`1e17`). A number beyond the range of a double
 * becomes infinite.
 *
 * `JSON.parse` is exact for nearly every text. jsonc-parser parses the text again in two cases: V8 can alter member
 * names that are written with escapes (nodejs/node#63785), and it rounds integers beyond 2^53.
 *
 * @throws ServiceError `invalid_record` that says where the text stops being JSON, or which limit it exceeds
 */
export function parseExactJson(body: Buffer): ParsedJson {
	const start = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0;
	if (body.length === start) throw refused("missing", "Field required");
	if (!isUtf8(body)) throw syntaxError(0, "not UTF-8");
	if (hasTooManyValues(body)) throw tooManyValues();
	const text = body.toString(isAscii(body) ? "latin1" : "utf8", start);
	const json = parseText(text);
	const mayHaveSurrogates = body.includes("\\ud") || body.includes("\\uD");
	// Userinfo has an at sign. In a name that is written with an escape it is found when the text is parsed again.
	const parsed = checkJson(json, mayHaveSurrogates, body.includes("@"));
	return parsed.size.large || hasEscapedName(text) ? checkJson(parseLossless(text), mayHaveSurrogates) : parsed;
}

/** Parses a JSON text as {@link parseExactJson} does, but without limits: for texts that were checked before. */
export function readExactJson(text: string): ExactJson {
	const json = parseText(text);
	return measure(json, false).large || hasEscapedName(text) ? parseLossless(text) : json;
}

/**
 * Checks a JSON value against the limits, and redacts passwords and tokens of URLs in member names. A name cannot be
 * encrypted, because it is part of the places of other secrets.
 *
 * @param mayHaveUserinfo whether there can be such a name
 * @throws ServiceError `invalid_record` when it has more than {@link MAX_VALUES} elements and members, or more than
 *   {@link MAX_RECORD_DEPTH} levels
 */
export function checkJson(json: ExactJson, mayHaveSurrogates: boolean, mayHaveUserinfo = true): ParsedJson {
	const size = measure(json, mayHaveUserinfo);
	if (size.depth > MAX_RECORD_DEPTH)
		throw refused("value_error", `Value error, nested more than ${MAX_RECORD_DEPTH} levels deep`);
	if (size.values > MAX_VALUES) throw tooManyValues();
	return { json: size.userinfoInNames ? withRedactedNames(json) : json, mayHaveSurrogates, size };
}

function withRedactedNames(json: ExactJson): ExactJson {
	if (Array.isArray(json)) return json.map(withRedactedNames);
	if (!isJsonObject(json)) return json;
	const redacted: ExactJsonObject = {};
	for (const [name, member] of Object.entries(json)) {
		let shown = replaceUserinfo(name, () => REDACTED);
		// Two names that differ only in the password stay two names.
		while (shown !== name && (Object.hasOwn(redacted, shown) || Object.hasOwn(json, shown))) shown += "'";
		setMember(redacted, shown, withRedactedNames(member));
	}
	return redacted;
}

declare global {
	interface JSON {
		/** TC39 proposal-json-parse-with-source, in V8 since Node 22. */
		rawJSON(text: string): object;
	}
}

/** Returns the JSON text of a value, as JSON.stringify does. A bigint is written with all of its digits. */
export function stringifyExactJson(value: unknown): string {
	try {
		return JSON.stringify(value);
	} catch (error) {
		// JSON.stringify throws a TypeError for a bigint.
		if (!(error instanceof TypeError)) throw error;
		return JSON.stringify(value, (_, member: unknown) =>
			typeof member === "bigint" ? JSON.rawJSON(String(member)) : member,
		);
	}
}

export function tooManyValues(): ServiceError {
	return refused("value_error", `Value error, more than ${MAX_VALUES} elements and members`);
}

function parseText(text: string): ExactJson {
	try {
		return JSON.parse(text);
	} catch {
		// V8's own message quotes the text, which may contain secrets.
		throw syntaxError(locateJsonError(text), "not JSON from this place on");
	}
}

/** Parses a text that `JSON.parse` accepted. Throws a RangeError when the nesting is deeper than the stack. */
function parseLossless(text: string): ExactJson {
	const open: (ExactJson[] | ExactJsonObject)[] = [];
	let root: ExactJson = null;
	let name = "";
	const put = (value: ExactJson): void => {
		const container = open.at(-1);
		if (container === undefined) root = value;
		else if (Array.isArray(container)) container.push(value);
		else setMember(container, name, value);
	};
	const begin = (container: ExactJson[] | ExactJsonObject): void => {
		put(container);
		open.push(container);
	};
	const end = (): void => {
		open.pop();
	};
	jsonc.visit(text, {
		onObjectBegin: () => begin({}),
		onObjectEnd: end,
		onArrayBegin: () => begin([]),
		onArrayEnd: end,
		onObjectProperty: (property) => {
			name = property;
		},
		onLiteralValue: (value, offset, length) =>
			put(typeof value === "number" ? toExact(value, text.slice(offset, offset + length)) : value),
	});
	return root;
}

/** Returns the bigint that a number's text denotes, if it is an integer beyond 2^53; otherwise the double. */
function toExact(value: number, text: string): number | bigint {
	if (Math.abs(value) <= Number.MAX_SAFE_INTEGER || !Number.isFinite(value)) return value;
	const [, sign, whole = "", fraction = "", exponent = "0"] =
		/^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
	// The value is below 2^1024, so the integer has at most 309 digits after its leading zeros.
	const digits = `${whole}${fraction}`;
	const length = whole.length + Number(exponent);
	if (/[1-9]/.test(digits.slice(length))) return value;
	return BigInt(`${sign}${digits.slice(0, length).padEnd(length, "0").replace(/^0+/, "")}`);
}

/**
 * Whether a member name in a JSON text is written with an escape. Visits only strings with escapes: every backslash is
 * in a string, and the string is a member name if a colon follows it.
 */
function hasEscapedName(text: string): boolean {
	let index = text.indexOf("\\");
	while (index !== -1) {
		let end = index;
		while (text.charCodeAt(end) !== QUOTE) end += text.charCodeAt(end) === BACKSLASH ? 2 : 1;
		do end++;
		while (isBlank(text.charCodeAt(end)));
		if (text.charCodeAt(end) === COLON) return true;
		index = text.indexOf("\\", end);
	}
	return false;
}

/** Whether a JSON text has more than {@link MAX_VALUES} elements and members. Does not build a tree of them. */
function hasTooManyValues(body: Buffer): boolean {
	// Each element or member takes at least two bytes.
	if (body.length <= 2 * MAX_VALUES) return false;
	let values = 0;
	let last = 0;
	let inString = false;
	for (let index = 0; index < body.length; index++) {
		const byte = body[index] ?? 0;
		if (inString) {
			if (byte === BACKSLASH) index++;
			else if (byte === QUOTE) inString = false;
			continue;
		}
		if (isBlank(byte)) continue;
		if (byte === COMMA) values++;
		else if (byte === QUOTE) inString = true;
		// No comma precedes the first value in a container.
		if ((last === OPENING_BRACKET || last === OPENING_BRACE) && byte !== CLOSING_BRACKET && byte !== CLOSING_BRACE)
			values++;
		if (values > MAX_VALUES) return true;
		last = byte;
	}
	return false;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPENING_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

function syntaxError(offset: number, reason: string): ServiceError {
	const message = "JSON decode error";
	const violation = { path: [offset], type: "json_invalid", message, context: { error: reason } };
	return new ServiceError("invalid_record", message, { violations: [violation] });
}

function refused(type: string, message: string): ServiceError {
	return new ServiceError("invalid_record", message, { violations: [{ path: [], type, message }] });
}

/**
 * Finds the place where a text that JSON.parse refused stops being JSON: the first token that is wrong, the comma that
 * no value follows, or the end. Returns an offset in Unicode code points, as FastAPI counts.
 */
export function locateJsonError(text: string): number {
	let first = text.length;
	try {
		jsonc.visit(
			text,
			{
				onError: (_, offset) => {
					first = Math.min(first, offset);
				},
			},
			{ disallowComments: true },
		);
	} catch (error) {
		// The nesting is deeper than the stack. What was found until then counts.
		if (!(error instanceof RangeError)) throw error;
	}
	const before = text.slice(0, first).trimEnd();
	const isAfterComma = before.endsWith(",") && /^[\]}]/.test(text.slice(first, first + 1));
	return [...(isAfterComma ? before.slice(0, -1) : text.slice(0, first))].length;
}

/** Whether a character is white space (RFC 8259, section 2). */
function isBlank(code: number): boolean {
	return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
