import type { IncomingHttpHeaders } from "node:http";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { invalid } from "../../conversations/read/filter.ts";
import { parseDateTime } from "../../record/json/scalars.ts";
import { percentDecode } from "../http/router.ts";

/** Maximum number of characters of a parameter's name that an error repeats. */
const MAX_SHOWN_NAME = 64;

/** The largest number of the type int32. */
export const MAX_INT32 = 2_147_483_647;
/** The largest number of the type int64. */
export const MAX_INT64 = 2n ** 63n - 1n;

/** The query parameters of a request. Its errors are ServiceErrors `invalid_argument` that name the parameter. */
export class Query<Name extends string> {
	readonly #parameters: URLSearchParams;

	/**
	 * @param search query as it was received, without the question mark
	 * @param names names of the parameters that the request may have
	 * @param repeatable names of those parameters that may occur several times
	 * @throws ServiceError for an unknown parameter, for one that occurs several times although it may not, and for one
	 *   that is not percent-encoded UTF-8 (RFC 3986, section 2)
	 */
	constructor(search: string, names: readonly Name[], repeatable: readonly Name[] = []) {
		for (const parameter of search.split("&")) requireEncoded(parameter);
		const parameters = new URLSearchParams(search);
		const known = new Set<string>(names);
		const mayRepeat = new Set<string>(repeatable);
		for (const name of new Set(parameters.keys())) {
			if (!known.has(name)) throw invalid(quoted(name), "is not known");
			if (!mayRepeat.has(name) && parameters.getAll(name).length > 1) throw invalid(name, "may be given only once");
		}
		this.#parameters = parameters;
	}

	/** Returns a text; empty when the parameter is absent. */
	text(name: Name): string {
		return this.#parameters.get(name) ?? "";
	}

	/** Returns all values of a repeatable parameter. */
	texts(name: Name): string[] {
		return this.#parameters.getAll(name);
	}

	/** Returns one of several words; the first word when the parameter is absent. */
	word<Word extends string>(name: Name, words: readonly [Word, ...Word[]]): Word {
		const text = this.#parameters.get(name);
		const word = text === null ? words[0] : words.find((candidate) => candidate === text);
		if (word === undefined) throw invalid(name, `must be one of ${words.join(", ")}`);
		return word;
	}

	/** Returns a whole number from 0 to 2^63 - 1; undefined when the parameter is absent. */
	number(name: Name): bigint | undefined {
		const text = this.#parameters.get(name);
		if (text === null) return undefined;
		const value = wholeNumber(text);
		if (value === undefined) throw invalid(name, "must be a whole number, 0 or more");
		return value;
	}

	/** Returns a whole number from 0 to {@link MAX_INT32}, as in the request of an RPC; undefined when it is absent. */
	smallNumber(name: Name): number | undefined {
		const value = this.number(name);
		if (value !== undefined && value > MAX_INT32) throw invalid(name, `must be at most ${MAX_INT32}`);
		return value === undefined ? undefined : Number(value);
	}

	/** Returns true or false; undefined when the parameter is absent. */
	boolean(name: Name): boolean | undefined {
		const text = this.#parameters.get(name);
		if (text === null || text === "true" || text === "false") return text === null ? undefined : text === "true";
		throw invalid(name, "must be true or false");
	}

	/** Returns a number with an optional fraction and exponent; undefined when the parameter is absent. */
	decimal(name: Name): number | undefined {
		const text = this.#parameters.get(name);
		if (text === null) return undefined;
		if (!/^-?\d{1,400}(\.\d{1,400})?([eE][-+ ]?\d{1,4})?$/.test(text)) throw invalid(name, "must be a number");
		// A plus sign that was not percent-encoded arrives as a space.
		return Number(text.replace(" ", "+"));
	}

	/** Returns a point in time; undefined when the parameter is absent. */
	dateTime(name: Name): Timestamp | undefined {
		const text = this.#parameters.get(name);
		if (text === null) return undefined;
		// A plus sign that was not percent-encoded arrives as a space, which no date-time contains.
		const time = parseDateTime(text.replace(" ", "+"));
		if (time === undefined) throw invalid(name, "must be an ISO 8601 date-time such as 2026-01-31T12:00:00Z");
		return time;
	}
}

/** Header by which a client of server-sent events resumes. */
export const LAST_EVENT_ID = "Last-Event-ID";

/**
 * Returns the sequence number after which a stream resumes; undefined for a client that does not resume.
 *
 * @throws ServiceError `invalid_argument` for an id that is no sequence number
 */
export function lastEventId(headers: IncomingHttpHeaders): bigint | undefined {
	const text = headers["last-event-id"];
	if (text === undefined || text === "") return undefined;
	const sequence = typeof text === "string" ? wholeNumber(text) : undefined;
	if (sequence === undefined) throw invalid(LAST_EVENT_ID, "must be a whole number, 0 or more");
	return sequence;
}

/** Returns the whole number from 0 to 2^63 - 1 that decimal digits denote; undefined for another text. */
function wholeNumber(text: string): bigint | undefined {
	const value = /^\d{1,19}$/.test(text) ? BigInt(text) : undefined;
	return value !== undefined && value <= MAX_INT64 ? value : undefined;
}

/**
 * Checks that a parameter is percent-encoded UTF-8. URLSearchParams would replace other bytes by U+FFFD, and a filter
 * with them would find nothing.
 *
 * @throws ServiceError `invalid_argument` when it is not
 */
function requireEncoded(parameter: string): void {
	if (/^[\x21-\x7e]*$/.test(parameter) && percentDecode(parameter) !== undefined) return;
	throw invalid(quoted(parameter.split("=", 1)[0] ?? ""), "is not percent-encoded UTF-8");
}

function quoted(name: string): string {
	const shown = name.length > MAX_SHOWN_NAME ? `${name.slice(0, MAX_SHOWN_NAME)}…` : name;
	return `query parameter ${JSON.stringify(shown)}`;
}
