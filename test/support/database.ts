import { DatabaseSync } from "node:sqlite";
import { z } from "zod";

const stored = z.object({ record: z.instanceof(Uint8Array) });

/**
 * Damages the stored record of an update in the database of a stopped service.
 *
 * @param damage returns the bytes that replace the stored ones
 * @throws Error when there is no such update
 */
export function damageStoredRecord(database: string, sequence: bigint, damage: (bytes: Buffer) => Uint8Array): void {
	using file = new DatabaseSync(database);
	const row = file.prepare("SELECT record FROM updates WHERE sequence = ?").get(sequence);
	const record = damage(Buffer.from(stored.parse(row).record));
	file.prepare("UPDATE updates SET record = ? WHERE sequence = ?").run(record, sequence);
}
