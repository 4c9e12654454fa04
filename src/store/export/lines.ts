import { isUtf8 } from "node:buffer";
import { z } from "zod";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { StoredUpdate } from "../entries.ts";
import { gapKinds } from "../gaps.ts";
import { packRecord, packText, type RecordColumn, readOrUnreadable, unpackRecord } from "../record-column.ts";
import { postForms } from "../refused-posts.ts";
import {
	type After,
	type Counts,
	type Ranges,
	type RowKind,
	rowKinds,
	SETTING_TABLES,
	type SettingKind,
	type SettingRow,
	type StoredRows,
} from "../stored-rows.ts";
import { tableOf } from "../tables.ts";

/**
 * The lines of an export. Each is a JSON object with one member, whose name says what the line is: first `manifest`, then
 * rows by their kinds, last `end`. 64-bit integers are decimal strings, bytes are base64, and a missing value is null.
 *
 * A change of the lines needs a new {@link FORMAT}. A release must still import the earlier formats.
 */
const FORMAT = 1;

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

/** Returns the line of a row. */
export function rowLine<Kind extends RowKind>(kind: Kind, row: StoredRows[Kind]): string {
	const { toLine }: RowForm<StoredRows[Kind]> = forms[kind];
	return lineOf(kind, toLine(row));
}

/**
 * Returns the line of an update with its whole record, as the store returns it. Unlike other lines of updates, it has no
 * members about deltas. The record is null if it is damaged.
 */
export function wholeUpdateLine({ record, ...update }: StoredUpdate): string {
	const { bytes = null, ...versions } = record === undefined || "unreadable" in record ? {} : record;
	return lineOf("update", { ...update, ...versions, record: bytes });
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

/** Returns the bytes of a record or a text. If they are damaged, returns them as they are stored. */
function unpacked({ record, unpackedSize, checksum }: RecordColumn): Uint8Array | { readonly damaged: RecordColumn } {
	const content = readOrUnreadable(() => unpackRecord({ record, unpackedSize, checksum }));
	return "unreadable" in content ? { damaged: { record, unpackedSize, checksum } } : content;
}

function textOf(column: RecordColumn): string | object {
	const content = unpacked(column);
	if (!(content instanceof Uint8Array)) return content;
	return isUtf8(content) ? Buffer.from(content).toString() : { bytes: content };
}

const bytes = z.string().transform((text): Uint8Array => Buffer.from(text, "base64"));
const int64 = z
	.string()
	.regex(/^(0|-?[1-9]\d{0,18})$/)
	.transform(BigInt);
const int64OrNone = orNone(int64);
const integer = z.int();

/** Null stands for a missing value. */
function orNone<Of extends z.ZodType>(of: Of) {
	return of.nullable().transform((value) => value ?? undefined);
}

const damaged = z.strictObject({
	damaged: z.strictObject({ record: bytes, unpackedSize: integer.nullable(), checksum: integer }),
});
const conversationId = z.string();
const timedText = z.strictObject({ text: z.string(), at: int64 });
const name = orNone(z.string());
const origin = z.strictObject({ sender: name, owner: name });
const pruned = z.strictObject({ conversationId, through: int64, removal: int64, owner: name });

/** How the rows of a kind are written as lines, and read from lines. */
interface RowForm<Row> {
	readonly toLine: (row: Row) => object;
	readonly fromLine: z.ZodType<Row>;
}

const same = (row: object) => row;

/** Returns the form of the rows of a table whose columns are exported as they are. */
function setting(kind: SettingKind): RowForm<SettingRow> {
	const { columns, nullable } = tableOf("sqlite", SETTING_TABLES[kind]);
	const forms = Object.entries(columns).map(([name, type]) => {
		const value = type === "integer" ? int64 : type === "bytes" ? bytes : z.string();
		return [name, nullable.has(name) ? orNone(value) : value] as const;
	});
	const fromLine = z.strictObject({ id: z.string(), columns: z.strictObject(Object.fromEntries(forms)) });
	return { toLine: same, fromLine };
}

const forms: { readonly [Kind in RowKind]: RowForm<StoredRows[Kind]> } = {
	conversation: {
		toLine: same,
		fromLine: z.strictObject({
			conversationId,
			origin,
			state: z.strictObject({
				sequence: int64,
				status: integer,
				orderTime: int64OrNone,
				lifeBeganAt: int64OrNone,
				createdAt: int64,
				updatedAt: int64,
				runStartedAt: int64OrNone,
				newestPosted: orNone(z.strictObject({ sequence: int64, updatedAt: int64OrNone, size: integer })),
				revision: int64,
				memberTimes: orNone(z.string()),
				postedAt: int64OrNone,
				hasUnappliedEvents: z.boolean(),
			}),
			summary: bytes,
		}),
	},
	activity: {
		toLine: same,
		fromLine: z.strictObject({
			conversationId,
			origin,
			activity: z.strictObject({
				eventCount: int64,
				lastAt: int64,
				message: orNone(timedText),
				firstMessage: orNone(timedText),
				error: orNone(
					z.strictObject({
						code: z.string(),
						kind: z.string(),
						retryable: orNone(z.boolean()),
						text: z.string(),
						at: int64,
						sequence: int64,
					}),
				),
				leaf: orNone(timedText),
				lastStateUpdateAt: int64OrNone,
			}),
		}),
	},
	update: {
		toLine({ record: { redactionVersion, schemaVersion, ...column }, ...update }) {
			return { ...update, redactionVersion, schemaVersion, record: unpacked(column) };
		},
		fromLine: z
			.strictObject({
				conversationId,
				sequence: int64,
				change: integer,
				current: z.boolean(),
				origin: integer,
				previousSequence: int64OrNone,
				receivedAt: int64,
				sender: name,
				summary: bytes,
				activity: orNone(bytes),
				base: int64OrNone,
				size: integer,
				redactionVersion: integer,
				schemaVersion: integer,
				record: z.union([bytes, damaged]),
			})
			.transform(({ redactionVersion, schemaVersion, record, ...update }) => {
				const column = record instanceof Uint8Array ? packRecord(record) : record.damaged;
				return { ...update, record: { redactionVersion, schemaVersion, ...column } };
			}),
	},
	event: {
		toLine: ({ text, ...event }) => ({ ...event, text: textOf(text) }),
		fromLine: z
			.strictObject({
				sequence: int64,
				conversationId,
				receivedAt: int64,
				sender: name,
				// An earlier release had posted events only.
				origin: integer.default(UpdateOrigin.POSTED),
				happenedAt: int64,
				kind: z.string(),
				source: z.string(),
				eventId: z.string(),
				llmResponseId: orNone(z.string()),
				redactionVersion: integer,
				secrets: z.string().nullable(),
				text: z.union([z.string(), z.strictObject({ bytes }), damaged]),
			})
			.transform(({ text, ...event }) => {
				if (typeof text === "string") return { ...event, text: packText(Buffer.from(text)) };
				return { ...event, text: "bytes" in text ? packText(text.bytes) : text.damaged };
			}),
	},
	usage: {
		toLine: same,
		fromLine: z.strictObject({
			conversationId,
			sender: z.string(),
			owner: z.string(),
			source: orNone(z.string()),
			lifeBeganAt: int64OrNone,
			ledger: z.string(),
			rows: z.array(
				z.strictObject({
					quarter: int64,
					model: z.string(),
					usageId: z.string(),
					agentKind: z.string(),
					cost: int64,
					promptTokens: int64,
					completionTokens: int64,
					cacheReadTokens: int64,
					cacheWriteTokens: int64,
					reasoningTokens: int64,
					calls: int64,
				}),
			),
		}),
	},
	prunedUpdates: { toLine: same, fromLine: pruned },
	prunedEvents: { toLine: same, fromLine: pruned },
	gaps: {
		toLine: same,
		fromLine: z.strictObject({
			conversationId,
			gaps: z.array(
				z.strictObject({ kind: z.enum(gapKinds), missing: z.string(), after: orNone(z.string()), since: int64 }),
			),
		}),
	},
	accessKey: {
		toLine: same,
		fromLine: z.strictObject({
			name: z.string(),
			sha256: bytes,
			scopes: z.array(z.string()),
			owner: z.string(),
			createdAt: int64,
			createdBy: z.string(),
			expiresAt: int64OrNone,
			revokedAt: int64OrNone,
			lastUsedAt: int64OrNone,
		}),
	},
	sender: {
		toLine: same,
		fromLine: z.strictObject({
			sender: z.string(),
			owner: z.string(),
			firstAt: int64,
			lastAt: int64,
			posts: int64,
			records: int64,
			events: int64,
			usualInterval: int64,
		}),
	},
	refusedPost: {
		toLine: same,
		fromLine: z.strictObject({
			id: int64,
			receivedAt: int64,
			lastAt: int64,
			requests: int64,
			sender: name,
			owner: name,
			peer: name,
			route: z.string(),
			form: z.enum(postForms),
			kind: z.string(),
			reasons: z.string(),
			conversationId: name,
			size: integer,
			accepted: z.boolean(),
			retriedAt: int64OrNone,
			body: orNone(bytes),
		}),
	},
	erasure: {
		toLine: same,
		fromLine: z.strictObject({
			idDigest: z.string(),
			sequence: int64,
			owner: name,
			createdAt: int64,
			erasedAt: int64,
		}),
	},
	audit: {
		toLine: same,
		fromLine: z.strictObject({
			number: int64,
			at: int64,
			action: z.string(),
			caller: z.string(),
			owner: z.string(),
			subject: z.string(),
			details: z.string(),
		}),
	},
	endpoint: setting("endpoint"),
	budget: setting("budget"),
	notice: setting("notice"),
};

const range = z.strictObject({ newest: int64, prunedThrough: int64, lastRemoval: int64 });
const manifest = z.strictObject({
	format: z.int(),
	after: orNone(z.strictObject({ update: int64, event: int64 })),
	// Earlier states had none of these kinds.
	counts: z
		.looseObject({})
		.transform((counts) => ({ audit: 0, endpoint: 0, budget: 0, notice: 0, ...counts }))
		.pipe(z.record(z.enum(rowKinds), integer)),
	updates: range,
	events: range,
	retentionTime: int64OrNone,
});
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

/** @throws Error when the line is not a manifest, or its format is of a newer release */
export function manifestOf({ name, value }: Line): Manifest {
	if (name !== "manifest") throw new Error("the first line is not the manifest of an export");
	const { format } = z.looseObject({ format: z.int() }).parse(value);
	if (format !== FORMAT) throw new Error(`the export has format ${format}; this release knows format ${FORMAT}`);
	return manifest.parse(value);
}

/** @throws Error when the value is not a row of the kind */
export function rowOf<Kind extends RowKind>(kind: Kind, value: unknown): StoredRows[Kind] {
	const { fromLine }: RowForm<StoredRows[Kind]> = forms[kind];
	return fromLine.parse(value);
}

/** @throws Error when the line is not the last one of an export */
export function endOf({ name, value }: Line): End {
	if (name !== "end") throw new Error(`a line of the kind ${JSON.stringify(name)} is unknown, or in the wrong place`);
	return end.parse(value);
}
