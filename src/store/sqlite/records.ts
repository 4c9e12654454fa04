import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { blob } from "./values.ts";

/**
 * Records with long texts, such as those with skills, repeat themselves and what was stored before. Compressing one
 * takes less time than writing its bytes twice, to the write-ahead log and to the database; for short ones it does not.
 */
const COMPRESSED_FROM = 16 * 1024;
/** The buffers that output is put in, 64 KiB by default, stay until garbage is collected; most records need little. */
const CHUNK_BYTES = 2 * 1024;
const OPTIONS = { params: { [constants.ZSTD_c_compressionLevel]: 1 }, chunkSize: CHUNK_BYTES };

/** A record as a row holds it. */
export interface StoredRecord {
	readonly record: Uint8Array;
	/** Bytes of the record before it was compressed with zstd (RFC 8878); null when it stands as it is. */
	readonly unpackedSize: number | null;
}

/** Puts a record in the form in which it is stored. */
export function storeRecord(record: Uint8Array): StoredRecord {
	if (record.byteLength < COMPRESSED_FROM) return { record, unpackedSize: null };
	const compressed = zstdCompressSync(record, OPTIONS);
	return compressed.byteLength < record.byteLength
		? { record: compressed, unpackedSize: record.byteLength }
		: { record, unpackedSize: null };
}

/** Bytes of a record that was read, by its two columns. */
export function recordSize(record: unknown, unpackedSize: unknown): number {
	return unpackedSize === null ? blob(record).byteLength : Number(unpackedSize);
}

/** Gives a record back from its two columns. */
export function loadRecord(record: unknown, unpackedSize: unknown): Uint8Array {
	if (unpackedSize === null) return blob(record);
	const size = Number(unpackedSize);
	return zstdDecompressSync(blob(record), { maxOutputLength: size, chunkSize: Math.max(size, 64) });
}
