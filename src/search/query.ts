import { ServiceError } from "../errors.ts";
import type { DocumentQuery, IndexTerm } from "../store/text-index.ts";
import { type Word, wordsOf } from "./tokenizer.ts";

/** Words that must follow each other in a text: one word of a query, or a phrase. */
export interface Term {
	/** At least one. */
	readonly words: readonly Pick<Word, "text" | "isCharacter" | "isGlued" | "isSymbol">[];
	/** Whether the last word is the beginning of a word. */
	readonly isPrefix: boolean;
}

/** What a text must contain, and what it must not. */
export interface TextQuery {
	/** At least one. */
	readonly required: readonly Term[];
	readonly excluded: readonly Term[];
}

/** Maximum number of characters (Unicode code points) of a query. */
export const MAX_QUERY = 1_000;
/** Maximum number of words and phrases in a query. */
const MAX_TERMS = 32;
/** Minimum length of a prefix that stands alone, in characters. A shorter one would match most texts. */
const MIN_PREFIX = 2;

/** A phrase or a word of a query, as it is written. */
const TERM = /(?<sign>-(?=[^\s-]))?(?:"(?<phrase>[^"]*)"|(?<word>[^\s"]+))/gu;

/**
 * Parses a query: words, `"exact phrases"`, `prefix*`, and `-without` before any of them. Punctuation separates words; the
 * words of `src/app.ts` must follow each other. Throws `invalid_argument` that names `query`.
 */
export function parseQuery(text: string): TextQuery {
	if ([...text].length > MAX_QUERY) throw invalid(`must have at most ${MAX_QUERY} characters`);
	if (!text.isWellFormed()) throw invalid("is not valid Unicode");
	if ((text.split('"').length - 1) % 2 === 1) throw invalid("has a quotation mark without a second one");
	const required: Term[] = [];
	const excluded: Term[] = [];
	for (const { groups } of text.matchAll(TERM)) {
		const term = groups?.phrase === undefined ? wordTerm(groups?.word ?? "") : termOf(groups.phrase, false);
		if (groups?.sign !== undefined && term === undefined)
			throw invalid("has a minus sign before something without a word");
		if (term !== undefined) (groups?.sign === undefined ? required : excluded).push(term);
	}
	if (required.length === 0) throw invalid("must have a word to look for");
	if (required.length + excluded.length > MAX_TERMS) throw invalid(`must have at most ${MAX_TERMS} words and phrases`);
	return { required, excluded };
}

function wordTerm(written: string): Term | undefined {
	const isPrefix = written.endsWith("*");
	const word = isPrefix ? written.slice(0, -1) : written;
	if (word.includes("*")) throw notAtEnd();
	return termOf(word, isPrefix);
}

/** Returns undefined for a text without words, such as a dash. */
function termOf(text: string, isPrefix: boolean): Term | undefined {
	const words = wordsOf(text);
	const last = words.at(-1);
	// The variation of an emoji is no part of its word.
	if (isPrefix && (last === undefined || last.end < text.replace(/\p{M}+$/u, "").length)) throw notAtEnd();
	if (last === undefined) return undefined;
	// A character and a symbol have no beginning.
	const isBegin = isPrefix && !last.isCharacter && !last.isSymbol;
	if (isBegin && words.length === 1 && isShort(last.text))
		throw invalid(`must have at least ${MIN_PREFIX} characters before *`);
	// Without their places, because a page token is valid for an equal query.
	const wanted = words.map(({ text, isCharacter, isGlued, isSymbol }) => ({ text, isCharacter, isGlued, isSymbol }));
	return { words: wanted, isPrefix: isBegin };
}

function notAtEnd(): ServiceError {
	return invalid("may have * only at the end of a word");
}

function isShort(prefix: string): boolean {
	return [...prefix].length < MIN_PREFIX;
}

function invalid(problem: string): ServiceError {
	return new ServiceError("invalid_argument", `query ${problem}`);
}

/** Returns what the index is asked for: see `indexWords`. It finds every text that meets the query, and others. */
export function indexQuery({ required, excluded }: TextQuery): Pick<DocumentQuery, "required" | "excluded"> {
	return {
		required: unique(required.flatMap(indexTerms)),
		// A text without a phrase may have its words.
		excluded: unique(excluded.flatMap((term) => (isOneWord(term) ? indexTerms(term) : []))),
	};
}

/** Returns whether the index decides alone about a query. */
export function isExact({ required, excluded }: TextQuery): boolean {
	return [...required, ...excluded].every(isOneWord);
}

function isOneWord({ words }: Term): boolean {
	return words.length === 1 && words[0]?.isCharacter === false;
}

function indexTerms({ words, isPrefix }: Term): IndexTerm[] {
	return words.flatMap(({ text, isCharacter, isGlued }, n) => {
		if (!isCharacter) {
			const isBegin = isPrefix && n === words.length - 1;
			// The words before it are enough: too many texts have a word with a short beginning.
			return isBegin && isShort(text) ? [] : [{ word: text, isPrefix: isBegin }];
		}
		const next = words[n + 1];
		if (next?.isGlued === true) return [{ word: text + next.text, isPrefix: false }];
		// The pair before has the last character. A single one begins a pair or stands alone.
		return isGlued ? [] : [{ word: text, isPrefix: true }];
	});
}

function unique(terms: readonly IndexTerm[]): IndexTerm[] {
	return [...new Map(terms.map((term) => [`${term.isPrefix} ${term.word}`, term])).values()];
}
