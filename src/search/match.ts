import type { Term, TextQuery } from "./query.ts";
import { type Word, wordsOf } from "./tokenizer.ts";

export type TextField = "title" | "message" | "finish_message" | "command" | "file_name" | "error";

export interface SearchText {
	readonly field: TextField;
	readonly text: string;
}

/** A part of a text: from `start`, inclusive, to `end`, exclusive. */
export interface TextRange {
	readonly start: number;
	readonly end: number;
}

/** A piece of a text that meets a query. */
export interface Snippet {
	readonly field: TextField;
	/** A part of the text, unchanged. */
	readonly snippet: string;
	/** What matches in the snippet, in its order, without overlaps; in characters (Unicode code points). */
	readonly ranges: readonly TextRange[];
}

/** Number of UTF-16 code units of a snippet, and of those before the first match. */
const SNIPPET = 200;
const LEAD = 60;
/** Maximum length of a match that is shown. There may be anything between the words of a phrase that is no word. */
const MAX_MATCH = 2_000;
/** Maximum number of matches that are compared to find the best snippet. */
const MAX_COMPARED = 200;

/**
 * Returns the best snippet of a document: its texts are those of one event, or a title. Undefined when it does not meet
 * the query.
 */
export function matchDocument(query: TextQuery, texts: readonly SearchText[]): Snippet | undefined {
	const documents = texts.map((text) => ({ ...text, words: wordsOf(text.text) }));
	if (query.excluded.some((term) => documents.some(({ words }) => findTerm(term, words).length > 0))) return undefined;
	const found = documents.map((document) => ({
		document,
		matches: query.required.map((term) => findTerm(term, document.words)),
	}));
	if (query.required.some((_, n) => found.every(({ matches }) => matches[n]?.length === 0))) return undefined;
	const count = ({ matches }: (typeof found)[number]) => matches.filter(({ length }) => length > 0).length;
	// The detail of an error says more than its code.
	const isLonger = (a: SearchText, b: SearchText) => b.field === a.field && b.text.length > a.text.length;
	const best = found.reduce((a, b) => {
		const more = count(b) - count(a);
		return more > 0 || (more === 0 && isLonger(a.document, b.document)) ? b : a;
	});
	return snippetOf(best.document, best.matches);
}

/** Returns what of a text the words of a query match, in UTF-16 code units. The ranges may overlap. */
export function matchesIn(query: TextQuery, text: string): TextRange[] {
	const words = wordsOf(text);
	return query.required.flatMap((term) => findTerm(term, words)).sort((a, b) => a.start - b.start);
}

/** Returns the places of a term in a text. */
function findTerm({ words: wanted, isPrefix }: Term, words: readonly Word[]): TextRange[] {
	const ranges: TextRange[] = [];
	for (let at = 0; at + wanted.length <= words.length; at++) {
		let first: TextRange | undefined;
		let last: TextRange | undefined;
		let next = at;
		for (let n = 0; n < wanted.length; n++) {
			const one = wanted[n];
			// Symbols between the words of a phrase do not count, like punctuation.
			while (n > 0 && one?.isSymbol === false && words[next]?.isSymbol === true) next += 1;
			const word = words[next];
			next += 1;
			last = undefined;
			if (word === undefined || one === undefined) break;
			const isBegin = isPrefix && n === wanted.length - 1;
			last = n > 0 && one.isGlued && !word.isGlued ? undefined : meeting(word, one.text, isBegin);
			if (last === undefined) break;
			first ??= last;
		}
		if (first !== undefined && last !== undefined) ranges.push({ start: first.start, end: last.end });
	}
	return ranges;
}

/** Returns the range of a word, or of a part of it, that is or begins with a text. */
function meeting(word: Word, wanted: string, isBegin: boolean): TextRange | undefined {
	if (meets(word, wanted, isBegin)) return word;
	return word.parts?.find((part) => meets(part, wanted, isBegin));
}

function meets({ text }: Pick<Word, "text">, wanted: string, isBegin: boolean): boolean {
	return isBegin ? text.startsWith(wanted) : text === wanted;
}

function snippetOf({ field, text }: SearchText, matches: readonly (readonly TextRange[])[]): Snippet {
	const all = matches
		.flatMap((ranges, term) =>
			ranges.map(({ start, end }) => ({
				start,
				end: end - start > MAX_MATCH ? wholeCharacter(text, start + MAX_MATCH) : end,
				term,
			})),
		)
		.sort((a, b) => a.start - b.start || b.end - a.end);
	let best = { terms: 0, start: 0 };
	for (const [n, { start }] of all.slice(0, MAX_COMPARED).entries()) {
		const terms = new Set<number>();
		for (let at = n; at < all.length; at++) {
			const range = all[at];
			if (range === undefined || range.end > start + SNIPPET - LEAD) break;
			terms.add(range.term);
		}
		if (terms.size > best.terms || n === 0) best = { terms: terms.size, start };
	}
	const longest = all.find(({ start }) => start === best.start)?.end ?? best.start;
	const start = beginOf(text, best.start);
	const end = Math.max(longest, wholeCharacter(text, Math.min(text.length, start + SNIPPET)));
	const ranges: { start: number; end: number }[] = [];
	for (const range of all) {
		if (range.start < start || range.end > end) continue;
		const before = ranges.at(-1);
		if (before !== undefined && range.start < before.end) before.end = Math.max(before.end, range.end);
		else ranges.push({ start: range.start, end: range.end });
	}
	const snippet = text.slice(start, end);
	const characters = characterCounter(snippet);
	return {
		field,
		snippet,
		ranges: ranges.map((range) => ({ start: characters(range.start - start), end: characters(range.end - start) })),
	};
}

/** Returns where a snippet begins: some words before its first match. */
function beginOf(text: string, firstMatch: number): number {
	const begin = firstMatch - LEAD;
	if (begin <= 0) return 0;
	const space = text.slice(begin, firstMatch).search(/\s/);
	return space === -1 ? wholeCharacter(text, begin) : begin + space + 1;
}

/** What is shown with the character before: accents, vowels, and the joiner of emoji. */
const MARKS = /[\p{M}\u200d]{0,16}/uy;

/** Moves a place out of a pair of surrogates, and behind the marks of the character before. */
function wholeCharacter(text: string, place: number): number {
	const code = text.charCodeAt(place);
	const whole = code >= 0xdc00 && code <= 0xdfff ? place + 1 : place;
	MARKS.lastIndex = whole;
	return whole + (MARKS.exec(text)?.[0].length ?? 0);
}

/** Returns a function that converts growing places in UTF-16 code units to places in characters. */
function characterCounter(text: string): (place: number) => number {
	let [at, count] = [0, 0];
	return (place) => {
		for (; at < place; count++) at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
		return count;
	};
}
