import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import {
	constants,
	crc32,
	createZstdCompress,
	type ZstdCompress,
	zstdCompress,
	zstdCompressSync,
	zstdDecompressSync,
} from "node:zlib";
import type { NewEvent, NewEvents } from "./entries.ts";
import { type RecordColumn, text, type Unreadable } from "./values.ts";

/**
 * Size in bytes from which records are compressed with zstd (RFC 8878). For these, compression takes less time than
 * writing all of their bytes twice, to the write-ahead log and to the database.
 */
const MIN_COMPRESSED_BYTES = 16 * 1024;
/** The chunk is the size of zlib's buffers for its output. Most of the default of 64 KiB would be unused. */
const OPTIONS = { params: { [constants.ZSTD_c_compressionLevel]: 1 }, chunkSize: 2 * 1024 };

/** Size in bytes from which texts of events can be compressed. Most of a shorter one are ids and a time. */
const MIN_COMPRESSED_TEXT = 200;
/**
 * Number of texts of new events that are compressed in a second. To compress those of a batch takes a quarter of its
 * ingest, so the further ones of a burst are left as they are; the command `compact` compresses them.
 */
const TEXTS_PER_SECOND = 1_000;
/**
 * What texts of events have in common: names of members, and values that agent servers always send. Each compressed text
 * begins with the id of its dictionary, 32,769 for this one, so that a later version can be told from it. This one must
 * stay as it is. scripts/event-dictionary.ts made it.
 */
const dictionary = readFileSync(new URL("./events-1.zdict", import.meta.url));

/** Converts a record to its stored form, compressed if that makes it smaller. */
export function packRecord(bytes: Uint8Array): RecordColumn {
	return columnOf(bytes, bytes.byteLength < MIN_COMPRESSED_BYTES ? undefined : zstdCompressSync(bytes, OPTIONS));
}

const compress = promisify(zstdCompress);

/** Does the same as {@link packRecord}, but compresses in the thread pool of Node.js. */
export async function packRecordAsync(bytes: Uint8Array): Promise<RecordColumn> {
	return columnOf(bytes, bytes.byteLength < MIN_COMPRESSED_BYTES ? undefined : await compress(bytes, OPTIONS));
}

/** Returns a new batch whose texts are in their stored form. It compresses in the thread pool of Node.js. */
export async function packEvents(batch: NewEvents): Promise<NewEvents> {
	return { ...batch, events: await Promise.all(batch.events.map(packEvent)) };
}

async function packEvent(event: NewEvent): Promise<NewEvent> {
	const { byteLength } = event.text;
	if (byteLength < MIN_COMPRESSED_TEXT || !mayCompress()) return event;
	const { record: text, ...form } = await packTextAsync(event.text);
	return { ...event, text, packed: form };
}

/** The present second, and the number of texts that were compressed in it. */
let second = 0;
let compressedTexts = 0;

function mayCompress(): boolean {
	const now = Math.floor(performance.now() / 1_000);
	if (now !== second) [second, compressedTexts] = [now, 0];
	compressedTexts += 1;
	return compressedTexts <= TEXTS_PER_SECOND;
}

/** Converts the text of an event to its stored form. It compresses in the thread pool of Node.js. */
export async function packTextAsync(bytes: Uint8Array): Promise<RecordColumn> {
	return columnOf(bytes, bytes.byteLength < MIN_COMPRESSED_TEXT ? undefined : await compressText(bytes));
}

/** Returns a shorter stored form of an event's text; undefined when there is none, or when the text is damaged. */
export async function repackText(column: RecordColumn): Promise<RecordColumn | undefined> {
	if (column.record.byteLength < MIN_COMPRESSED_TEXT) return undefined;
	if (column.unpackedSize !== null && namesDictionary(column.record)) return undefined;
	const bytes = readOrUnreadable(() => unpackRecord(column));
	if ("unreadable" in bytes) return undefined;
	const packed = await packTextAsync(bytes);
	return packed.record.byteLength < column.record.byteLength ? packed : undefined;
}

/** Returns whether a zstd frame has the id of a dictionary: RFC 8878, section 3.1.1.1.1.6. */
function namesDictionary(frame: Uint8Array): boolean {
	return ((frame[4] ?? 0) & 0b11) !== 0;
}

/** Returns the stored form of an event, of which {@link packEvents} has made the text. */
export function columnOfEvent({ text, packed }: NewEvent): RecordColumn {
	return packed === undefined ? columnOf(text, undefined) : { record: text, ...packed };
}

/**
 * Compresses the texts of events, one after the other. To make a stream for each text, and to load the dictionary into it,
 * would take several times as long as to compress the text.
 */
let compressor: ZstdCompress | undefined;
/** What the compressor has returned of the present text. */
let compressed: Uint8Array[] = [];

function compressText(bytes: Uint8Array): Promise<Uint8Array> {
	compressor ??= newCompressor();
	const stream = compressor;
	return new Promise((resolve, reject) => {
		stream.write(bytes, (error) => {
			const parts = compressed;
			compressed = [];
			const [first] = parts;
			if (error) reject(error);
			else resolve(parts.length === 1 && first !== undefined ? first : Buffer.concat(parts));
		});
	});
}

function newCompressor(): ZstdCompress {
	// The end of each text ends a frame. The default size of a chunk holds many frames.
	const stream = createZstdCompress({ params: OPTIONS.params, dictionary, flush: constants.ZSTD_e_end });
	stream.on("data", (part: Uint8Array) => compressed.push(part));
	stream.on("error", () => {
		compressor = undefined;
	});
	return stream;
}

function columnOf(bytes: Uint8Array, compressed: Uint8Array | undefined): RecordColumn {
	if (compressed === undefined || compressed.byteLength >= bytes.byteLength)
		return { record: bytes, unpackedSize: null, checksum: crc32(bytes) };
	return { record: compressed, unpackedSize: bytes.byteLength, checksum: crc32(compressed) };
}

/**
 * Returns the decompressed bytes of a record, in an ArrayBuffer of their own.
 *
 * @throws Error when the checksum is wrong or the bytes cannot be decompressed
 */
export function unpackRecord({ record, unpackedSize, checksum }: RecordColumn): Uint8Array {
	if (crc32(record) !== checksum) throw new Error("the checksum of the record is wrong");
	return unpackedSize === null ? ownBytes(record) : ownBytes(decompress(record, unpackedSize));
}

/** Maximum size in bytes of a record that is decompressed together with others, because their bytes are copied. */
const MAX_TOGETHER = 2 ** 16;

/**
 * Decompresses several records together. Returns a function that does the same with one of them as {@link unpackRecord}.
 */
export function unpackerOf(columns: readonly RecordColumn[]): (column: RecordColumn) => Uint8Array {
	const together = columns.filter(
		({ record, unpackedSize, checksum }) =>
			unpackedSize !== null && unpackedSize <= MAX_TOGETHER && crc32(record) === checksum,
	);
	const unpacked = new Map(together.length < 2 ? [] : unpackTogether(together));
	return (column) => unpacked.get(column) ?? unpackRecord(column);
}

/** Decompresses records by one call, because a call takes longer than a record. Returns none if that fails. */
function unpackTogether(columns: readonly RecordColumn[]): (readonly [RecordColumn, Uint8Array])[] {
	const size = columns.reduce((sum, { unpackedSize }) => sum + (unpackedSize ?? 0), 0);
	let whole: Uint8Array;
	try {
		whole = decompress(Buffer.concat(columns.map(({ record }) => record)), size);
	} catch {
		return [];
	}
	if (whole.byteLength !== size) return [];
	let end = 0;
	return columns.map((column) => {
		const start = end;
		end += column.unpackedSize ?? 0;
		return [column, new Uint8Array(whole.subarray(start, end))];
	});
}

/**
 * @param bytes one frame, or several that all name the dictionary or all do not
 * @param size of the decompressed bytes, which is also the most that is returned
 */
function decompress(bytes: Uint8Array, size: number): Buffer {
	// The chunk has one byte more, so that a second one is not made.
	const options = { maxOutputLength: size, chunkSize: Math.max(size + 1, 64) };
	return zstdDecompressSync(bytes, namesDictionary(bytes) ? { ...options, dictionary } : options);
}

/**
 * Returns the bytes in an ArrayBuffer of their own, as a plain Uint8Array. A database driver may return a view of a
 * larger receive buffer.
 */
function ownBytes(bytes: Uint8Array): Uint8Array {
	if (bytes.byteLength < bytes.buffer.byteLength) return new Uint8Array(bytes);
	return Buffer.isBuffer(bytes) ? new Uint8Array(bytes.buffer) : bytes;
}

/** Returns the result of `read`, which reads one record or event, or the message of the error that it throws. */
export function readOrUnreadable<Read>(read: () => Read): Read | Unreadable {
	try {
		return read();
	} catch (error) {
		return { unreadable: error instanceof Error ? error.message : String(error) };
	}
}

/** Converts the pointers of an event's secrets to the value of a text column. */
export function packSecrets(secrets: readonly string[]): string | null {
	return secrets.length === 0 ? null : JSON.stringify(secrets);
}

/** @throws Error when the column does not hold a list of pointers */
export function unpackSecrets(column: string | undefined): readonly string[] {
	if (column === undefined) return [];
	const pointers: unknown = JSON.parse(column);
	if (!Array.isArray(pointers)) throw new TypeError("the column does not hold a list of pointers");
	// Checked by hand: the store's threads would have to load zod for this alone.
	return pointers.map(text);
}
