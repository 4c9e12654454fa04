import { isUtf8 } from "node:buffer";
import { createHash, type Hash } from "node:crypto";
import { z } from "zod";
import type { StoredEvent, StoredUpdate } from "../entries.ts";
import { listEvents, listUpdates } from "../read-logs.ts";
import type { Columns, Session, Value } from "../session.ts";
import { type ColumnType, tableOf } from "../tables.ts";
import { blob } from "../values.ts";
import { type RunInTransaction, resetViews, ViewFollower } from "../views/views.ts";
import {
	type Counts,
	countRows,
	countsBy,
	type ExportedTable,
	exportedColumns,
	exportedTables,
	finishRows,
	PAGE_BYTES,
	PAGE_ROWS,
	pagesOf,
	type Ranges,
	readRanges,
	writeRows,
} from "./tables.ts";

/**
 * The lines of an export. Each is a JSON object with one member, whose name says what the line is: first `manifest`, then
 * rows by their tables, last `end`. 64-bit integers are decimal strings, bytes are base64, and a missing value is null.
 *
 * A change of the lines needs a new {@link FORMAT}. Release 1 wrote format 1.
 */
const FORMAT = 2;

/** Sequences after which an export begins. */
export interface After {
	readonly update: bigint;
	readonly event: bigint;
}

/** The first line, without its name. */
interface Manifest extends Ranges {
	/** Where the export begins: undefined if it is an export of everything, which can be imported. */
	readonly after: After | undefined;
	readonly counts: Counts;
}

/** Returns a line, with its line end. */
function lineOf(name: string, value: object): string {
	return `${JSON.stringify({ [name]: jsonOf(value) })}\n`;
}

/** Returns the line of a row, with the texts of events as they are. */
function rowLine(table: ExportedTable, row: Columns): string {
	return lineOf(table, table === "events" ? { ...row, text: textOf(blob(row.text)) } : row);
}

/** @throws Error when the text of an event is no UTF-8 */
function textOf(bytes: Uint8Array): string {
	if (!isUtf8(bytes)) throw new Error("the text of an event is not UTF-8");
	return Buffer.from(bytes).toString();
}

/** Returns the line of an update with its whole record, as the store returns it. The record is null if it is damaged. */
function updateLine({ record, ...update }: StoredUpdate): string {
	const { bytes = null, ...versions } = record === undefined || "unreadable" in record ? {} : record;
	return lineOf("update", { ...update, ...versions, record: bytes });
}

/** Returns the line of an event, as the store returns it. The text is null if it is damaged. */
function eventLine({ event, ...columns }: StoredEvent): string {
	const { text = null, secrets = [], redactionVersion = null } = "unreadable" in event ? {} : event;
	const json = text && textOf(text);
	return lineOf("event", { ...columns, redactionVersion, secrets, text: json });
}

function jsonOf(value: unknown): unknown {
	if (value === undefined) return null;
	if (typeof value === "bigint") return value.toString();
	if (value instanceof Uint8Array)
		return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
	if (Array.isArray(value)) return value.map(jsonOf);
	if (typeof value !== "object" || value === null) return value;
	return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, jsonOf(member)]));
}

const int64 = z
	.string()
	.regex(/^(0|-?[1-9]\d{0,18})$/)
	.transform(BigInt);
const bytes = z.string().transform((text): Uint8Array => Buffer.from(text, "base64"));

const FORMS: Readonly<Record<ColumnType, z.ZodType<Value>>> = {
	id: z.string(),
	integer: int64,
	count: int64,
	real: z.number(),
	boolean: z.boolean(),
	text: z.string(),
	names: z.string(),
	key: z.string(),
	bytes,
	words: z.never(),
};

const rowForms = new Map<ExportedTable, z.ZodType<Columns>>();

function formOf(name: ExportedTable): z.ZodType<Columns> {
	return rowForms.getOrInsertComputed(name, () => {
		const { columns, nullable } = tableOf(name);
		const forms = exportedColumns(name).map((column) => {
			const type = columns[column] ?? "text";
			const form =
				name === "events" && column === "text" ? z.string().transform((text) => Buffer.from(text)) : FORMS[type];
			return [column, nullable.has(column) ? form.nullable() : form] as const;
		});
		return z.strictObject(Object.fromEntries(forms));
	});
}

const range = z.strictObject({ newest: int64, prunedThrough: int64, lastRemoval: int64 });
const manifest = z
	.strictObject({
		format: z.literal(FORMAT),
		after: z
			.strictObject({ update: int64, event: int64 })
			.nullable()
			.transform((value) => value ?? undefined),
		counts: z.record(z.string(), z.int().nonnegative()),
		updates: range,
		events: range,
	})
	.transform(({ format, counts, ...others }) => ({ ...others, counts: countsBy((table) => counts[table] ?? 0) }));
/** The last line: the SHA-256 of the lines before, with their line ends, in hexadecimal digits. */
const end = z.strictObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/) });

/** A line as it was read: its name and its value, which is not checked yet. */
interface Line {
	readonly name: string;
	readonly value: unknown;
}

/** @throws Error when the text is not a line of an export */
function parseLine(text: string): Line {
	const line: unknown = JSON.parse(text);
	const [[name, value] = [], ...others] = typeof line === "object" && line !== null ? Object.entries(line) : [];
	if (name === undefined || others.length > 0) throw new Error("a line is not an object with one member");
	return { name, value };
}

/** @throws Error when the line is not a manifest, or its format is of another release */
function manifestOf({ name, value }: Line): Manifest {
	if (name !== "manifest") throw new Error("the first line is not the manifest of an export");
	const { format } = z.looseObject({ format: z.int() }).parse(value);
	if (format === 1)
		throw new Error("release 1 wrote the export: import it with release 1, and upgrade the database (docs/upgrade.md)");
	if (format !== FORMAT) throw new Error(`the export has format ${format}; this release knows format ${FORMAT}`);
	return manifest.parse(value);
}

/** Called with the number of exported or imported rows, and the number of all rows. */
type OnRows = (done: number, total: number) => void;

/**
 * Exports a database as JSON lines. Databases with the same contents have the same lines, whatever their
 * engine.
 *
 * @param source sees the database as it was at one moment
 * @param after Undefined for an export of everything, which can be imported. Otherwise only the updates and the events
 *   after these sequences are exported, with whole records, for other programs.
 * @param withKeys Whether the hashes of access keys are exported. They give access where the export is imported.
 * @returns the lines, several in each text
 */
export async function* exportLines(
	source: Session,
	after: After | undefined,
	onRows: OnRows,
	withKeys = false,
): AsyncGenerator<string> {
	const ranges = await readRanges(source);
	const all = await countRows(source);
	const tables = withKeys ? exportedTables : exportedTables.filter((table) => table !== "access_keys");
	const counts = countsBy((table) => (after === undefined && tables.includes(table) ? all[table] : 0));
	const digest = new LineDigest();
	const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
	yield digest.add(lineOf("manifest", { format: FORMAT, after, counts, ...ranges }), 1);
	for await (const page of after === undefined ? storedLines(source, tables) : newLines(source, after)) {
		yield digest.add(page.join(""), page.length);
		onRows(digest.lines - 1, total);
	}
	yield lineOf("end", digest.end());
}

/** Counts lines, and computes their SHA-256. */
class LineDigest {
	readonly #hash: Hash = createHash("sha256");
	lines = 0;

	/** Adds lines and returns them. */
	add<Text extends string | Uint8Array>(text: Text, lines: number): Text {
		this.#hash.update(text);
		this.lines += lines;
		return text;
	}

	/** Returns the last line, without its name, of those that were added. */
	end(): z.infer<typeof end> {
		return { sha256: this.#hash.copy().digest("hex") };
	}
}

/** Returns the lines of all rows of these tables, in the order in which an import writes them, in pages. */
async function* storedLines(source: Session, tables: readonly ExportedTable[]): AsyncGenerator<readonly string[]> {
	for (const table of tables)
		for await (const page of pagesOf(source, table)) yield page.map((row) => rowLine(table, row));
}

const LIMITS = { limit: PAGE_ROWS, maxBytes: PAGE_BYTES };

/** Returns the lines of the updates, with whole records, and of the events after these sequences, in pages. */
async function* newLines(source: Session, { update, event }: After): AsyncGenerator<readonly string[]> {
	const updatesAfter = (after = update) => listUpdates(source, { after, ...LIMITS, withRecords: true });
	for await (const page of pages(updatesAfter)) yield page.map(updateLine);
	for await (const page of pages((after = event) => listEvents(source, { after, ...LIMITS })))
		yield page.map(eventLine);
}

/** Reads pages until an empty one. `read` receives the last sequence of the page before. */
async function* pages<Entry extends { readonly sequence: bigint }>(
	read: (after: bigint | undefined) => Promise<readonly Entry[]>,
): AsyncGenerator<readonly Entry[]> {
	for (let page = await read(undefined); page.length > 0; page = await read(page.at(-1)?.sequence)) yield page;
}

/**
 * Imports an export of everything into an empty database. It finishes only if the lines have the digest that the export names,
 * and the database then holds as many rows. Only afterwards can a service open it.
 *
 * @param chunks the export, uncompressed and cut anywhere
 * @param run see `withImportTarget`
 * @returns the manifest of the export
 * @throws Error when the export is damaged, incomplete or not of everything
 * @throws ServiceError when the database fails
 */
export async function importStore(
	chunks: AsyncIterable<Uint8Array>,
	run: RunInTransaction,
	onImported: OnRows,
): Promise<Manifest> {
	const digest = new LineDigest();
	let manifest: Manifest | undefined;
	let [isEnded, total] = [false, 0];
	let page: { readonly table: ExportedTable; readonly rows: Columns[]; bytes: number } | undefined;
	async function flush(): Promise<void> {
		if (page === undefined) return;
		const { table, rows } = page;
		await run((session) => writeRows(session, table, rows));
		page = undefined;
		onImported(digest.lines - 1, total);
	}
	/** The first table of the lines to come, in the order of an export. */
	let first = 0;
	for await (const text of linesIn(chunks)) {
		const parsed = <Parsed>(parse: () => Parsed): Parsed => {
			try {
				return parse();
			} catch (cause) {
				throw new Error(`line ${digest.lines + 1} cannot be read`, { cause });
			}
		};
		const line = parsed(() => parseLine(text));
		const { name, value } = line;
		if (isEnded) throw damaged();
		if (manifest === undefined) {
			manifest = manifestOf(line);
			if (manifest.after !== undefined)
				throw new Error("the export has only what was new after a sequence, and cannot be imported");
			total = Object.values(manifest.counts).reduce((sum, count) => sum + count, 0);
		} else if (name === "end") {
			await flush();
			if (end.parse(value).sha256 !== digest.end().sha256) throw damaged();
			isEnded = true;
		} else {
			const table = exportedTables.find((known, n) => n >= first && known === name);
			if (table === undefined)
				throw new Error(`a line of the kind ${JSON.stringify(name)} is unknown, or in the wrong place`);
			first = exportedTables.indexOf(table);
			const row = parsed(() => formOf(table).parse(value));
			if (page?.table !== table || page.rows.length === PAGE_ROWS || page.bytes > PAGE_BYTES) await flush();
			page ??= { table, rows: [], bytes: 0 };
			page.rows.push(row);
			page.bytes += text.length;
		}
		digest.add(text, 1);
	}
	if (manifest === undefined || !isEnded) throw new Error("the export is incomplete: it was not written to its end");
	const whole = manifest;
	await run((session) => finishRows(session, whole));
	await run((session) => resetViews(session));
	const follower = new ViewFollower(run);
	while (await follower.step());
	return manifest;
}

function damaged(): Error {
	return new Error("the export is damaged: its lines do not have the digest that its last line names");
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
