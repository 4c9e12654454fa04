import type { DatabaseSync } from "node:sqlite";
import { fromBinary } from "@bufbuild/protobuf";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { microsecondsOf } from "../condition.ts";
import { decide, orderTime } from "../ordering.ts";
import type { Appended, StoredRecord } from "../store.ts";
import type { AppendRequest, PossibleRepetition } from "./calls.ts";
import { packRecord } from "./record-column.ts";
import { RecordReader } from "./record-reader.ts";
import { Statements } from "./statements.ts";
import { bigint, integer, nullable, type Row, text } from "./values.ts";

/** Appends updates, inside transactions that the caller holds. */
export class Appender {
	readonly #statements: Statements;
	readonly #records: RecordReader;

	constructor(database: DatabaseSync) {
		this.#statements = new Statements(database);
		this.#records = new RecordReader(this.#statements);
	}

	/** @param nextSequence called only when the update is to be written */
	append({ update, judged }: AppendRequest, nextSequence: () => bigint): Appended | PossibleRepetition {
		const { conversationId, receivedAt, record } = update;
		const summary = fromBinary(ConversationSummarySchema, update.summary);
		const updatedAt = microsecondsOf(summary.updatedAt);
		const known = this.#statements.prepare("SELECT * FROM conversations WHERE conversation_id = ?").get(conversationId);
		const newest = {
			newest_updated_at: updatedAt ?? null,
			newest_size: BigInt(record.bytes.byteLength),
		};
		if (known !== undefined && this.#mayRepeat(known, newest, record)) {
			const repetition = this.#repetition(bigint(known.newest_sequence), record.bytes, judged);
			if (repetition !== undefined) return repetition;
		}

		const time = orderTime(updatedAt, receivedAt);
		const status = summary.executionStatus;
		const { current, change } = decide(
			known && { status: integer(known.status), time: nullable(bigint, known.order_time) },
			{ status, time },
		);
		const sequence = nextSequence();
		let conversation = known && bigint(known.id);
		if (conversation === undefined || current) {
			const columns = {
				...newest,
				newest_sequence: sequence,
				...filterColumns(summary),
				sequence,
				order_time: time ?? null,
			};
			conversation ??= this.#insert({ conversation_id: conversationId, ...columns });
			if (known !== undefined) this.#update(conversation, changed(columns, known));
			this.#writeTags(conversation, sequence, columns.tags, summary.tags, known);
			this.#writeTitle(conversation, summary.title, known);
		} else this.#update(conversation, { ...newest, newest_sequence: sequence });

		const packed = packRecord(record.bytes);
		this.#statements
			.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
			.run(
				sequence,
				conversation,
				change,
				current ? 1 : 0,
				known === undefined ? null : bigint(known.sequence),
				receivedAt,
				record.redactionVersion,
				record.schemaVersion,
				packed.unpackedSize,
				packed.checksum,
				update.summary,
				packed.record,
			);
		return { sequence, repeated: false, change, current };
	}

	/**
	 * Whether a record may repeat the newest one of its conversation: it has the same time, and the same length unless
	 * another schema encoded the newest one.
	 */
	#mayRepeat(known: Row, arriving: Columns, { schemaVersion }: StoredRecord): boolean {
		if (known.newest_updated_at !== arriving.newest_updated_at) return false;
		if (known.newest_size === arriving.newest_size) return true;
		const row = this.#statements
			.prepare("SELECT schema_version FROM updates WHERE sequence = ?")
			.get(bigint(known.newest_sequence));
		return row !== undefined && integer(row.schema_version) !== schemaVersion;
	}

	/** Whether a record repeats an update; undefined when it does not. */
	#repetition(
		newest: bigint,
		arriving: Uint8Array,
		judged: AppendRequest["judged"],
	): Appended | PossibleRepetition | undefined {
		const isJudged = judged?.sequence === newest || judged?.sequence === "any";
		if (isJudged && !judged.same) return undefined;
		const stored = isJudged ? undefined : this.#records.read(newest);
		// A record that cannot be read is stored again.
		if (stored !== undefined && "unreadable" in stored) return undefined;
		if (stored !== undefined && Buffer.compare(stored.bytes, arriving) !== 0)
			return { possiblyRepeats: newest, record: stored.bytes };
		const row = this.#statements.prepare("SELECT change, current FROM updates WHERE sequence = ?").get(newest);
		// Pruning can have removed it.
		if (row === undefined) return undefined;
		return { sequence: newest, repeated: true, change: integer(row.change), current: row.current === 1n };
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

	#update(id: bigint, columns: Columns): void {
		const assignments = Object.keys(columns).map((name) => `${name} = :${name}`);
		this.#statements.prepare(`UPDATE conversations SET ${assignments.join()} WHERE id = :id`).run({ ...columns, id });
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

type Columns = Readonly<Record<string, string | bigint | null>>;

const NO_TAGS = "{}";

/** The columns whose values differ: an index is written for each column that a statement names. */
function changed(columns: Columns, known: Row): Columns {
	return Object.fromEntries(Object.entries(columns).filter(([name, value]) => known[name] !== value));
}

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
