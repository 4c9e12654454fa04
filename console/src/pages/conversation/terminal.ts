import Anser from "anser";

/** What a terminal shows of the output of a program: colours, and lines that were written over. */

/** A piece of a line in one style. */
export interface Run {
	readonly text: string;
	/** Names of classes of the style sheet, separated by spaces. */
	readonly style: string;
}

export type TerminalLine = readonly Run[];

/** Whether a text has anything but lines: an escape sequence, a return to the start of the line, or a backspace. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal obeys them.
const NOT_PLAIN = /[\x1b\r\b]/;
/** Escape sequences that the library leaves in the text: those that name the window, choose letters, and move. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal obeys them.
const OTHER_SEQUENCES = /\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()*+][A-Za-z0-9]|[=>78cDEHMNOZ])/g;
/** Erases to the end of the line, or all of it. The letter stands for it within the text until its line is written. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal obeys them.
const ERASE = /\x1b\[[012]?K/g;
const ERASED = "\x7f";
/** Columns beyond which a line is not written over. */
const MAX_COLUMNS = 20_000;

/** Whether a text is nothing but lines. */
export function isPlain(text: string): boolean {
	return !NOT_PLAIN.test(text);
}

/** Returns the lines that a terminal shows after a text was written to it. */
export function terminalLines(text: string): readonly TerminalLine[] {
	const plain = text.replaceAll("\r\n", "\n");
	if (!NOT_PLAIN.test(plain)) return plain.split("\n").map((line) => [{ text: line, style: "" }]);
	const marked = plain.replaceAll(ERASED, "").replace(ERASE, ERASED).replace(OTHER_SEQUENCES, "");
	const screen = new Screen();
	// Sequence by sequence, because the library gives all of them the decorations of the last one.
	const anser = new Anser();
	const [first = "", ...sequences] = marked.split("\x1b[");
	screen.write(first, "");
	for (const sequence of sequences) {
		const { content, fg, bg, decorations } = anser.processChunkJson(sequence, { use_classes: true }, true);
		screen.write(content, styleOf(fg, bg, decorations));
	}
	return screen.lines();
}

/** Returns the text that a terminal shows. */
export function terminalText(text: string): string {
	if (!NOT_PLAIN.test(text)) return text;
	return terminalLines(text)
		.map((line) => line.map((run) => run.text).join(""))
		.join("\n");
}

function styleOf(fg: string | null, bg: string | null, decorations: readonly string[]): string {
	const isReversed = decorations.includes("reverse");
	const [front, back] = isReversed ? [bg, fg] : [fg, bg];
	return [
		front && `${colourOf(front)}-fg`,
		back && `${colourOf(back)}-bg`,
		...decorations.map((decoration) => `ansi-${decoration}`),
	]
		.filter(Boolean)
		.join(" ");
}

/** Returns the class of a colour: one of the sixteen, which the style sheet has for each theme. */
function colourOf(name: string): string {
	const [, index] = /^ansi-palette-(\d+)$/.exec(name) ?? [];
	if (index === undefined) return name === "ansi-truecolor" ? "ansi-other" : name;
	return Number(index) >= 232 ? "ansi-bright-black" : "ansi-other";
}

/** The lines that were written so far. */
class Screen {
	readonly #lines: TerminalLine[] = [];
	/** The letters and styles of the line that is written. */
	#letters: string[] = [];
	#styles: string[] = [];
	#column = 0;

	write(text: string, style: string): void {
		for (const letter of text)
			if (letter === "\n") this.#end();
			else if (letter === "\r") this.#column = 0;
			else if (letter === "\b") this.#column = Math.max(0, this.#column - 1);
			else if (letter === ERASED) {
				this.#letters.length = Math.min(this.#letters.length, this.#column);
				this.#styles.length = this.#letters.length;
			} else if (letter !== "\x1b") {
				const at = this.#column < MAX_COLUMNS ? this.#column : this.#letters.length;
				this.#letters[at] = letter;
				this.#styles[at] = style;
				this.#column = at + 1;
			}
	}

	lines(): readonly TerminalLine[] {
		this.#end();
		return this.#lines;
	}

	#end(): void {
		const runs: { text: string; style: string }[] = [];
		for (const [index, letter] of this.#letters.entries()) {
			const style = this.#styles[index] ?? "";
			const last = runs.at(-1);
			if (last?.style === style) last.text += letter ?? " ";
			else runs.push({ text: letter ?? " ", style });
		}
		this.#lines.push(runs);
		this.#letters = [];
		this.#styles = [];
		this.#column = 0;
	}
}
