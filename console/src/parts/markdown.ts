/**
 * The structure of a text in Markdown: headings, lists, quotes, code, bold and italic. All else, also links, images and
 * HTML, stays the text that it is. The structure holds only texts, so that showing it cannot run, link or fetch
 * anything. Parsing takes time in proportion to the length of the text.
 */

/** A part of a line. */
export type Inline =
	| { readonly kind: "text" | "code"; readonly text: string }
	| { readonly kind: "strong" | "emphasis"; readonly children: readonly Inline[] };

/** A part of a text that begins on its own line. */
export type Block =
	| { readonly kind: "paragraph"; readonly children: readonly Inline[] }
	| { readonly kind: "heading"; readonly level: number; readonly children: readonly Inline[] }
	/** `info` is what stands behind the opening fence, such as a language. */
	| { readonly kind: "code"; readonly info: string; readonly text: string }
	| { readonly kind: "quote"; readonly blocks: readonly Block[] }
	| { readonly kind: "list"; readonly start: number | undefined; readonly items: readonly (readonly Block[])[] }
	| { readonly kind: "rule" };

/** Quotes and lists that are nested deeper are text. */
const MAX_DEPTH = 8;
/** Bold and italic that are nested deeper are text. */
const MAX_SPANS = 16;

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])([ \t]+)(?=\S)/;
const TABLE = /^ {0,3}\|.*\|\s*$/;

/** Returns the structure of a text. */
export function parseMarkdown(text: string): readonly Block[] {
	return blocksOf(text.split(/\r?\n/), 0);
}

function blocksOf(lines: readonly string[], depth: number): readonly Block[] {
	const blocks: Block[] = [];
	let paragraph: string[] = [];
	const endParagraph = (): void => {
		if (paragraph.length > 0) blocks.push({ kind: "paragraph", children: inlinesOf(paragraph.join("\n")) });
		paragraph = [];
	};
	const takeWhile = (from: number, meets: (line: string) => boolean): string[] => {
		let end = from;
		while (end < lines.length && meets(lines[end] ?? "")) end += 1;
		return lines.slice(from, end);
	};
	for (let index = 0; index < lines.length; ) {
		const line = lines[index] ?? "";
		const [, fence, info = ""] = FENCE.exec(line) ?? [];
		const [, hashes, title] = HEADING.exec(line) ?? [];
		if (line.trim() === "") {
			endParagraph();
			index += 1;
		} else if (fence !== undefined) {
			endParagraph();
			const code = takeWhile(index + 1, (one) => !closes(one, fence));
			blocks.push({ kind: "code", info: info.trim(), text: code.join("\n") });
			index += code.length + 2;
		} else if (hashes !== undefined && title !== undefined) {
			endParagraph();
			blocks.push({ kind: "heading", level: hashes.length, children: inlinesOf(title.trim()) });
			index += 1;
		} else if (isRule(line)) {
			endParagraph();
			blocks.push({ kind: "rule" });
			index += 1;
		} else if (TABLE.test(line)) {
			endParagraph();
			// In a font of fixed width its columns stand below each other.
			const table = takeWhile(index, (one) => TABLE.test(one));
			blocks.push({ kind: "code", info: "", text: table.join("\n") });
			index += table.length;
		} else if (depth < MAX_DEPTH && QUOTE.test(line)) {
			endParagraph();
			const quoted = takeWhile(index, (one) => QUOTE.test(one));
			const inner = quoted.map((one) => one.replace(QUOTE, ""));
			blocks.push({ kind: "quote", blocks: blocksOf(inner, depth + 1) });
			index += quoted.length;
		} else if (depth < MAX_DEPTH && ITEM.test(line)) {
			endParagraph();
			const list = listAt(lines, index, depth);
			blocks.push(list.block);
			index = list.end;
		} else {
			paragraph.push(line);
			index += 1;
		}
	}
	endParagraph();
	return blocks;
}

function closes(line: string, fence: string): boolean {
	const text = line.trim();
	return text.length >= fence.length && text === (fence[0] ?? "").repeat(text.length);
}

function isRule(line: string): boolean {
	return /^ {0,3}[-*_]/.test(line) && /^(-{3,}|\*{3,}|_{3,})$/.test(line.replace(/[ \t]/g, ""));
}

/** Returns the list that begins at a line, and the line after it. */
function listAt(lines: readonly string[], from: number, depth: number): { block: Block; end: number } {
	const items: (readonly Block[])[] = [];
	const [, , marker = "", number] = ITEM.exec(lines[from] ?? "") ?? [];
	let index = from;
	while (index < lines.length) {
		const [all = "", , next = "", other] = ITEM.exec(lines[index] ?? "") ?? [];
		// Another kind of marker begins another list.
		if (all === "" || (number === undefined ? next !== marker : other === undefined)) break;
		const own = [(lines[index] ?? "").slice(all.length)];
		index += 1;
		while (index < lines.length) {
			const line = lines[index] ?? "";
			const isIndented = line.startsWith(" ".repeat(Math.min(all.length, 2))) && !isSibling(line, all);
			const isContinued = line.trim() !== "" && lines[index - 1]?.trim() !== "" && !beginsBlock(line);
			const isGap = line.trim() === "" && (lines[index + 1] ?? "").startsWith("  ");
			if (!isIndented && !isContinued && !isGap) break;
			own.push(withoutIndent(line, all.length));
			index += 1;
		}
		items.push(blocksOf(own, depth + 1));
		// One empty line may stand between two items.
		if ((lines[index] ?? "").trim() === "" && ITEM.test(lines[index + 1] ?? "")) index += 1;
	}
	return { block: { kind: "list", start: number === undefined ? undefined : Number(number), items }, end: index };
}

/** Whether a line is an item that stands at the indent of another one, or before it. */
function isSibling(line: string, item: string): boolean {
	const [, indent = ""] = ITEM.exec(line) ?? [];
	return ITEM.test(line) && indent.length < Math.min(item.length, 2);
}

function beginsBlock(line: string): boolean {
	return [FENCE, HEADING, QUOTE, ITEM, TABLE].some((pattern) => pattern.test(line)) || isRule(line);
}

function withoutIndent(line: string, most: number): string {
	let indent = 0;
	while (indent < most && line[indent] === " ") indent += 1;
	return line.slice(indent);
}

/** An opening mark, and what has come since. */
interface Span {
	readonly mark: string;
	readonly children: Inline[];
}

/** Returns the parts of a text: code, bold, italic, and the rest. */
function inlinesOf(text: string): readonly Inline[] {
	const spans: Span[] = [{ mark: "", children: [] }];
	const add = (inline: Inline): void => {
		const children = spans.at(-1)?.children;
		const last = children?.at(-1);
		if (inline.kind === "text" && last?.kind === "text") children?.splice(-1, 1, joined(last.text, inline.text));
		else children?.push(inline);
	};
	/** Makes the innermost opening mark a text. */
	const undo = (): void => {
		const span = spans.pop();
		add({ kind: "text", text: span?.mark ?? "" });
		for (const child of span?.children ?? []) add(child);
	};
	// A run of marks, or a character that a backslash makes a text.
	const pattern = /\\[!-/:-@[-`{-~]|`+|\*+|_+/g;
	const unclosed = new Set<number>();
	let from = 0;
	for (let found = pattern.exec(text); found !== null; found = pattern.exec(text)) {
		const [run] = found;
		const at = found.index;
		if (at > from) add({ kind: "text", text: text.slice(from, at) });
		from = at + run.length;
		if (run.startsWith("\\")) add({ kind: "text", text: run.slice(1) });
		else if (run.startsWith("`")) {
			const end = unclosed.has(run.length) ? -1 : endOfCode(text, from, run.length);
			if (end < 0) {
				unclosed.add(run.length);
				add({ kind: "text", text: run });
			} else {
				add({ kind: "code", text: text.slice(from, end) });
				from = end + run.length;
				pattern.lastIndex = from;
			}
		} else {
			const [before, after] = [text[at - 1] ?? " ", text[from] ?? " "];
			const open = spans.findLastIndex(({ mark }) => mark === run);
			if (open > 0 && run.length <= 3 && !/\s/.test(before) && !(run[0] === "_" && /\w/.test(after))) {
				while (spans.length > open + 1) undo();
				const children = spans.pop()?.children ?? [];
				const emphasis: Inline = { kind: "emphasis", children };
				if (run.length === 1) add(emphasis);
				else add({ kind: "strong", children: run.length === 2 ? children : [emphasis] });
			} else if (
				run.length <= 3 &&
				spans.length < MAX_SPANS &&
				!/\s/.test(after) &&
				!(run[0] === "_" && /\w/.test(before))
			)
				spans.push({ mark: run, children: [] });
			else add({ kind: "text", text: run });
		}
	}
	if (from < text.length) add({ kind: "text", text: text.slice(from) });
	while (spans.length > 1) undo();
	return spans[0]?.children ?? [];
}

function joined(before: string, text: string): Inline {
	return { kind: "text", text: before + text };
}

/** Returns where the run of backticks begins that closes code; negative if there is none. */
function endOfCode(text: string, from: number, length: number): number {
	const pattern = /`+/g;
	pattern.lastIndex = from;
	for (let found = pattern.exec(text); found !== null; found = pattern.exec(text))
		if (found[0].length === length) return found.index;
	return -1;
}
