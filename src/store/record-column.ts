import { promisify } from "node:util";
import { constants, crc32, zstdCompress, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import type { Unreadable } from "./store.ts";
import { text } from "./values.ts";

/**
 * Size in bytes from which records are compressed with zstd (RFC 8878). For these, compression takes less time than
 * writing all of their bytes twice, to the write-ahead log and to the database.
 */
const MIN_COMPRESSED_BYTES = 16 * 1024;
/** Size in bytes of the buffers that zlib allocates for its output. Most of the default of 64 KiB would be unused. */
const CHUNK_BYTES = 2 * 1024;
const OPTIONS = { params: { [constants.ZSTD_c_compressionLevel]: 1 }, chunkSize: CHUNK_BYTES };

/** A record, or the text of an event, as the columns of a row hold it. */
export interface RecordColumn {
	readonly record: Uint8Array;
	/** Size in bytes before compression; null when `record` is not compressed. */
	readonly unpackedSize: number | null;
	/** CRC-32 of `record`. */
	readonly checksum: number;
}

/** Converts a record to its stored form, compressed if that makes it smaller. */
export function packRecord(bytes: Uint8Array): RecordColumn {
	return columnOf(bytes, bytes.byteLength < MIN_COMPRESSED_BYTES ? undefined : zstdCompressSync(bytes, OPTIONS));
}

const compress = promisify(zstdCompress);

/** Does the same as {@link packRecord}, but compresses in the thread pool of Node.js. */
export async function packRecordAsync(bytes: Uint8Array): Promise<RecordColumn> {
	return columnOf(bytes, bytes.byteLength < MIN_COMPRESSED_BYTES ? undefined : await compress(bytes, OPTIONS));
}

function columnOf(bytes: Uint8Array, compressed: Uint8Array | undefined): RecordColumn {
	if (compressed === undefined || compressed.byteLength >= bytes.byteLength)
		return { record: bytes, unpackedSize: null, checksum: crc32(bytes) };
	return { record: compressed, unpackedSize: bytes.byteLength, checksum: crc32(compressed) };
}

/** Returns the size of a record in bytes after decompression. */
export function unpackedSizeOf({ record, unpackedSize }: RecordColumn): number {
	return unpackedSize ?? record.byteLength;
}

/**
 * Returns the decompressed bytes of a record, in an ArrayBuffer of their own.
 *
 * @throws Error when the checksum is wrong or the bytes cannot be decompressed
 */
export function unpackRecord({ record, unpackedSize, checksum }: RecordColumn): Uint8Array {
	if (crc32(record) !== checksum) throw new Error("the checksum of the record is wrong");
	if (unpackedSize === null) return ownBytes(record);
	const chunkSize = Math.max(unpackedSize, 64);
	return ownBytes(zstdDecompressSync(record, { maxOutputLength: unpackedSize, chunkSize }));
}

/**
 * Returns the bytes in an ArrayBuffer of their own, as a plain Uint8Array. A database driver may return a view of a
 * larger receive buffer.
 */
export function ownBytes(bytes: Uint8Array): Uint8Array {
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
