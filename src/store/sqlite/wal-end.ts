import { closeSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { endianness } from "node:os";

/**
 * The end of a write-ahead log that SQLite will ignore when it opens the database. SQLite reads the log up to the first
 * frame with a wrong checksum, and ignores the frames after it without an error. Formats:
 * https://sqlite.org/walformat.html.
 */
export interface WalEnd {
	/** Number of frames after the last transaction that SQLite finds complete. Each frame contains one page. */
	readonly frames: number;
	readonly pageSize: number;
	/**
	 * Whether the frames were certainly committed. Otherwise they are either the rest of a write that a crash interrupted
	 * before it was acknowledged, or a damaged last commit. The log does not show which.
	 */
	readonly wasCommitted: boolean;
}

/** Version of the formats of the log and of its index. */
const VERSION = 3_007_000;
const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** Page size that is assumed when the log's header is damaged: that of the service's databases. */
const OWN_PAGE_SIZE = 8192;
/**
 * SQLite increments the first salt whenever it restarts the log. A frame whose first salt is below the header's by less
 * than this number was written before such a restart.
 */
const MAX_RESTARTS_BEHIND = 2 ** 24;

/**
 * Finds the end of the log that SQLite will ignore. No process may have the database open, and above all not this one:
 * when a process closes a file, it loses all its POSIX locks on that file, also those of SQLite
 * (https://sqlite.org/howtocorrupt.html, section 2.2). The log exists only if the last process ended without closing
 * the database. Takes about 2 ms for each MiB of the log.
 *
 * @param database path without symbolic links
 * @returns undefined if SQLite will use everything that was committed
 * @throws Error of node:fs, except when there is no log
 */
export function inspectWal(database: string): WalEnd | undefined {
	const index = readIndex(`${database}-shm`);
	let file: number;
	try {
		file = openSync(`${database}-wal`, "r");
	} catch (error) {
		if (error instanceof Error && "code" in error && error.code === "ENOENT") return lossOfLog(index, 0, undefined);
		throw error;
	}
	try {
		return inspect(file, index);
	} finally {
		closeSync(file);
	}
}

/** The fields of the log's index (`-shm`) that show how far the log was committed when the last process ended. */
interface WalIndex {
	readonly pageSize: number;
	/** Number of the last frame of the last commit. */
	readonly committed: number;
	/** Number of the last frame whose page is in the database file. */
	readonly checkpointed: number;
	/** The two salts of the log, as its frames contain them. */
	readonly salt: Buffer;
}

/** Fields of a frame's header. */
interface Frame {
	readonly isCommit: boolean;
	readonly salt: Buffer;
}

function inspect(file: number, index: WalIndex | undefined): WalEnd | undefined {
	const header = Buffer.alloc(HEADER_BYTES);
	const size = fstatSync(file).size;
	readSync(file, header, 0, HEADER_BYTES, 0);
	const littleEndian = (header.readUInt32BE(0) & 1) === 0;
	const [a, b] = checksum(header.subarray(0, 24), littleEndian, [0, 0]);
	const isHeaderSound =
		size >= HEADER_BYTES &&
		(header.readUInt32BE(0) | 1) === 0x377f0683 &&
		header.readUInt32BE(4) === VERSION &&
		header.readUInt32BE(24) === a &&
		header.readUInt32BE(28) === b;
	const pageSize = isHeaderSound ? header.readUInt32BE(8) : OWN_PAGE_SIZE;
	const frameBytes = FRAME_HEADER_BYTES + pageSize;
	const count = Math.max(0, Math.floor((size - HEADER_BYTES) / frameBytes));
	const bytes = Buffer.alloc(frameBytes);
	const readFrame = (frame: number): Frame => {
		readSync(file, bytes, 0, frameBytes, HEADER_BYTES + frame * frameBytes);
		return { isCommit: bytes.readUInt32BE(4) !== 0, salt: Buffer.from(bytes.subarray(8, 16)) };
	};
	if (!isHeaderSound) return lossOfLog(index, count, count > 0 ? readFrame(0).salt : undefined);

	const salt = header.subarray(16, 24);
	let sum: Checksum = [a, b];
	let committed = 0;
	let next = 0;
	for (; next < count; next++) {
		const frame = readFrame(next);
		sum = checksum(bytes.subarray(0, 8), littleEndian, sum);
		sum = checksum(bytes.subarray(FRAME_HEADER_BYTES), littleEndian, sum);
		const isSound = bytes.readUInt32BE(16) === sum[0] && bytes.readUInt32BE(20) === sum[1];
		if (!frame.salt.equals(salt) || !isSound) break;
		if (frame.isCommit) committed = next + 1;
	}
	const matchingIndex = index?.salt.equals(salt) === true ? index : undefined;
	if (matchingIndex !== undefined && matchingIndex.committed > committed)
		return { frames: matchingIndex.committed - committed, pageSize, wasCommitted: true };

	// A commit is on disk before the next one is written, so frames after a commit prove that it was complete.
	let last = committed;
	let foundCommit = false;
	let wasCommitted = false;
	for (let frame = next; frame < count; frame++) {
		const { isCommit, salt: frameSalt } = readFrame(frame);
		const restartsBehind = (salt.readUInt32BE(0) - frameSalt.readUInt32BE(0)) >>> 0;
		if (restartsBehind > 0 && restartsBehind < MAX_RESTARTS_BEHIND) continue;
		last = frame + 1;
		if (!frameSalt.equals(salt)) continue;
		wasCommitted ||= foundCommit;
		foundCommit ||= isCommit;
	}
	// The index shows that the remaining frames are of a write that was not committed when the process ended.
	const isRestUncommitted = matchingIndex?.committed === committed && !wasCommitted;
	if (last === committed || isRestUncommitted) return undefined;
	return { frames: last - committed, pageSize, wasCommitted };
}

/**
 * Returns what is lost with a log that is missing or has a damaged header, so that SQLite uses nothing of it.
 *
 * @param frames number of frames that the size of the file has room for
 * @param salt of the first frame
 */
function lossOfLog(index: WalIndex | undefined, frames: number, salt: Buffer | undefined): WalEnd | undefined {
	if (index === undefined) return frames === 0 ? undefined : { frames, pageSize: OWN_PAGE_SIZE, wasCommitted: false };
	const lost = index.committed - index.checkpointed;
	if (lost <= 0) return undefined;
	return { frames: lost, pageSize: index.pageSize, wasCommitted: salt !== undefined && index.salt.equals(salt) };
}

/** Reads the log's index; returns undefined when it is missing, was not initialized or is damaged. */
function readIndex(path: string): WalIndex | undefined {
	let bytes: Buffer;
	try {
		bytes = readFileSync(path);
	} catch {
		return undefined;
	}
	if (bytes.length < 136) return undefined;
	const header = bytes.subarray(0, 48);
	const littleEndian = endianness() === "LE";
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const number = (offset: number) => view.getUint32(offset, littleEndian);
	const [a, b] = checksum(header.subarray(0, 40), littleEndian, [0, 0]);
	const isSound = number(0) === VERSION && bytes[12] === 1 && number(40) === a && number(44) === b;
	if (!isSound || !header.equals(bytes.subarray(48, 96))) return undefined;
	const size = view.getUint16(14, littleEndian);
	return {
		pageSize: size === 1 ? 65_536 : size,
		committed: number(16),
		checkpointed: number(96),
		salt: header.subarray(32, 40),
	};
}

type Checksum = readonly [number, number];

/** Continues SQLite's checksum with the following bytes, whose number is a multiple of 8. */
function checksum(bytes: Buffer, littleEndian: boolean, [first, second]: Checksum): Checksum {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	let [a, b] = [first, second];
	for (let offset = 0; offset < bytes.byteLength; offset += 8) {
		a = (a + view.getUint32(offset, littleEndian) + b) >>> 0;
		b = (b + view.getUint32(offset + 4, littleEndian) + a) >>> 0;
	}
	return [a, b];
}
