import type { StoredRecord, UnreadableRecord } from "../store.ts";
import { unpackRecord } from "./record-column.ts";
import type { Statements } from "./statements.ts";
import { blob, integer, nullable } from "./values.ts";

/** Reads records one by one, so that one that is damaged does not fail the query for all. */
export class RecordReader {
	readonly #statements: Statements;

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	/** The record of an update. */
	read(sequence: bigint): StoredRecord | UnreadableRecord {
		try {
			const row = this.#statements
				.prepare(
					"SELECT record, unpacked_size, checksum, redaction_version, schema_version FROM updates WHERE sequence = ?",
				)
				.get(sequence);
			const bytes = unpackRecord({
				record: blob(row?.record),
				unpackedSize: nullable(integer, row?.unpacked_size) ?? null,
				checksum: integer(row?.checksum),
			});
			return {
				bytes,
				redactionVersion: integer(row?.redaction_version),
				schemaVersion: integer(row?.schema_version),
			};
		} catch (error) {
			return { unreadable: error instanceof Error ? error.message : String(error) };
		}
	}
}
