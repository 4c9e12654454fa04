import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { encodeActivity, isBehindEvents } from "../activity.ts";
import { microsecondsOf } from "../condition.ts";
import { decide, knownTime, orderTime } from "../ordering.ts";
import type { Appended, StoredRecord } from "../store.ts";
import { findActivity } from "./activities.ts";
import type { AppendRequest, PossibleRepetition } from "./calls.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { type Columns, UpdateWriter } from "./update-writer.ts";
import { bigint, integer, nullable, type Row } from "./values.ts";

/** Appends posted updates, inside transactions that the caller holds. */
export class Appender {
	readonly #statements: Statements;
	readonly #writer: UpdateWriter;

	constructor(statements: Statements) {
		this.#statements = statements;
		this.#writer = new UpdateWriter(statements);
	}

	/** @param nextSequence called only when the update is to be written */
	append({ update, judged }: AppendRequest, nextSequence: () => bigint): Appended | PossibleRepetition {
		const { conversationId, receivedAt, record } = update;
		const summary = fromBinary(ConversationSummarySchema, update.summary);
		const updatedAt = microsecondsOf(summary.updatedAt);
		const known = this.#writer.find(conversationId);
		const newest = {
			newest_updated_at: updatedAt ?? null,
			newest_size: BigInt(record.bytes.byteLength),
		};
		if (known !== undefined && this.#mayRepeat(known, newest, record)) {
			const repetition = this.#repetition(known, record.bytes, judged);
			if (repetition !== undefined) return repetition;
		}

		const time = orderTime(updatedAt, receivedAt);
		const status = summary.executionStatus;
		const { current, change } = decide(
			known && { status: integer(known.status), time: knownTime(nullable(bigint, known.order_time), receivedAt) },
			{ status, time },
		);
		const sequence = nextSequence();
		const activity = findActivity(this.#statements, conversationId);
		const posted = { status, postedAt: time ?? receivedAt };
		const isBehind = current ? isBehindEvents(posted, activity) : known?.is_behind === 1n;
		this.#writer.write(
			{
				conversationId,
				sequence,
				receivedAt,
				change,
				current,
				origin: UpdateOrigin.POSTED,
				summary: update.summary,
				activity: activity && encodeActivity(activity),
				record,
				base: undefined,
				size: record.bytes.byteLength,
			},
			summary,
			known,
			{
				...newest,
				newest_sequence: sequence,
				...(current
					? {
							order_time: time ?? null,
							posted_at: posted.postedAt,
							// Unlike any other, also when the conversation was removed and begins anew.
							revision: sequence,
							told: null,
							is_behind: isBehind ? 1n : 0n,
						}
					: {}),
			},
		);
		return { sequence, repeated: false, change, current, isBehind };
	}

	/**
	 * Whether a record may repeat the newest posted one of its conversation: it has the same time, and the same length
	 * unless another schema encoded the newest one. Without a time it says what holds at its arrival, so it repeats
	 * nothing once events have changed the record.
	 */
	#mayRepeat(known: Row, arriving: Columns, { schemaVersion }: StoredRecord): boolean {
		const newest = nullable(bigint, known.newest_sequence);
		if (newest === undefined || known.newest_updated_at !== arriving.newest_updated_at) return false;
		if (arriving.newest_updated_at === null && bigint(known.sequence) > newest) return false;
		if (known.newest_size === arriving.newest_size) return true;
		const row = this.#statements.prepare("SELECT schema_version FROM updates WHERE sequence = ?").get(newest);
		return row !== undefined && integer(row.schema_version) !== schemaVersion;
	}

	/** Whether a record repeats the newest posted one; undefined when it does not. */
	#repetition(
		known: Row,
		arriving: Uint8Array,
		judged: AppendRequest["judged"],
	): Appended | PossibleRepetition | undefined {
		const newest = bigint(known.newest_sequence);
		const isJudged = judged?.sequence === newest || judged?.sequence === "any";
		if (isJudged && !judged.same) return undefined;
		const stored = isJudged ? undefined : new RecordReader(this.#statements).read(newest);
		// A record that cannot be read is stored again.
		if (stored !== undefined && "unreadable" in stored) return undefined;
		if (stored !== undefined && Buffer.compare(stored.bytes, arriving) !== 0)
			return { possiblyRepeats: newest, record: stored.bytes };
		const row = this.#statements.prepare("SELECT change, current FROM updates WHERE sequence = ?").get(newest);
		// Pruning can have removed it.
		if (row === undefined) return undefined;
		return {
			sequence: newest,
			repeated: true,
			change: integer(row.change),
			current: row.current === 1n,
			isBehind: known.is_behind === 1n,
		};
	}
}
