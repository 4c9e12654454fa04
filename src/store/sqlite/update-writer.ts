import type { ConversationSummary } from "../../../gen/conversations/v1/summary_pb.js";
import { microsecondsOf } from "../condition.ts";
import type { ConversationState, WrittenUpdate } from "../conversation-state.ts";
import { packRecord } from "../record-column.ts";
import type { TransferUpdate } from "../transfer.ts";
import { bigint, nullable, type Row, text } from "../values.ts";
import { stateOf } from "./rows.ts";
import type { Statements } from "./statements.ts";

/** A conversation that has a record, with its row. */
export interface KnownConversation {
	readonly id: bigint;
	readonly row: Row;
	readonly state: ConversationState;
}

/** Values of columns by their names. */
type Columns = Readonly<Record<string, string | bigint | null>>;

/** Writes updates with what lists filter by, inside transactions that the caller holds. */
export class UpdateWriter {
	readonly #statements: Statements;

	constructor(statements: Statements) {
		this.#statements = statements;
	}

	/** A conversation; undefined when it has no record. */
	find(conversationId: string): KnownConversation | undefined {
		const row = this.#statements.prepare("SELECT * FROM conversations WHERE conversation_id = ?").get(conversationId);
		return row && { id: bigint(row.id), row, state: stateOf(row) };
	}

	/**
	 * @param summary the update's, decoded
	 * @param known undefined for a new conversation, whose first update is current
	 * @param after the conversation's state with the update
	 */
	write(
		update: WrittenUpdate,
		summary: ConversationSummary,
		known: KnownConversation | undefined,
		after: ConversationState,
	): void {
		const { conversationId, current, record } = update;
		let conversation = known?.id;
		if (conversation === undefined) conversation = this.insertConversation(conversationId, after, summary);
		else if (known !== undefined) this.#updateConversation(known, after, current ? summary : undefined);
		const { redactionVersion, schemaVersion } = record;
		const packed = { redactionVersion, schemaVersion, ...packRecord(record.bytes) };
		this.insertUpdate(conversation, { ...update, record: packed });
	}

	/** Writes a conversation that has no row; gives the id of its row. */
	insertConversation(conversationId: string, state: ConversationState, summary: ConversationSummary): bigint {
		const filters = filterColumns(summary);
		const id = this.#insert({ conversation_id: conversationId, ...stateColumns(state), ...filters });
		this.#writeTags(id, state.sequence, filters.tags, summary.tags, undefined);
		this.#writeTitle(id, summary.title, undefined);
		return id;
	}

	/** @param conversation id of the row of its conversation */
	insertUpdate(conversation: bigint, update: TransferUpdate): void {
		const { record } = update;
		this.#statements
			.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
			.run(
				update.sequence,
				conversation,
				update.change,
				update.current ? 1 : 0,
				update.previousSequence ?? null,
				update.receivedAt,
				update.origin,
				update.base ?? null,
				update.size,
				record.redactionVersion,
				record.schemaVersion,
				record.unpackedSize,
				record.checksum,
				update.summary,
				update.activity ?? null,
				record.record,
			);
	}

	/** Writes the state of a conversation whose record stays. */
	writeState(known: KnownConversation, after: ConversationState): void {
		this.#update(known, stateColumns(after));
	}

	/** @param summary that of the conversation's new current record; undefined when the record stays */
	#updateConversation(
		known: KnownConversation,
		after: ConversationState,
		summary: ConversationSummary | undefined,
	): void {
		if (summary === undefined) {
			this.#update(known, stateColumns(after));
			return;
		}
		const filters = filterColumns(summary);
		this.#update(known, { ...stateColumns(after), ...filters });
		this.#writeTags(known.id, after.sequence, filters.tags, summary.tags, known.row);
		this.#writeTitle(known.id, summary.title, known.row);
	}

	/** Writes those columns of a conversation that differ: an index is written for each column that a statement names. */
	#update({ id, row }: KnownConversation, columns: Columns): void {
		const changed = Object.entries(columns).filter(([name, value]) => row[name] !== value);
		if (changed.length === 0) return;
		const assignments = changed.map(([name]) => `${name} = :${name}`);
		this.#statements
			.prepare(`UPDATE conversations SET ${assignments.join()} WHERE id = :id`)
			.run({ ...Object.fromEntries(changed), id });
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

function stateColumns(state: ConversationState) {
	const { sequence, orderTime, newest, revision, told, postedAt, hasUnappliedEvents } = state;
	return {
		sequence,
		status: BigInt(state.status),
		order_time: orderTime ?? null,
		newest_sequence: newest?.sequence ?? null,
		newest_updated_at: newest?.updatedAt ?? null,
		newest_size: newest === undefined ? null : BigInt(newest.size),
		revision,
		told: told ?? null,
		posted_at: postedAt ?? null,
		has_unapplied_events: hasUnappliedEvents ? 1n : 0n,
	};
}

/** What lists filter by, beside the status. */
function filterColumns(summary: ConversationSummary) {
	return {
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
