import { hash } from "node:crypto";
import type { DatabaseSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import type { Appended } from "../store.ts";
import { asNumbers } from "./database.ts";
import { loadRecord } from "./records.ts";
import { bigint, blob, changeOf, integer } from "./values.ts";

/** What tells an update from others of its conversation. */
interface Identity {
	/** Empty where the record itself tells. */
	readonly digest: Uint8Array;
	readonly record: Uint8Array;
	readonly updatedAt: bigint | undefined;
}

/** A number of at most 48 bits that the index holds of an update: few others of its conversation have the same. */
export function markOf({ digest, record }: Identity): number {
	return digest.byteLength === 0 ? crc32(record) : prefixOf(digest);
}

/**
 * Returns a function that finds an update among those of its conversation, and gives what was answered to it. The
 * connection reads integers as bigints.
 */
export function repetitionFinder(
	database: DatabaseSync,
): (conversation: bigint, mark: number, update: Identity) => Appended | undefined {
	const find = (time: string) =>
		database.prepare(`
			SELECT sequence FROM updates INDEXED BY updates_by_digest
			WHERE updated_at ${time} AND digest_prefix = ? AND conversation = ? ORDER BY sequence
		`);
	const [timed, untimed] = [find("= ?"), find("IS NULL")];
	const read = database.prepare(`
		SELECT change, current, digest, record, unpacked_size FROM updates WHERE sequence = ?
	`);
	const hasVersion1 = keepsVersion1(database);

	return (conversation, mark, update) => {
		const { updatedAt } = update;
		const candidates =
			updatedAt === undefined ? untimed.all(mark, conversation) : timed.all(updatedAt, mark, conversation);
		if (hasVersion1) candidates.push(...untimed.all(prefixOf(digestOfVersion1(update)), conversation));
		for (const { sequence } of candidates) {
			const row = read.get(bigint(sequence));
			if (row === undefined || !isSame(row, update)) continue;
			return { sequence: bigint(sequence), repeated: true, change: changeOf(row.change), current: row.current === 1n };
		}
		return undefined;
	};
}

function isSame(row: Record<string, unknown>, update: Identity): boolean {
	const digest = blob(row.digest);
	if (digest.byteLength === 0)
		return update.digest.byteLength === 0 && equal(loadRecord(row.record, row.unpacked_size), update.record);
	return equal(digest, digestOfVersion1(update));
}

/** Whether there may be updates that version 1 of the schema stored. */
function keepsVersion1(database: DatabaseSync): boolean {
	const state = database.prepare("SELECT version_1_through > pruned_through AS kept FROM store_state", asNumbers).get();
	return integer(state?.kept) === 1;
}

/** The digest that version 1 of the schema stored of an update: its own, or one of its record. */
function digestOfVersion1({ digest, record }: Identity): Uint8Array {
	return digest.byteLength === 0 ? hash("sha256", record, "buffer") : digest;
}

function prefixOf(digest: Uint8Array): number {
	return digest.byteLength < 6 ? 0 : Buffer.from(digest.buffer, digest.byteOffset, 6).readUIntBE(0, 6);
}

function equal(a: Uint8Array, b: Uint8Array): boolean {
	return Buffer.compare(a, b) === 0;
}
