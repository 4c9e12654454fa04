import { titleContains } from "./conditions.ts";
import { columnsOf, type Statements } from "./statements.ts";
import { integer } from "./values.ts";

/** Matches above which they are not collected. */
const maxMatches = 2_000;
/** Trigrams of a text that are looked up; the title itself then decides. */
const maxTrigrams = 6;
/** Titles up to which a trigram is rare: to read them all costs less than the index entries of common trigrams. */
const rareTitles = 128;
/** Common trigrams remembered. */
const maxCommon = 10_000;

/** Looks titles up in the index of their trigrams. */
export class Titles {
	readonly #statements: Statements;
	/**
	 * Terms that were found to be common, so that only the first search for one counts its titles. One that has become
	 * rare since merely makes a search slower.
	 */
	readonly #common = new Set<string>();

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	/**
	 * The sequences of the conversations whose title contains a text, in any order; undefined when they are many or the
	 * text cannot be looked up.
	 */
	find(needle: string): number[] | undefined {
		const terms = trigramsOf(needle).map((trigram) => `"${trigram.replaceAll('"', '""')}"`);
		if (terms.length === 0) return undefined;
		const { text, parameters } = titleContains(needle);
		const found = this.#statements
			.numbers(`
				SELECT c.sequence FROM titles CROSS JOIN conversations c ON c.id = titles.rowid
				WHERE titles MATCH ? AND ${text} LIMIT ?
			`)
			.all(this.#queryOf(terms), ...parameters, maxMatches + 1);
		return found.length > maxMatches ? undefined : found.map((row) => integer(columnsOf(row)[0]));
	}

	/**
	 * The query for titles that may have all of these terms. It is a rare term alone where there is one, because the
	 * index reads the entries of every term in a query.
	 */
	#queryOf(terms: readonly string[]): string {
		const rare = terms.length > 1 ? terms.find((term) => this.#isRare(term)) : undefined;
		return rare ?? terms.join(" AND ");
	}

	#isRare(term: string): boolean {
		if (this.#common.has(term)) return false;
		const row = this.#statements
			.numbers("SELECT count(*) FROM (SELECT 1 FROM titles WHERE titles MATCH ? LIMIT ?)")
			.get(term, rareTitles + 1);
		if (integer(columnsOf(row)[0]) <= rareTitles) return true;
		if (this.#common.size >= maxCommon) this.#common.clear();
		this.#common.add(term);
		return false;
	}
}

/** Some trigrams of a text, spread over its length. Empty when it is too short or holds what a query cannot. */
function trigramsOf(text: string): string[] {
	const characters = [...text];
	const last = characters.length - 3;
	if (last < 0 || text.includes("\0")) return [];
	const count = Math.min(last + 1, maxTrigrams);
	const starts = Array.from({ length: count }, (_, n) => Math.round((n * last) / Math.max(1, count - 1)));
	return [...new Set(starts.map((start) => characters.slice(start, start + 3).join("")))];
}
