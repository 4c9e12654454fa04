import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { combined, deltaWithLeaf, mergeDeltas, mergeRecord, withLeaf } from "../../record/record-delta.ts";
import { type Activity, addEvents, encodeActivity, leafOver } from "../activity.ts";
import { changeBetween, decide } from "../ordering.ts";
import type { AppendedEvents, LiveVersion, NewEvent, NewEvents, StoredRecord } from "../store.ts";
import { findActivity, insertActivity, updateActivity } from "./activities.ts";
import { packRecord } from "./record-column.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { UpdateWriter, type WrittenUpdate } from "./update-writer.ts";
import { bigint, integer, nullable, type Row } from "./values.ts";

/** A delta that is larger than this part of its base costs more than it saves: the whole record is stored. */
const LARGEST_DELTA = 1 / 4;

/** Give the next sequence numbers; called only for what is to be written. */
export interface Numbering {
	updates(): bigint;
	events(): bigint;
}

/** Appends batches of events with the updates that they make, inside transactions that the caller holds. */
export class EventAppender {
	readonly #statements: Statements;
	readonly #writer: UpdateWriter;

	constructor(statements: Statements) {
		this.#statements = statements;
		this.#writer = new UpdateWriter(statements);
	}

	/** Undefined when it does not fit the conversation's live state: see `Store.appendEvents`. */
	append(batch: NewEvents, next: Numbering): AppendedEvents | undefined {
		const { conversationId, receivedAt, events, live } = batch;
		const known = this.#writer.find(conversationId);
		if (live !== undefined && live.expects !== (known === undefined ? 0n : bigint(known.revision))) return undefined;
		const before = findActivity(this.#statements, conversationId);
		if (live !== undefined && before !== undefined && this.#isAnyStored(before.id, events)) return undefined;
		let activity: Activity | undefined = before;
		const added = new Map<NewEvent, bigint>();
		if (events.length > 0) {
			const id = before?.id ?? insertActivity(this.#statements, conversationId);
			for (const event of events) {
				const sequence = this.#insert(id, receivedAt, event, next);
				if (sequence !== undefined) added.set(event, sequence);
			}
			activity = addEvents(before, events, (event) => added.has(event));
			if (activity !== undefined && added.size > 0) updateActivity(this.#statements, id, activity);
		}

		let updateSequence: bigint | undefined;
		if (live !== undefined) {
			const columns = { told: live.told, revision: live.next, is_behind: 0n };
			if (live.version !== undefined) {
				updateSequence = next.updates();
				const update = { conversationId, receivedAt, sequence: updateSequence };
				this.#writeVersion(update, live.version, known, activity, columns);
			} else if (known !== undefined) this.#writer.update(known, columns);
		}
		return { stored: added.size, newest: [...added.values()].at(-1) ?? 0n, updateSequence };
	}

	/** Whether an event is stored that tells of the record. */
	#isAnyStored(activity: bigint, events: readonly NewEvent[]): boolean {
		return events.some((event) => !event.isLeaf && this.#isStored(activity, event));
	}

	#isStored(activity: bigint, { eventId }: NewEvent): boolean {
		const find = this.#statements.prepare("SELECT 1 FROM events WHERE activity = ? AND event_id = ?");
		return find.get(activity, eventId) !== undefined;
	}

	/** Writes an event unless it is stored; gives its sequence if it was written. */
	#insert(activity: bigint, receivedAt: bigint, event: NewEvent, next: Numbering): bigint | undefined {
		if (this.#isStored(activity, event)) return undefined;
		const sequence = next.events();
		const packed = packRecord(event.text);
		this.#statements
			.prepare("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
			.run(
				sequence,
				activity,
				event.eventId,
				receivedAt,
				event.happenedAt,
				event.kind,
				event.source,
				event.redactionVersion,
				packed.unpackedSize,
				packed.checksum,
				event.secrets.length === 0 ? null : JSON.stringify(event.secrets),
				packed.record,
			);
		return sequence;
	}

	#writeVersion(
		update: Pick<WrittenUpdate, "conversationId" | "receivedAt" | "sequence">,
		version: LiveVersion,
		known: Row | undefined,
		activity: Activity | undefined,
		columns: Parameters<UpdateWriter["write"]>[3],
	): void {
		const summary = fromBinary(ConversationSummarySchema, version.summary);
		const status = summary.executionStatus;
		const leaf = leafOver({ status, postedAt: known && nullable(bigint, known.posted_at) }, activity);
		this.#writer.write(
			{
				...update,
				change:
					known === undefined
						? decide(undefined, { status, time: undefined }).change
						: changeBetween(integer(known.status), status),
				current: true,
				origin: UpdateOrigin.EVENTS,
				summary: version.summary,
				activity: activity && encodeActivity(activity),
				...this.#storedForm(version.record, known && bigint(known.sequence), leaf),
			},
			summary,
			known,
			columns,
		);
	}

	/** The form in which the record of a live version is stored: a delta over the last whole record, or whole. */
	#storedForm(
		record: StoredRecord,
		current: bigint | undefined,
		leaf: string | undefined,
	): Pick<WrittenUpdate, "record" | "base" | "size"> {
		if (current === undefined) {
			const bytes = leaf === undefined ? record.bytes : withLeaf(record.bytes, leaf);
			return { record: { ...record, bytes }, base: undefined, size: bytes.byteLength };
		}
		const records = new RecordReader(this.#statements);
		let delta = leaf === undefined ? record : { ...record, bytes: deltaWithLeaf(record.bytes, leaf) };
		const row = this.#statements.prepare("SELECT base_sequence FROM updates WHERE sequence = ?").get(current);
		const base = nullable(bigint, row?.base_sequence) ?? current;
		if (base !== current) delta = combined(records.readRaw(current), delta, mergeDeltas);
		const size = integer(this.#statements.prepare("SELECT size FROM updates WHERE sequence = ?").get(base)?.size);
		if (delta.bytes.byteLength <= size * LARGEST_DELTA)
			return { record: delta, base, size: size + delta.bytes.byteLength };
		const whole = combined(records.readRaw(base), delta, mergeRecord);
		return { record: whole, base: undefined, size: whole.bytes.byteLength };
	}
}
