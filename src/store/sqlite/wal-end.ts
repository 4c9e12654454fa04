import { closeSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { endianness } from "node:os";

/**
 * What of a write-ahead log SQLite will not use when it opens the database. It reads the log up to the first frame whose
 * checksum is wrong, and says nothing of those behind it. Formats: https://sqlite.org/walformat.html.
 */
export interface WalEnd {
	/** Frames behind the last transaction that SQLite finds whole. Each is one page. */
	readonly frames: number;
	readonly pageSize: number;
	/**
	 * Whether they were committed for certain. Otherwise they are what a crash left of a write that nobody was told of, or
	 * a damaged last commit: the log does not tell.
	 */
	readonly wasCommitted: boolean;
}

const VERSION = 3_007_000;
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** Page size of a log whose header does not tell: what the service gives its databases. */
const USUAL_PAGE_SIZE = 8192;
/** SQLite adds one to the first salt whenever it begins the log anew. A frame behind by less is of an earlier round. */
const MAX_ROUNDS_BEHIND = 2 ** 24;

/**
 * Looks at the log of a database that nobody has open, this process least of all: a process that closes a file loses its
 * POSIX locks on it, those of SQLite too (https://sqlite.org/howtocorrupt.html, section 2.2). The log is there only after
 * an end without closing. Costs about 2 ms for each MiB of it.
 *
 * @param database path without symbolic links
 * @returns undefined when SQLite will use all that was committed
 * @throws Error of node:fs, except when there is no log
 */
export function inspectWal(database: string): WalEnd | undefined {
	const index = readIndex(`${database}-shm`);
	let file: number;
	try {
		file = openSync(`${database}-wal`, "r");
	} catch (error) {
		if (error instanceof Error && "code" in error && error.code === "ENOENT") return withoutLog(index, 0, undefined);
		throw error;
	}
	try {
		return inspect(file, index);
	} finally {
		closeSync(file);
	}
}

/** The part of the log's index (`-shm`) that says how far the log was committed, when the process ended. */
interface WalIndex {
	readonly pageSize: number;
	/** Number of the last frame of the last commit. */
	readonly committed: number;
	/** Number of the last frame whose page is in the database file. */
	readonly checkpointed: number;
	/** As the frames have it. */
	readonly salt: Buffer;
}

/** A frame's header. */
interface Frame {
	readonly isCommit: boolean;
	readonly salt: Buffer;
}

function inspect(file: number, index: WalIndex | undefined): WalEnd | undefined {
	const header = Buffer.alloc(HEADER_BYTES);
	const size = fstatSync(file).size;
	readSync(file, header, 0, HEADER_BYTES, 0);
	const little = (header.readUInt32BE(0) & 1) === 0;
	const [a, b] = checksum(header.subarray(0, 24), little, [0, 0]);
	const isHeaderSound =
		size >= HEADER_BYTES &&
		(header.readUInt32BE(0) | 1) === 0x377f0683 &&
		header.readUInt32BE(4) === VERSION &&
		header.readUInt32BE(24) === a &&
		header.readUInt32BE(28) === b;
	const pageSize = isHeaderSound ? header.readUInt32BE(8) : USUAL_PAGE_SIZE;
	const frameBytes = FRAME_HEADER_BYTES + pageSize;
	const count = Math.max(0, Math.floor((size - HEADER_BYTES) / frameBytes));
	const bytes = Buffer.alloc(frameBytes);
	const read = (frame: number): Frame => {
		readSync(file, bytes, 0, frameBytes, HEADER_BYTES + frame * frameBytes);
		return { isCommit: bytes.readUInt32BE(4) !== 0, salt: Buffer.from(bytes.subarray(8, 16)) };
	};
	if (!isHeaderSound) return withoutLog(index, count, count > 0 ? read(0).salt : undefined);

	const salt = header.subarray(16, 24);
	let sum: Checksum = [a, b];
	let committed = 0;
	let next = 0;
	for (; next < count; next++) {
		const frame = read(next);
		sum = checksum(bytes.subarray(0, 8), little, sum);
		sum = checksum(bytes.subarray(FRAME_HEADER_BYTES), little, sum);
		const isSound = bytes.readUInt32BE(16) === sum[0] && bytes.readUInt32BE(20) === sum[1];
		if (!frame.salt.equals(salt) || !isSound) break;
		if (frame.isCommit) committed = next + 1;
	}
	const fits = index?.salt.equals(salt) === true ? index : undefined;
	if (fits !== undefined && fits.committed > committed)
		return { frames: fits.committed - committed, pageSize, wasCommitted: true };

	// A commit is on disk before the next one is written: frames behind a later commit prove that it was complete.
	let last = committed;
	let foundCommit = false;
	let wasCommitted = false;
	for (let frame = next; frame < count; frame++) {
		const { isCommit, salt: own } = read(frame);
		const roundsBehind = (salt.readUInt32BE(0) - own.readUInt32BE(0)) >>> 0;
		if (roundsBehind > 0 && roundsBehind < MAX_ROUNDS_BEHIND) continue;
		last = frame + 1;
		if (!own.equals(salt)) continue;
		wasCommitted ||= foundCommit;
		foundCommit ||= isCommit;
	}
	// The index knows that the rest is of a write that was not complete when the process ended.
	const isComplete = fits?.committed === committed && !wasCommitted;
	if (last === committed || isComplete) return undefined;
	return { frames: last - committed, pageSize, wasCommitted };
}

/**
 * What is lost with a log that is gone or whose header is damaged, so that SQLite uses nothing of it.
 *
 * @param frames how many the file has room for
 * @param salt that of its first frame
 */
function withoutLog(index: WalIndex | undefined, frames: number, salt: Buffer | undefined): WalEnd | undefined {
	if (index === undefined) return frames === 0 ? undefined : { frames, pageSize: USUAL_PAGE_SIZE, wasCommitted: false };
	const lost = index.committed - index.checkpointed;
	if (lost <= 0) return undefined;
	return { frames: lost, pageSize: index.pageSize, wasCommitted: salt !== undefined && index.salt.equals(salt) };
}

/** Undefined when the index is not there, or not one that a live process has left. */
function readIndex(path: string): WalIndex | undefined {
	let bytes: Buffer;
	try {
		bytes = readFileSync(path);
	} catch {
		return undefined;
	}
	if (bytes.length < 136) return undefined;
	const header = bytes.subarray(0, 48);
	const little = endianness() === "LE";
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const number = (offset: number) => view.getUint32(offset, little);
	const [a, b] = checksum(header.subarray(0, 40), little, [0, 0]);
	const isSound = number(0) === VERSION && bytes[12] === 1 && number(40) === a && number(44) === b;
	if (!isSound || !header.equals(bytes.subarray(48, 96))) return undefined;
	const size = view.getUint16(14, little);
	return {
		pageSize: size === 1 ? 65_536 : size,
		committed: number(16),
		checkpointed: number(96),
		salt: header.subarray(32, 40),
	};
}

type Checksum = readonly [number, number];

/** SQLite's checksum of some bytes, whose number is a multiple of 8, from that of the bytes before. */
function checksum(bytes: Buffer, little: boolean, [first, second]: Checksum): Checksum {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	let [a, b] = [first, second];
	for (let offset = 0; offset < bytes.byteLength; offset += 8) {
		a = (a + view.getUint32(offset, little) + b) >>> 0;
		b = (b + view.getUint32(offset + 4, little) + a) >>> 0;
	}
	return [a, b];
}
