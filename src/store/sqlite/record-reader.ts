import { release } from "../../memory.ts";
import { combined, mergeRecord } from "../../record/record-delta.ts";
import { readable } from "../record-column.ts";
import { recordFrom } from "../rows.ts";
import type { StoredRecord, UnreadableRecord } from "../store.ts";
import { bigint, nullable } from "../values.ts";
import type { Statements } from "./statements.ts";

/** A record as its row has it. */
export interface RawRecord extends StoredRecord {
	/** Sequence of the update over whose record this one is a delta; undefined when it is whole. */
	readonly base: bigint | undefined;
}

/**
 * Reads the records of one answer, one by one, so that one that is damaged does not fail the query for all. A base of
 * several deltas is read once.
 */
export class RecordReader implements Disposable {
	readonly #statements: Statements;
	#base: { readonly sequence: bigint; readonly record: StoredRecord } | undefined;

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	/** The whole record of an update, in memory of its own. */
	read(sequence: bigint): StoredRecord | UnreadableRecord {
		return readable(() => {
			const { base, ...record } = this.readRaw(sequence);
			if (base === undefined) return record;
			if (this.#base?.sequence !== base) {
				this[Symbol.dispose]();
				this.#base = { sequence: base, record: this.readRaw(base) };
			}
			return combined(this.#base.record, record, mergeRecord);
		});
	}

	/** Frees the base that was read last. */
	[Symbol.dispose](): void {
		if (this.#base !== undefined) release(this.#base.record.bytes);
		this.#base = undefined;
	}

	/** @throws Error when the record is not what was stored */
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
