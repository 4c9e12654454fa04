import { promisify } from "node:util";
import { constants, crc32, zstdCompress, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import type { UnreadableRecord } from "./store.ts";
import { text } from "./values.ts";

/**
 * Records from this size on are compressed with zstd (RFC 8878): that takes less time than to write their bytes twice,
 * to the write-ahead log and to the database.
 */
const COMPRESSED_FROM = 16 * 1024;
/** Size of the buffers that zlib allocates for its output; with the default of 64 KiB most of each would be unused. */
const CHUNK_BYTES = 2 * 1024;
const OPTIONS = { params: { [constants.ZSTD_c_compressionLevel]: 1 }, chunkSize: CHUNK_BYTES };

/** A record as a row holds it. */
export interface RecordColumn {
	readonly record: Uint8Array;
	/** Bytes of the record before it was compressed; null when it is not compressed. */
	readonly unpackedSize: number | null;
	/** CRC-32 of `record`. */
	readonly checksum: number;
}

/** Puts a record in the form in which it is stored. */
export function packRecord(bytes: Uint8Array): RecordColumn {
	return columnOf(bytes, bytes.byteLength < COMPRESSED_FROM ? undefined : zstdCompressSync(bytes, OPTIONS));
}

const compress = promisify(zstdCompress);

/** Does what {@link packRecord} does, and compresses on a thread of Node.js's own. */
export async function packRecordAsync(bytes: Uint8Array): Promise<RecordColumn> {
	return columnOf(bytes, bytes.byteLength < COMPRESSED_FROM ? undefined : await compress(bytes, OPTIONS));
}

function columnOf(bytes: Uint8Array, compressed: Uint8Array | undefined): RecordColumn {
	if (compressed === undefined || compressed.byteLength >= bytes.byteLength)
		return { record: bytes, unpackedSize: null, checksum: crc32(bytes) };
	return { record: compressed, unpackedSize: bytes.byteLength, checksum: crc32(compressed) };
}

/** Bytes of a record as it is read. */
export function unpackedSizeOf({ record, unpackedSize }: RecordColumn): number {
	return unpackedSize ?? record.byteLength;
}

/**
 * The bytes of a record, in memory of their own.
 *
 * @throws Error when the record is not what was stored
 */
export function unpackRecord({ record, unpackedSize, checksum }: RecordColumn): Uint8Array {
	if (crc32(record) !== checksum) throw new Error("the checksum of the record is wrong");
	if (unpackedSize === null) return ownBytes(record);
	const chunkSize = Math.max(unpackedSize, 64);
	return ownBytes(zstdDecompressSync(record, { maxOutputLength: unpackedSize, chunkSize }));
}

/** Bytes in memory that holds nothing else: a driver gives parts of what it received. */
export function ownBytes(bytes: Uint8Array): Uint8Array {
	if (bytes.byteLength < bytes.buffer.byteLength) return new Uint8Array(bytes);
	return Buffer.isBuffer(bytes) ? new Uint8Array(bytes.buffer) : bytes;
}

/** What a function reads of one record or event, or what it fails with. */
export function readable<Read>(read: () => Read): Read | UnreadableRecord {
	try {
		return read();
	} catch (error) {
		return { unreadable: error instanceof Error ? error.message : String(error) };
	}
}

/** The pointers of an event's secrets as a column of texts holds them. */
export function packSecrets(secrets: readonly string[]): string | null {
	return secrets.length === 0 ? null : JSON.stringify(secrets);
}

/** @throws Error when the column does not hold pointers */
export function unpackSecrets(column: string | undefined): readonly string[] {
	if (column === undefined) return [];
	const pointers: unknown = JSON.parse(column);
	if (!Array.isArray(pointers)) throw new TypeError("the column holds no list of pointers");
	// A schema would load zod into each of the store's threads, which need it for nothing else.
	return pointers.map(text);
}
