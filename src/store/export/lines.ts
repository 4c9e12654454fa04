import { isUtf8 } from "node:buffer";
import { z } from "zod";
import type { StoredEvent, StoredUpdate } from "../entries.ts";
import type { Columns, Value } from "../session.ts";
import { type ColumnType, tableOf } from "../tables.ts";
import { blob } from "../values.ts";
import { type Counts, countsBy, type ExportedTable, exportedColumns, type Ranges } from "./tables.ts";

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
export interface Manifest extends Ranges {
	/** Where the export begins: undefined if it is an export of everything, which can be imported. */
	readonly after: After | undefined;
	readonly counts: Counts;
}

/** The last line, without its name. */
export interface End {
	/** SHA-256 of the lines before, with their line ends, in hexadecimal digits. */
	readonly sha256: string;
}

/** Returns a line, with its line end. */
export function lineOf(name: string, value: object): string {
	return `${JSON.stringify({ [name]: jsonOf(value) })}\n`;
}

export function manifestLine(manifest: Manifest): string {
	return lineOf("manifest", { format: FORMAT, ...manifest });
}

/** Returns the line of a row, with the texts of events as they are. */
export function rowLine(table: ExportedTable, row: Columns): string {
	return lineOf(table, table === "events" ? { ...row, text: textOf(blob(row.text)) } : row);
}

/** @throws Error when the text of an event is no UTF-8 */
function textOf(bytes: Uint8Array): string {
	if (!isUtf8(bytes)) throw new Error("the text of an event is not UTF-8");
	return Buffer.from(bytes).toString();
}

/** Returns the line of an update with its whole record, as the store returns it. The record is null if it is damaged. */
export function updateLine({ record, ...update }: StoredUpdate): string {
	const { bytes = null, ...versions } = record === undefined || "unreadable" in record ? {} : record;
	return lineOf("update", { ...update, ...versions, record: bytes });
}

/** Returns the line of an event, as the store returns it. The text is null if it is damaged. */
export function eventLine({ event, ...columns }: StoredEvent): string {
	const { text = null, secrets = [], redactionVersion = null } = "unreadable" in event ? {} : event;
	const json = text && textOf(text);
	return lineOf("event", { ...columns, redactionVersion, secrets, text: json });
}

/** Returns a value as JSON has it. */
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

/** The forms of the columns in a line. */
const FORMS: Readonly<Record<ColumnType, z.ZodType<Value>>> = {
	id: z.string(),
	integer: int64,
	real: z.number(),
	boolean: z.boolean(),
	text: z.string(),
	key: z.string(),
	bytes,
	words: z.never(),
};

const rowForms = new Map<ExportedTable, z.ZodType<Columns>>();

function formOf(name: ExportedTable): z.ZodType<Columns> {
	return rowForms.getOrInsertComputed(name, () => {
		const { columns, nullable } = tableOf("sqlite", name);
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
		retentionTime: int64.nullable().transform((value) => value ?? undefined),
	})
	.transform(({ format, counts, ...others }) => ({ ...others, counts: countsBy((table) => counts[table] ?? 0) }));
const end = z.strictObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/) });

/** A line as it was read: its name and its value, which is not checked yet. */
export interface Line {
	readonly name: string;
	readonly value: unknown;
}

/** @throws Error when the text is not a line of an export */
export function parseLine(text: string): Line {
	const line: unknown = JSON.parse(text);
	const [[name, value] = [], ...others] = typeof line === "object" && line !== null ? Object.entries(line) : [];
	if (name === undefined || others.length > 0) throw new Error("a line is not an object with one member");
	return { name, value };
}

/** @throws Error when the line is not a manifest, or its format is of another release */
export function manifestOf({ name, value }: Line): Manifest {
	if (name !== "manifest") throw new Error("the first line is not the manifest of an export");
	const { format } = z.looseObject({ format: z.int() }).parse(value);
	if (format === 1)
		throw new Error("release 1 wrote the export: import it with release 1, and upgrade the database (docs/upgrade.md)");
	if (format !== FORMAT) throw new Error(`the export has format ${format}; this release knows format ${FORMAT}`);
	return manifest.parse(value);
}

/** @throws Error when the value is not a row of the table */
export function rowOf(table: ExportedTable, value: unknown): Columns {
	return formOf(table).parse(value);
}

/** @throws Error when the line is not the last one of an export */
export function endOf({ name, value }: Line): End {
	if (name !== "end") throw new Error(`a line of the kind ${JSON.stringify(name)} is unknown, or in the wrong place`);
	return end.parse(value);
}
