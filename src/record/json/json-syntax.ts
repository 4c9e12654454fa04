/** A JSON number (RFC 8259, section 6). */
const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const literal = /true|false|null/y;
const hexDigits = /[0-9a-fA-F]{4}/y;
const quote = 0x22;
const backslash = 0x5c;

/**
 * Finds the place where a text stops being JSON (RFC 8259): the offset in Unicode code points that FastAPI reports, too.
 * It is that of the wrong character, of the quote that begins a string without an end, or of the comma that no value
 * follows. The time is linear in the length of the text. The memory is one byte for each UTF-16 code unit, at any
 * nesting depth.
 *
 * @param text a text that JSON.parse refused, without a byte-order mark
 * @throws {TypeError} when the text is JSON
 */
export function locateJsonError(text: string): number {
	try {
		scan(text);
	} catch (error) {
		if (!(error instanceof Failure)) throw error;
		let offset = 0;
		for (const _ of text.slice(0, error.index)) offset++;
		return offset;
	}
	throw new TypeError("The text is well-formed JSON");
}

class Failure extends Error {
	/** Offset in UTF-16 code units. */
	readonly index: number;

	constructor(index: number) {
		super("The text is not JSON");
		this.index = index;
	}
}

function scan(text: string): void {
	/** One byte for each open container, outermost first: 1 for an object, 0 for an array. */
	const open = new Uint8Array(text.length);
	let depth = 0;
	let index = skipBlanks(text, 0);
	for (;;) {
		const first = text[index];
		if (first === "{" || first === "[") {
			const inObject = first === "{";
			index = skipBlanks(text, index + 1);
			if (text[index] !== (inObject ? "}" : "]")) {
				open[depth++] = inObject ? 1 : 0;
				if (inObject) index = scanName(text, index);
				continue;
			}
			index++;
		} else index = scanScalar(text, index);
		// A value has ended. Close all containers that end directly after it.
		index = skipBlanks(text, index);
		while (depth > 0 && text[index] === (open[depth - 1] === 1 ? "}" : "]")) {
			depth--;
			index = skipBlanks(text, index + 1);
		}
		if (depth > 0) index = scanComma(text, index, open[depth - 1] === 1);
		else if (index === text.length) return;
		else throw new Failure(index);
	}
}

/** Scans the comma before the next member or element, and the member's name. Returns the index of the next value. */
function scanComma(text: string, index: number, inObject: boolean): number {
	if (text[index] !== ",") throw new Failure(index);
	const next = skipBlanks(text, index + 1);
	if (text[next] === (inObject ? "}" : "]")) throw new Failure(index);
	return inObject ? scanName(text, next) : next;
}

/** Scans a member's name and colon. Returns the index where its value begins. */
function scanName(text: string, index: number): number {
	if (text[index] !== '"') throw new Failure(index);
	const colon = skipBlanks(text, scanString(text, index));
	if (text[colon] !== ":") throw new Failure(colon);
	return skipBlanks(text, colon + 1);
}

/** Scans a string, number or literal. Returns the index after it. */
function scanScalar(text: string, index: number): number {
	if (text[index] === '"') return scanString(text, index);
	const end = Math.max(skip(literal, text, index), skip(number, text, index));
	if (end === index) throw new Failure(index);
	return end;
}

/** Scans a string (RFC 8259, section 7) with its opening quote at `start`. Returns the index after the closing one. */
function scanString(text: string, start: number): number {
	let index = start + 1;
	for (;;) {
		// A loop, because a regular expression for the whole string would need a stack that grows with the string.
		let code = text.charCodeAt(index);
		while (code >= 0x20 && code !== quote && code !== backslash) code = text.charCodeAt(++index);
		if (code === quote) return index + 1;
		if (code < 0x20) throw new Failure(index);
		const escaped = text[index + 1];
		if (escaped === undefined) throw new Failure(start);
		if (escaped === "u") {
			const end = skip(hexDigits, text, index + 2);
			if (end === index + 2) throw new Failure(index + 1);
			index = end;
		} else {
			if (!'"\\/bfnrt'.includes(escaped)) throw new Failure(index);
			index += 2;
		}
	}
}

/** Returns the index after the match of a sticky expression at `index`, or `index` itself when there is no match. */
function skip(pattern: RegExp, text: string, index: number): number {
	pattern.lastIndex = index;
	return pattern.test(text) ? pattern.lastIndex : index;
}

/** Returns the index of the first character from `index` on that is not white space (RFC 8259, section 2). */
function skipBlanks(text: string, index: number): number {
	let end = index;
	while (isBlank(text.charCodeAt(end))) end++;
	return end;
}

/** Whether a character is white space (RFC 8259, section 2). */
export function isBlank(code: number): boolean {
	return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
