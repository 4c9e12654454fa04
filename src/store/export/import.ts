import { keyOf, type RowKind, rowKinds, type StoredRows } from "../stored-rows.ts";
import { type ImportTarget, PAGE_BYTES, PAGE_ROWS } from "./databases.ts";
import { LineDigest, type OnRows, storedLines } from "./export.ts";
import { endOf, type Line, type Manifest, manifestOf, parseLine, rowOf } from "./lines.ts";

/**
 * Imports an export of everything into an empty database, or continues an import that was interrupted. Then reads the
 * database again, and compares its lines with the digest of the export. Only afterwards can a service open it.
 *
 * @param chunks the export, uncompressed and cut anywhere
 * @returns the manifest of the export
 * @throws Error when the export is damaged, incomplete or not of everything, or the target holds other data
 * @throws ServiceError when the database fails
 */
export async function importStore(
	chunks: AsyncIterable<Uint8Array>,
	target: ImportTarget,
	onImported: OnRows,
	onVerified: OnRows,
): Promise<Manifest> {
	const lines = new LineReader(chunks);
	const first = await lines.take();
	const manifest = manifestOf(first);
	const { after, counts } = manifest;
	if (after !== undefined) throw new Error("the export has only what was new after a sequence, and cannot be imported");
	const total = rowKinds.reduce((sum, kind) => sum + counts[kind], 0);
	await target.begin(first.text);
	for (const kind of rowKinds) await importRows(kind, lines, target, () => onImported(lines.digest.lines - 1, total));
	const read = lines.digest.end();
	const { sha256 } = endOf(await lines.take());
	if (sha256 !== read.sha256 || (await lines.peek()) !== undefined)
		throw new Error("the export is damaged: its lines do not have the digest that its last line names");

	const written = new LineDigest();
	written.add(first.text, 1);
	for await (const page of storedLines(target)) {
		written.add(page.join(""), page.length);
		onVerified(written.lines - 1, total);
	}
	if (written.end().sha256 !== sha256)
		throw new Error("the imported rows differ from those of the export: remove them and start again");
	await target.finish(manifest, counts);
	return manifest;
}

/** Writes the rows of one kind, except those that an interrupted import has written. */
async function importRows<Kind extends RowKind>(
	kind: Kind,
	lines: LineReader,
	target: ImportTarget,
	onPage: () => void,
): Promise<void> {
	const last = await target.last(kind);
	let page: StoredRows[Kind][] = [];
	let bytes = 0;
	async function flush(): Promise<void> {
		if (page.length === 0) return;
		await target.write(kind, page);
		[page, bytes] = [[], 0];
		onPage();
	}
	while ((await lines.peek())?.name === kind) {
		const { value, text } = await lines.take();
		const row = lines.parsed(() => rowOf(kind, value));
		if (last !== undefined && keyOf(row) <= last) continue;
		page.push(row);
		bytes += text.length;
		if (page.length === PAGE_ROWS || bytes > PAGE_BYTES) await flush();
	}
	await flush();
}

/** A line with its text, which has a line end. */
interface TextLine extends Line {
	readonly text: string;
}

/** Reads lines one by one. */
class LineReader {
	/** Of the lines that were taken. */
	readonly digest = new LineDigest();
	readonly #lines: AsyncIterator<string>;
	#peeked: Promise<TextLine | undefined> | undefined;
	/** Number of the line that was read last. */
	#read = 0;

	constructor(chunks: AsyncIterable<Uint8Array>) {
		this.#lines = linesIn(chunks);
	}

	/** Returns the next line and leaves it there; undefined at the end. */
	peek(): Promise<TextLine | undefined> {
		this.#peeked ??= this.#readLine();
		return this.#peeked;
	}

	/** @throws Error when there are no more lines */
	async take(): Promise<TextLine> {
		const line = await this.peek();
		if (line === undefined) throw new Error("the export is incomplete: it was not written to its end");
		this.#peeked = undefined;
		this.digest.add(line.text, 1);
		return line;
	}

	async #readLine(): Promise<TextLine | undefined> {
		const { done, value: text } = await this.#lines.next();
		if (done === true) return undefined;
		this.#read += 1;
		return { ...this.parsed(() => parseLine(text)), text };
	}

	/** Calls a function that parses the line that was read last, and adds the number of the line to its errors. */
	parsed<Parsed>(parse: () => Parsed): Parsed {
		try {
			return parse();
		} catch (cause) {
			throw new Error(`line ${this.#read} cannot be read`, { cause });
		}
	}
}

const LINE_END = 0x0a;

/** Cuts chunks into lines, with their line ends. A text after the last line end is no line. */
async function* linesIn(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
	let begun: Uint8Array[] = [];
	for await (const chunk of chunks) {
		let from = 0;
		for (let end = chunk.indexOf(LINE_END); end >= 0; end = chunk.indexOf(LINE_END, from)) {
			yield Buffer.concat([...begun, chunk.subarray(from, end + 1)]).toString();
			begun = [];
			from = end + 1;
		}
		if (from < chunk.length) begun.push(chunk.subarray(from));
	}
}
