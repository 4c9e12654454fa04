import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { combined, mergeRecord } from "../../record/record-delta.ts";
import { type Activity, addEvents } from "../activity.ts";
import {
	type ConversationState,
	deltaForm,
	deltaOverBase,
	firstForm,
	leafOfVersion,
	nextVersion,
	type StoredForm,
	told,
	wholeForm,
} from "../conversation-state.ts";
import { packRecord, packSecrets } from "../record-column.ts";
import type { AppendedEvents, NewEvent, NewEvents, NewLiveState, StoredRecord } from "../store.ts";
import type { TransferEvent } from "../transfer.ts";
import { bigint, integer, nullable } from "../values.ts";
import { findActivity, insertActivity, updateActivity } from "./activities.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { type KnownConversation, UpdateWriter } from "./update-writer.ts";

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
		const known = live === undefined ? undefined : this.#writer.find(conversationId);
		if (live !== undefined && live.expects !== (known?.state.revision ?? 0n)) return undefined;
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

		const updateSequence = live && this.#writeLive(batch, live, known, activity, next.updates);
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
		const [text, secrets] = [packRecord(event.text), packSecrets(event.secrets)];
		insertEvent(this.#statements, activity, { ...event, sequence, receivedAt, text, secrets });
		return sequence;
	}

	/** Writes what events tell of the record. Gives the sequence of the version that they make, if they make one. */
	#writeLive(
		batch: NewEvents,
		live: NewLiveState,
		known: KnownConversation | undefined,
		activity: Activity | undefined,
		nextSequence: () => bigint,
	): bigint | undefined {
		const { version } = live;
		if (version === undefined) {
			if (known !== undefined) this.#writer.writeState(known, told(known.state, live));
			return undefined;
		}
		const summary = fromBinary(ConversationSummarySchema, version.summary);
		const sequence = nextSequence();
		const of = { batch, live, version, status: summary.executionStatus, before: known?.state, activity, sequence };
		const { written, after } = nextVersion(of, this.#storedForm(version.record, known?.state, leafOfVersion(of)));
		this.#writer.write(written, summary, known, after);
		return sequence;
	}

	/** The form in which the record of a live version is stored: a delta over the last whole record, or whole. */
	#storedForm(record: StoredRecord, before: ConversationState | undefined, leaf: string | undefined): StoredForm {
		if (before === undefined) return firstForm(record, leaf);
		const { sequence } = before;
		const records = new RecordReader(this.#statements);
		const row = this.#statements.prepare("SELECT base_sequence FROM updates WHERE sequence = ?").get(sequence);
		const base = nullable(bigint, row?.base_sequence) ?? sequence;
		const delta = deltaOverBase(record, leaf, base === sequence ? undefined : records.readRaw(sequence));
		const size = this.#statements.prepare("SELECT size FROM updates WHERE sequence = ?").get(base)?.size;
		return deltaForm(delta, base, integer(size)) ?? wholeForm(combined(records.readRaw(base), delta, mergeRecord));
	}
}

/**
 * Writes an event that is not stored.
 *
 * @param activity id of the row of its conversation's activity
 */
export function insertEvent(
	statements: Statements,
	activity: bigint,
	event: Omit<TransferEvent, "conversationId">,
): void {
	statements
		.prepare("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		.run(
			event.sequence,
			activity,
			event.eventId,
			event.receivedAt,
			event.happenedAt,
			event.kind,
			event.source,
			event.redactionVersion,
			event.text.unpackedSize,
			event.text.checksum,
			event.secrets,
			event.text.record,
		);
}
