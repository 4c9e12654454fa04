/**
 * Cuts texts into the words that search finds. Both engines index what {@link indexWords} returns, and the hits are
 * checked with {@link wordsOf}, so that they find the same.
 */

/** A word of a text. */
export interface Word {
	/** The word without case and accents: see {@link fold}. */
	readonly text: string;
	/** Where the word begins and ends in the text, in UTF-16 code units. */
	readonly start: number;
	readonly end: number;
	/** The words that a name such as `FooBar` consists of; undefined for other words. */
	readonly parts?: readonly WordPart[];
	/** Whether the word is a character of a script that puts no spaces between words. */
	readonly isCharacter: boolean;
	/** Whether the word before is such a character too, without anything between them. */
	readonly isGlued: boolean;
	/** Whether the word is a symbol, such as an emoji. Words of a phrase may have symbols between them. */
	readonly isSymbol: boolean;
}

type WordPart = Pick<Word, "text" | "start" | "end">;

/** Maximum length of an indexed word, in UTF-16 code units. Longer words count as equal if they begin alike. */
const MAX_LENGTH = 64;
/** Maximum length of a name whose parts are found. Longer ones are mostly encoded data. */
const MAX_NAME = 40;

/**
 * Letters and digits, or one symbol. ASCII symbols are punctuation: `=` stands between words. What cannot be seen within a
 * word, such as a soft hyphen, belongs to it; only the space without a width ends it.
 */
const RUN =
	/[\p{L}\p{N}](?:[\p{DI}--[\u200b\p{L}\p{N}\p{M}]]*[\p{L}\p{N}\p{M}])*|([[\p{So}\p{Sm}\p{Sc}]--\p{ASCII}])/gv;
const PLAIN = /^[a-z0-9]+$/;
const ASCII = /^[A-Za-z0-9]+$/;
/** A letter or digit of a script that puts no spaces between words. */
const CHARACTER =
	"[[\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Bopo}\\p{scx=Thai}\\p{scx=Laoo}\\p{scx=Khmr}\\p{scx=Mymr}]&&[\\p{L}\\p{N}]]";
const HAS_CHARACTERS = new RegExp(CHARACTER, "v");
/** Parts of a run that are written with spaces between words, or without. */
const PIECES = new RegExp(`(?:${CHARACTER}\\p{M}*)+|[^${CHARACTER}]+`, "gv");
/** Where a part of a name begins: `foo|Bar`, `HTTP|Server`. */
const PART_BEGINS = /(?<=\p{Ll}\p{M}*\p{N}*)(?=\p{Lu})|(?<=\p{Lu}\p{M}*)(?=\p{Lu}\p{M}*\p{Ll})/gu;

const characters = new Intl.Segmenter("und", { granularity: "grapheme" });

/** Returns the words of a text, in their order. */
export function wordsOf(text: string): Word[] {
	const words: Word[] = [];
	for (const { 0: run, 1: symbol, index } of text.matchAll(RUN)) {
		if (symbol !== undefined) {
			const word = { text: run.toLowerCase(), start: index, end: index + run.length };
			words.push({ ...word, isCharacter: false, isGlued: false, isSymbol: true });
		} else if (ASCII.test(run) || !HAS_CHARACTERS.test(run)) addWord(words, run, index);
		else
			for (const { 0: piece, index: at } of run.matchAll(PIECES)) {
				if (HAS_CHARACTERS.test(piece)) addCharacters(words, piece, index + at);
				else addWord(words, piece, index + at);
			}
	}
	return words;
}

function addWord(words: Word[], run: string, start: number): void {
	const isPlain = PLAIN.test(run);
	const text = cut(isPlain ? run : fold(run));
	if (text === "") return;
	const parts = isPlain ? undefined : partsOf(run, start);
	const word = { text, start, end: start + run.length, isCharacter: false, isGlued: false, isSymbol: false };
	words.push(parts === undefined ? word : { ...word, parts });
}

function addCharacters(words: Word[], run: string, start: number): void {
	for (const { segment, index } of characters.segment(run)) {
		const text = cut(fold(segment));
		if (text === "") continue;
		const before = words.at(-1);
		const isGlued = before?.isCharacter === true && before.end === start + index;
		const place = { start: start + index, end: start + index + segment.length };
		words.push({ text, ...place, isCharacter: true, isGlued, isSymbol: false });
	}
}

function partsOf(run: string, start: number): readonly WordPart[] | undefined {
	if (run.length > MAX_NAME) return undefined;
	const begins = [0, ...[...run.matchAll(PART_BEGINS)].map(({ index }) => index)];
	if (begins.length === 1) return undefined;
	return begins.map((begin, n) => {
		const end = begins[n + 1] ?? run.length;
		return { text: cut(fold(run.slice(begin, end))), start: start + begin, end: start + end };
	});
}

/**
 * Marks that only accent or point a letter: those that Unicode inherits from the letter before, and those of scripts which
 * are mostly written without them. Not the voicing marks of Japanese, and not the marks of scripts whose vowels are marks,
 * such as Devanagari and Thai: there they tell words apart.
 */
const ACCENTS =
	/[[\p{sc=Inherited}--[\u3099\u309a]]\p{DI}[\p{Mn}&&[\p{sc=Hebr}\p{sc=Arab}\p{sc=Syrc}\p{sc=Samr}\p{sc=Mand}\p{sc=Grek}\p{sc=Cyrl}\p{sc=Copt}\p{sc=Glag}\p{sc=Ethi}]]]/gv;
/** Letters whose stroke or joint Unicode does not decompose. */
const LETTERS: Readonly<Record<string, string>> = { ς: "σ", ø: "o", ł: "l", đ: "d", ħ: "h", æ: "ae", œ: "oe" };
const LETTER = /[ςøłđħæœ]/g;

/** Returns a word without case, accents and variants of letters: `Ｃafé` and `CAFE` become `cafe`. */
export function fold(word: string): string {
	if (PLAIN.test(word)) return word;
	if (ASCII.test(word)) return word.toLowerCase();
	// Upper case first, because some letters have equal upper cases only.
	const lower = word.normalize("NFKD").toUpperCase().toLowerCase().normalize("NFKD");
	return lower
		.replace(ACCENTS, "")
		.replace(LETTER, (letter) => LETTERS[letter] ?? letter)
		.replace(/[^\p{L}\p{N}\p{M}]/gu, "")
		.normalize("NFC");
}

function cut(word: string): string {
	if (word.length <= MAX_LENGTH) return word;
	// Not within a pair of surrogates.
	return /[\ud800-\udbff]$/.test(word.slice(0, MAX_LENGTH)) ? word.slice(0, MAX_LENGTH - 1) : word.slice(0, MAX_LENGTH);
}

/**
 * Returns what is indexed of words, each once: words and their parts, and characters together with the next one, because
 * single characters occur in too many texts.
 */
export function indexWords(words: readonly Word[]): Set<string> {
	const indexed = new Set<string>();
	for (const [n, { text, parts = [], isCharacter }] of words.entries()) {
		const next = words[n + 1];
		indexed.add(isCharacter && next?.isGlued === true ? text + next.text : text);
		for (const part of parts) if (part.text !== "") indexed.add(part.text);
	}
	return indexed;
}
