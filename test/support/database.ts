import { DatabaseSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import { z } from "zod";

const columns = z.array(z.object({ name: z.string() }));
const stored = z.object({ record: z.instanceof(Uint8Array) });

/** Returns the bytes that replace the stored ones. */
type Change = (bytes: Buffer) => Uint8Array;

/**
 * Damages the stored record of an update in the database of a stopped service.
 *
 * @throws Error when there is no such update
 */
export function damageStoredRecord(database: string, sequence: bigint, damage: Change): void {
	using file = new DatabaseSync(database);
	change(file, sequence, damage);
}

/**
 * Rewrites the stored record of an update in the database of a stopped service, as if a release with another schema had
 * written it.
 *
 * @throws Error when there is no such update
 */
export function rewriteStoredRecord(database: string, sequence: bigint, rewrite: Change): void {
	using file = new DatabaseSync(database);
	const record = change(file, sequence, rewrite);
	const names = columns.parse(file.prepare("PRAGMA table_info(updates)").all()).map(({ name }) => name);
	const values = { schema_version: 1, checksum: crc32(record) };
	for (const [name, value] of Object.entries(values))
		if (names.includes(name)) file.prepare(`UPDATE updates SET ${name} = ? WHERE sequence = ?`).run(value, sequence);
}

function change(file: DatabaseSync, sequence: bigint, transform: Change): Uint8Array {
	const row = file.prepare("SELECT record FROM updates WHERE sequence = ?").get(sequence);
	const record = transform(Buffer.from(stored.parse(row).record));
	file.prepare("UPDATE updates SET record = ? WHERE sequence = ?").run(record, sequence);
	return record;
}
