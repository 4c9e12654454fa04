import { createHash, type Hash } from "node:crypto";
import { keyOf, type RowKey, type RowKind, rowKinds, type StoredRows } from "../stored-rows.ts";
import type { StoredUpdate } from "../updates.ts";
import { type After, BEGINNING, type Counts, type ExportSource, PAGE_BYTES, PAGE_ROWS } from "./databases.ts";
import { type End, lineOf, manifestLine, rowLine, wholeUpdateLine } from "./lines.ts";

/** Called with the number of exported, imported or verified rows, and the number of all rows. */
export type OnRows = (done: number, total: number) => void;

/**
 * Exports a database as JSON lines: see lines.ts. Databases with the same contents have the same lines, whatever their
 * engine.
 *
 * @param after Undefined for an export of everything, which can be imported. Otherwise only the updates and the events
 *   after these sequences are exported, with whole records, for other programs.
 * @param withKeys Whether the hashes of access keys are exported. They give access where the export is imported.
 * @returns the lines, several in each text
 */
export async function* exportLines(
	source: ExportSource,
	after: After | undefined,
	onRows: OnRows,
	withKeys = false,
): AsyncGenerator<string> {
	const ranges = await source.ranges();
	const all = await source.counts(after ?? BEGINNING);
	const kinds = withKeys ? rowKinds : rowKinds.filter((kind) => kind !== "accessKey");
	const counts =
		after === undefined
			? { ...NO_ROWS, ...Object.fromEntries(kinds.map((kind) => [kind, all[kind]])) }
			: // Each erasure is an update, too.
				{ ...NO_ROWS, update: all.update + all.erasure, event: all.event };
	const digest = new LineDigest();
	const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
	yield digest.add(manifestLine({ after, counts, ...ranges }), 1);
	for await (const page of after === undefined ? storedLines(source, kinds) : newLines(source, after)) {
		yield digest.add(page.join(""), page.length);
		onRows(digest.lines - 1, total);
	}
	yield lineOf("end", digest.end());
}

const NO_ROWS: Counts = {
	conversation: 0,
	activity: 0,
	update: 0,
	event: 0,
	usage: 0,
	prunedUpdates: 0,
	prunedEvents: 0,
	gaps: 0,
	accessKey: 0,
	sender: 0,
	refusedPost: 0,
	erasure: 0,
	audit: 0,
	endpoint: 0,
	budget: 0,
	notice: 0,
};

/** Counts lines, and computes their SHA-256. */
export class LineDigest {
	readonly #hash: Hash = createHash("sha256");
	lines = 0;

	/** Adds lines and returns them. */
	add<Text extends string | Uint8Array>(text: Text, lines: number): Text {
		this.#hash.update(text);
		this.lines += lines;
		return text;
	}

	/** Returns the end of the lines that were added. */
	end(): End {
		return { sha256: this.#hash.copy().digest("hex") };
	}
}

/** Returns the lines of all rows of these kinds, in the order in which an import writes them, in pages. */
export async function* storedLines(
	source: Pick<ExportSource, "rows">,
	kinds: readonly RowKind[] = rowKinds,
): AsyncGenerator<readonly string[]> {
	for (const kind of kinds) yield* linesOf(source, kind, undefined);
}

async function* linesOf<Kind extends RowKind>(
	source: Pick<ExportSource, "rows">,
	kind: Kind,
	after: RowKey | undefined,
) {
	const read = (last: StoredRows[Kind] | undefined) => source.rows(kind, last === undefined ? after : keyOf(last));
	for await (const page of pages(read)) yield page.map((row) => rowLine(kind, row));
}

/** Returns the lines of the updates, with whole records, and of the events after these sequences, in pages. */
async function* newLines(source: ExportSource, { update, event }: After): AsyncGenerator<readonly string[]> {
	const limits = { limit: PAGE_ROWS, maxBytes: PAGE_BYTES, withRecords: true };
	const read = (last: StoredUpdate | undefined) => source.listUpdates({ after: last?.sequence ?? update, ...limits });
	for await (const page of pages(read)) yield page.map(wholeUpdateLine);
	yield* linesOf(source, "event", event);
}

/** Reads pages until an empty one. `read` receives the last item of the page before. */
async function* pages<Item>(
	read: (last: Item | undefined) => Promise<readonly Item[]>,
): AsyncGenerator<readonly Item[]> {
	for (let page = await read(undefined); page.length > 0; page = await read(page.at(-1))) yield page;
}
