import { createReadStream, createWriteStream, existsSync, linkSync, rmSync } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip, createGzip, createZstdCompress, createZstdDecompress } from "node:zlib";

/** The name that stands for standard output and standard input. */
const STANDARD = "-";

/**
 * Writes an export to a new file that only its owner may read, compressed if the name ends in `.zst` or `.gz`. The file
 * gets its name only when it is complete and on disk. Writes to standard output if the name is `-`.
 *
 * @throws Error when the file exists already or cannot be written
 */
export async function writeExport(texts: AsyncIterable<string>, file: string): Promise<void> {
	// To end it would shut a socket down that other programs of a script write to as well.
	if (file === STANDARD) return await pipeline(texts, process.stdout, { end: false });
	if (existsSync(file)) throw new Error(`${file} already exists`);
	const partial = `${file}.${process.pid}.partial`;
	try {
		const output = createWriteStream(partial, { flags: "wx", mode: 0o600, flush: true });
		if (file.endsWith(".zst")) await pipeline(texts, createZstdCompress(), output);
		else if (file.endsWith(".gz")) await pipeline(texts, createGzip(), output);
		else await pipeline(texts, output);
		// Unlike a rename, a link never replaces an existing file.
		linkSync(partial, file);
	} finally {
		rmSync(partial, { force: true });
	}
}

/** The first bytes of zstd (RFC 8878) and of gzip (RFC 1952). */
const ZSTD = Buffer.from("28b52ffd", "hex");
const GZIP = Buffer.from("1f8b", "hex");

/** Reads the export in a file, or from standard input if the name is `-`. Decompresses what begins like zstd or gzip. */
export async function* readExport(file: string): AsyncGenerator<Buffer> {
	const input: Readable = file === STANDARD ? process.stdin : createReadStream(file);
	const chunks: AsyncIterator<Buffer> = input[Symbol.asyncIterator]();
	const first = await chunks.next();
	if (first.done === true) return;
	const whole = Readable.from(
		(async function* () {
			yield first.value;
			for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) yield next.value;
		})(),
		{ objectMode: false },
	);
	const begins = (magic: Buffer) => first.value.subarray(0, magic.length).equals(magic);
	if (!begins(ZSTD) && !begins(GZIP)) return yield* whole;
	const unpacked = begins(ZSTD) ? createZstdDecompress() : createGunzip();
	// Its failure destroys the stream, from which the loop gets it too.
	pipeline(whole, unpacked).catch(() => undefined);
	yield* unpacked;
}
