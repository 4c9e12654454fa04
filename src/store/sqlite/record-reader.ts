import { release } from "../../memory.ts";
import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import { readOrUnreadable } from "../record-column.ts";
import { recordFrom } from "../rows.ts";
import type { RecordReader as RecordReaderOfSession } from "../session.ts";
import { bigint, nullable, type Row, type StoredRecord, type Unreadable } from "../values.ts";
import type { Statements } from "./statements.ts";

/** A record as it is stored: whole or a delta. */
export interface RawRecord extends StoredRecord {
	/** Sequence number of the update whose record is the base of this delta; undefined when the record is whole. */
	readonly base: bigint | undefined;
}

/**
 * Reads the records of one result one by one, so that a damaged record does not fail the whole query. Successive deltas
 * over the same base read it once.
 */
export class RecordReader implements RecordReaderOfSession {
	readonly columns = "";
	readonly join = "";
	readonly #statements: Statements;
	#base: { readonly sequence: bigint; readonly record: StoredRecord } | undefined;

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	read(row: Row): StoredRecord | Unreadable {
		return readOrUnreadable(() => {
			const { base, ...record } = this.readRaw(bigint(row.sequence));
			if (base === undefined) return record;
			if (this.#base?.sequence !== base) {
				this[Symbol.dispose]();
				this.#base = { sequence: base, record: this.readRaw(base) };
			}
			return mergeProtected(this.#base.record, record, mergeRecord);
		});
	}

	/** Frees the memory of the last base. */
	[Symbol.dispose](): void {
		if (this.#base !== undefined) release(this.#base.record.bytes);
		this.#base = undefined;
	}

	/** @throws Error when the record is missing or damaged */
	readRaw(sequence: bigint): RawRecord {
		const row = this.#statements
			.prepare(`
				SELECT base_sequence, record, unpacked_size, checksum, redaction_version, schema_version
				FROM updates WHERE sequence = ?
			`)
			.get(sequence);
		return { ...recordFrom(row), base: nullable(bigint, row?.base_sequence) };
	}
}
