import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { invalid } from "../../conversations/read/filter.ts";
import { parseDateTime } from "../../record/json/scalars.ts";

/** Most characters of a parameter's name that an error repeats. */
const SHOWN_NAME = 64;

/** The query parameters of a request. Every error is a ServiceError `invalid_argument` that names the parameter. */
export class Query<Name extends string> {
	readonly #parameters: URLSearchParams;

	/**
	 * @param search the query as it came
	 * @param names parameters that the request may have
	 * @param repeatable those of them that it may have several times
	 * @throws ServiceError for any other parameter, for repetitions of those that may not be repeated, and for one that is
	 *   not percent-encoded UTF-8 (RFC 3986, section 2)
	 */
	constructor(search: string, names: readonly Name[], repeatable: readonly Name[] = []) {
		for (const parameter of search.split("&")) requireEncoded(parameter);
		const parameters = new URLSearchParams(search);
		const known = new Set<string>(names);
		const seen = new Set<string>(repeatable);
		for (const name of new Set(parameters.keys())) {
			if (!known.has(name)) throw invalid(quoted(name), "is not known");
			if (!seen.has(name) && parameters.getAll(name).length > 1) throw invalid(name, "may be given only once");
		}
		this.#parameters = parameters;
	}

	/** A text; empty when the parameter is absent. */
	text(name: Name): string {
		return this.#parameters.get(name) ?? "";
	}

	/** The values of a parameter that may be repeated. */
	texts(name: Name): string[] {
		return this.#parameters.getAll(name);
	}

	/** One of some words; the first of them when the parameter is absent. */
	word<Word extends string>(name: Name, words: readonly [Word, ...Word[]]): Word {
		const text = this.#parameters.get(name);
		const word = text === null ? words[0] : words.find((candidate) => candidate === text);
		if (word === undefined) throw invalid(name, `must be one of ${words.join(", ")}`);
		return word;
	}

	/** A whole number from 0 to 2^63 - 1; undefined when the parameter is absent. */
	number(name: Name): bigint | undefined {
		const text = this.#parameters.get(name);
		if (text === null) return undefined;
		const value = /^\d{1,19}$/.test(text) ? BigInt(text) : undefined;
		if (value === undefined || value >= 2n ** 63n) throw invalid(name, "must be a whole number, 0 or more");
		return value;
	}

	/** An instant; undefined when the parameter is absent. */
	dateTime(name: Name): Timestamp | undefined {
		const text = this.#parameters.get(name);
		if (text === null) return undefined;
		// A plus sign that was not percent-encoded arrives as a space, which no date-time contains.
		const time = parseDateTime(text.replace(" ", "+"));
		if (time === undefined) throw invalid(name, "must be an ISO 8601 date-time such as 2026-01-31T12:00:00Z");
		return time;
	}
}

/** URLSearchParams would put U+FFFD in place of bytes that are not UTF-8, and find nothing. */
function requireEncoded(parameter: string): void {
	if (/^[\x21-\x7e]*$/.test(parameter) && isDecodable(parameter)) return;
	throw invalid(quoted(parameter.split("=", 1)[0] ?? ""), "is not percent-encoded UTF-8");
}

function isDecodable(text: string): boolean {
	try {
		decodeURIComponent(text);
		return true;
	} catch {
		return false;
	}
}

function quoted(name: string): string {
	const shown = name.length > SHOWN_NAME ? `${name.slice(0, SHOWN_NAME)}…` : name;
	return `query parameter ${JSON.stringify(shown)}`;
}
