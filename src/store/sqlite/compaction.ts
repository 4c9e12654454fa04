import type { DatabaseSync } from "node:sqlite";
import { BYTES_OF_STEP, type NextTexts, type RepackedRange, type ReturnedSpace, TEXTS_OF_STEP } from "../compaction.ts";
import { packedColumnsFrom } from "../rows.ts";
import { bigint, integer } from "../values.ts";
import { readRange } from "./log.ts";
import type { Statements } from "./statements.ts";

/** Returns the texts of the events after a sequence, of which there is at least one if there are any. */
export function findTexts(statements: Statements, after: bigint): NextTexts {
	const rows = statements
		.prepare("SELECT sequence, text, unpacked_size, checksum FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?")
		.iterate(after, TEXTS_OF_STEP);
	const texts = [];
	let bytes = 0;
	for (const row of rows) {
		const column = packedColumnsFrom(row, "text");
		bytes += column.record.byteLength;
		if (texts.length > 0 && bytes > BYTES_OF_STEP) break;
		texts.push({ sequence: bigint(row.sequence), ...column });
	}
	return { texts, newest: readRange(statements, "events", {}).newest };
}

/**
 * Stores texts that were compressed. The caller has begun a transaction. All events of the range are written anew in their
 * order, so that they fill their pages. Rows that become shorter in their place leave the pages half empty.
 */
export function writeTexts(statements: Statements, { first, last, texts }: RepackedRange): void {
	const range = "FROM events WHERE sequence BETWEEN ? AND ?";
	const rows = statements.prepare(`SELECT * ${range} ORDER BY sequence`).all(first, last);
	statements.prepare(`DELETE ${range}`).run(first, last);
	const repacked = new Map(texts.map((text) => [text.sequence, text]));
	for (const row of rows) {
		const text = repacked.get(bigint(row.sequence));
		const isSame = text !== undefined && integer(row.checksum) === text.formerChecksum;
		const present = isSame
			? { ...row, text: text.record, unpacked_size: text.unpackedSize, checksum: text.checksum }
			: row;
		const names = Object.keys(present);
		statements
			.prepare(`INSERT INTO events (${names.join()}) VALUES (${names.map(() => "?").join()})`)
			.run(...Object.values(present));
	}
}

/** Maximum number of free pages that a transaction returns. */
const PAGES = 1_000;
/** Value of `auto_vacuum` for databases whose free pages can be returned. */
const INCREMENTAL = 2n;

/** Returns free pages to the file system, at the next checkpoint. The caller has begun a transaction. */
export function returnSpace(database: DatabaseSync): ReturnedSpace {
	const value = (name: string) => bigint(database.prepare(`PRAGMA ${name}`).get()?.[name]);
	const [size, before] = [value("page_size"), value("freelist_count")];
	const canReturn = value("auto_vacuum") === INCREMENTAL;
	if (canReturn) database.exec(`PRAGMA incremental_vacuum(${PAGES})`);
	const after = value("freelist_count");
	return { returnedBytes: (before - after) * size, freeBytes: after * size, hasMore: canReturn && after > 0n };
}
