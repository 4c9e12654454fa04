import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import { microsecondsOf } from "../condition.ts";
import type { StoredRecord, StoredUpdate } from "../store.ts";
import { packRecord } from "./record-column.ts";
import type { Statements } from "./statements.ts";
import { bigint, nullable, type Row, text } from "./values.ts";

/** An update as it is written. */
export interface WrittenUpdate extends Omit<StoredUpdate, "previousSequence" | "record" | "summary"> {
	/** Encoded summary without the activity's fields. */
	readonly summary: Uint8Array;
	/** The activity's fields of the summary; undefined when there are none. */
	readonly activity: Uint8Array | undefined;
	readonly record: StoredRecord;
	/** Sequence of the update over whose record this one is a delta; undefined for a whole record. */
	readonly base: bigint | undefined;
	/** Bytes of the whole record, or a little more. */
	readonly size: number;
}

/** Values of columns by their names. */
export type Columns = Readonly<Record<string, string | bigint | null>>;

/** Writes updates with what lists filter by, inside transactions that the caller holds. */
export class UpdateWriter {
	readonly #statements: Statements;

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	/** The row of a conversation. */
	find(conversationId: string): Row | undefined {
		return this.#statements.prepare("SELECT * FROM conversations WHERE conversation_id = ?").get(conversationId);
	}

	/**
	 * @param summary the update's, decoded
	 * @param known the row of the conversation; undefined for a new one, whose first update is current
	 * @param columns what else is to be written of the conversation
	 */
	write(update: WrittenUpdate, summary: ConversationSummary, known: Row | undefined, columns: Columns): void {
		const { conversationId, sequence, current, record } = update;
		let conversation = known && bigint(known.id);
		if (conversation === undefined || current) {
			const whole = { ...columns, ...filterColumns(summary), sequence };
			conversation ??= this.#insert({ conversation_id: conversationId, ...whole });
			if (known !== undefined) this.update(known, whole);
			this.#writeTags(conversation, sequence, whole.tags, summary.tags, known);
			this.#writeTitle(conversation, summary.title, known);
		} else if (known !== undefined) this.update(known, columns);

		const packed = packRecord(record.bytes);
		this.#statements
			.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
			.run(
				sequence,
				conversation,
				update.change,
				current ? 1 : 0,
				known === undefined ? null : bigint(known.sequence),
				update.receivedAt,
				update.origin,
				update.base ?? null,
				update.size,
				record.redactionVersion,
				record.schemaVersion,
				packed.unpackedSize,
				packed.checksum,
				update.summary,
				update.activity ?? null,
				packed.record,
			);
	}

	/** Writes those columns of a conversation that differ: an index is written for each column that a statement names. */
	update(known: Row, columns: Columns): void {
		const changed = Object.entries(columns).filter(([name, value]) => known[name] !== value);
		if (changed.length === 0) return;
		const assignments = changed.map(([name]) => `${name} = :${name}`);
		this.#statements
			.prepare(`UPDATE conversations SET ${assignments.join()} WHERE id = :id`)
			.run({ ...Object.fromEntries(changed), id: bigint(known.id) });
	}

	#insert(columns: Columns): bigint {
		const names = Object.keys(columns);
		const row = this.#statements
			.prepare(
				`INSERT INTO conversations (${names.join()}) VALUES (${names.map((name) => `:${name}`).join()}) RETURNING id`,
			)
			.get(columns);
		return bigint(row?.id);
	}

	#writeTags(
		conversation: bigint,
		sequence: bigint,
		json: string,
		tags: ConversationSummary["tags"],
		known: Row | undefined,
	): void {
		if (known?.tags === json) {
			if (json !== NO_TAGS)
				this.#statements.prepare("UPDATE tags SET sequence = ? WHERE conversation = ?").run(sequence, conversation);
			return;
		}
		if (known !== undefined && known.tags !== NO_TAGS)
			this.#statements.prepare("DELETE FROM tags WHERE conversation = ?").run(conversation);
		for (const [key, value] of Object.entries(tags))
			this.#statements.prepare("INSERT INTO tags VALUES (?, ?, ?, ?)").run(conversation, key, value, sequence);
	}

	#writeTitle(conversation: bigint, title: string | undefined, known: Row | undefined): void {
		const before = known && nullable(text, known.title);
		if (before === title) return;
		if (before !== undefined) this.#statements.prepare("DELETE FROM titles WHERE rowid = ?").run(conversation);
		if (title !== undefined)
			this.#statements.prepare("INSERT INTO titles (rowid, title) VALUES (?, ?)").run(conversation, title);
	}
}

const NO_TAGS = "{}";

/** What lists filter by. */
function filterColumns(summary: ConversationSummary) {
	return {
		status: BigInt(summary.executionStatus),
		agent_kind: summary.agentKind,
		model: summary.model,
		parent_id: summary.parentConversationId ?? null,
		created_at: microsecondsOf(summary.createdAt) ?? null,
		updated_at: microsecondsOf(summary.updatedAt) ?? null,
		title: summary.title ?? null,
		// Sorted, so that equal tags are equal texts.
		tags: JSON.stringify(summary.tags, Object.keys(summary.tags).sort()),
	};
}
