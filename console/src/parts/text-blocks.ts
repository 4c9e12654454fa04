/** Most characters of a block. */
const BLOCK = 2_000;
/** Characters that a line of a block is expected to show, for its height until it comes into view. */
const COLUMNS = 90;

/** A part of a text that is shown as a block. */
export interface TextBlock {
	readonly text: string;
	/** Number of lines that the block is expected to have. */
	readonly lines: number;
}

/**
 * Returns the blocks of a text: it is cut at the end of a line, else at a space, else anywhere but within a character.
 * The end of a line at which it is cut is left out, because each block begins a line.
 */
export function blocksOf(text: string): readonly TextBlock[] {
	const blocks: TextBlock[] = [];
	for (let start = 0; start < text.length; ) {
		let end = Math.min(start + BLOCK, text.length);
		let next = end;
		if (end < text.length) {
			const line = text.lastIndexOf("\n", end);
			const space = text.lastIndexOf(" ", end - 1);
			if (line >= start) [end, next] = [line, line + 1];
			else if (space > start) end = next = space + 1;
			else if (isLowSurrogate(text.charCodeAt(end))) end = next = end - 1;
		}
		const part = text.slice(start, end);
		// An empty line at the end of a block is only shown with an end of its own.
		const isCutLine = next > end && (part === "" || part.endsWith("\n"));
		blocks.push({ text: isCutLine ? `${part}\n` : part, lines: linesOf(part) });
		start = next;
	}
	return blocks;
}

function isLowSurrogate(unit: number): boolean {
	return unit >= 0xdc00 && unit <= 0xdfff;
}

function linesOf(text: string): number {
	return text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / COLUMNS)), 0);
}
