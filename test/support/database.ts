import { DatabaseSync } from "node:sqlite";
import { z } from "zod";

const columns = z.array(z.object({ name: z.string(), type: z.string() }));

/**
 * Changes what the database of a stopped service holds of one update's record.
 *
 * @param sequence the update's
 * @param change gives the bytes to keep in place of those that are there
 * @throws Error when there is no such update
 */
export function changeStoredRecord(database: string, sequence: bigint, change: (bytes: Buffer) => Uint8Array): void {
	using file = new DatabaseSync(database);
	const row = file.prepare("SELECT record FROM updates WHERE sequence = ?").get(sequence);
	const bytes = z.object({ record: z.instanceof(Uint8Array) }).parse(row).record;
	file.prepare("UPDATE updates SET record = ? WHERE sequence = ?").run(change(Buffer.from(bytes)), sequence);
}

/** Makes a stopped service's updates look as if a release with another schema had written them. */
export function forgetSchemaVersions(database: string): void {
	using file = new DatabaseSync(database);
	const found = columns.parse(file.prepare("PRAGMA table_info(updates)").all());
	for (const { name } of found.filter((column) => column.name.endsWith("schema_version")))
		file.exec(`UPDATE updates SET ${name} = ${name} + 1`);
}
