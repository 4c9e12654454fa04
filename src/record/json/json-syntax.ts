/** Where and why a text is not JSON. */
export interface JsonSyntaxError {
	/** Offset of the place in Unicode code points, from 0. */
	readonly offset: number;
	/** What is wrong there: a fixed phrase that quotes nothing of the text. */
	readonly reason: string;
}

/** RFC 8259, section 6. */
const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const literal = /true|false|null/y;
const hexDigits = /[0-9a-fA-F]{4}/y;
const quote = 0x22;
const backslash = 0x5c;

/**
 * Finds the first place where a text stops being JSON. Reason and offset are those of Python 3.13's json module, which
 * FastAPI reports as `json_invalid`, except that `NaN` and the infinities, which Python lets pass, are errors (RFC 8259
 * does not know them). Takes time in proportion to the text and one byte of memory for each of its characters, however
 * deep it nests.
 *
 * @param text a text that JSON.parse refused, without a byte-order mark
 * @throws {TypeError} when the text is JSON
 */
export function locateJsonError(text: string): JsonSyntaxError {
	try {
		scan(text);
	} catch (error) {
		if (!(error instanceof Failure)) throw error;
		let offset = 0;
		for (const _ of text.slice(0, error.index)) offset++;
		return { offset, reason: error.message };
	}
	throw new TypeError("The text is well-formed JSON");
}

class Failure extends Error {
	/** In UTF-16 code units. */
	readonly index: number;

	constructor(index: number, reason: string) {
		super(reason);
		this.index = index;
	}
}

function scan(text: string): void {
	/** For each open container, outermost first, whether it is an object. */
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
		// A value has ended: so do the containers that close after it, up to a comma.
		index = skipBlanks(text, index);
		while (depth > 0 && text[index] === (open[depth - 1] === 1 ? "}" : "]")) {
			depth--;
			index = skipBlanks(text, index + 1);
		}
		if (depth > 0) index = scanComma(text, index, open[depth - 1] === 1);
		else if (index === text.length) return;
		else throw new Failure(index, "Extra data");
	}
}

/** Scans the comma between members or elements, and a member's name; gives the index where the next value begins. */
function scanComma(text: string, index: number, inObject: boolean): number {
	if (text[index] !== ",") throw new Failure(index, "Expecting ',' delimiter");
	const next = skipBlanks(text, index + 1);
	if (text[next] === (inObject ? "}" : "]"))
		throw new Failure(index, `Illegal trailing comma before end of ${inObject ? "object" : "array"}`);
	return inObject ? scanName(text, next) : next;
}

/** Scans a member's name and colon; gives the index where its value begins. */
function scanName(text: string, index: number): number {
	if (text[index] !== '"') throw new Failure(index, "Expecting property name enclosed in double quotes");
	const colon = skipBlanks(text, scanString(text, index));
	if (text[colon] !== ":") throw new Failure(colon, "Expecting ':' delimiter");
	return skipBlanks(text, colon + 1);
}

/** Scans a string, number or literal; gives the index after it. */
function scanScalar(text: string, index: number): number {
	if (text[index] === '"') return scanString(text, index);
	const end = Math.max(skip(literal, text, index), skip(number, text, index));
	if (end === index) throw new Failure(index, "Expecting value");
	return end;
}

/** Scans a string whose opening quote stands at `start`; gives the index after its closing quote (RFC 8259, section 7). */
function scanString(text: string, start: number): number {
	let index = start + 1;
	for (;;) {
		// A loop, because a regular expression for all of a string would need a stack that grows with it.
		let code = text.charCodeAt(index);
		while (code >= 0x20 && code !== quote && code !== backslash) code = text.charCodeAt(++index);
		if (code === quote) return index + 1;
		if (code < 0x20) throw new Failure(index, "Invalid control character at");
		const escaped = text[index + 1];
		if (escaped === undefined) throw new Failure(start, "Unterminated string starting at");
		if (escaped === "u") {
			const end = skip(hexDigits, text, index + 2);
			// Python wants a character after the digits too, and blames the escape when the text ends there.
			if (end === index + 2 || end === text.length) throw new Failure(index + 1, "Invalid \\uXXXX escape");
			index = end;
		} else {
			if (!'"\\/bfnrt'.includes(escaped)) throw new Failure(index, "Invalid \\escape");
			index += 2;
		}
	}
}

/** The index after what a sticky expression matches at `index`; `index` itself when it matches nothing. */
function skip(pattern: RegExp, text: string, index: number): number {
	pattern.lastIndex = index;
	return pattern.test(text) ? pattern.lastIndex : index;
}

/** The index of the first character from `index` on that is no white space (RFC 8259, section 2). */
function skipBlanks(text: string, index: number): number {
	let end = index;
	while (isBlank(text.charCodeAt(end))) end++;
	return end;
}

/** Whether a character is white space (RFC 8259, section 2). */
export function isBlank(code: number): boolean {
	return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
