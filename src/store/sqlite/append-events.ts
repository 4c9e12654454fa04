import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { mergeProtected, mergeRecord } from "../../record/record-delta.ts";
import { type Activity, addEvents, eventsToAdd, leafOver } from "../activity.ts";
import {
	type ConversationState,
	deltaForm,
	deltaOverBase,
	firstForm,
	planLiveVersion,
	revisionOf,
	type StoredForm,
	stateAfterEvents,
	wholeForm,
} from "../conversation-state.ts";
import { packRecord, packSecrets } from "../record-column.ts";
import type { AppendedEvents, NewEvent, NewEvents, NewLiveState, StoredRecord } from "../store.ts";
import type { EventRow } from "../stored-rows.ts";
import { bigint, integer, nullable } from "../values.ts";
import { findActivity, writeActivity } from "./activities.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { findConversation, type KnownConversation, updateConversation, writeUpdate } from "./update-writer.ts";

/** Return the next sequence number of each log. They are called only for entries that are written. */
export interface Counters {
	updates(): bigint;
	events(): bigint;
}

/**
 * Appends a batch of events with the update that they make. The caller has begun a transaction.
 *
 * @returns undefined, with nothing written, if the batch has a live state, and either the stored revision is not the
 *   expected one, or an event of the batch that changes the record is stored already
 */
export function appendEvents(statements: Statements, batch: NewEvents, next: Counters): AppendedEvents | undefined {
	const { conversationId, receivedAt, events, live } = batch;
	const known = live === undefined ? undefined : findConversation(statements, conversationId);
	const before = findActivity(statements, conversationId);
	const find = statements.prepare("SELECT 1 FROM events WHERE activity = ? AND event_id = ?");
	const isStored = ({ eventId }: NewEvent) => before !== undefined && find.get(before.id, eventId) !== undefined;
	const added = eventsToAdd(batch, revisionOf(known?.state, before), isStored);
	if (added === undefined) return undefined;
	const activity = addEvents(before, events, added);
	let newest = 0n;
	if (activity !== undefined && added.size > 0) {
		const id = writeActivity(statements, conversationId, before?.id, activity);
		for (const event of added) {
			newest = next.events();
			const [text, secrets] = [packRecord(event.text), packSecrets(event.secrets)];
			insertEvent(statements, id, { ...event, sequence: newest, receivedAt, text, secrets });
		}
	}
	const updateSequence = live && writeLive(statements, batch, live, known, activity, next.updates);
	return { stored: added.size, newest, updateSequence };
}

/**
 * Writes the live state that results from events, with the version that they make of the record.
 *
 * @returns sequence number of the version; undefined if the record does not change
 */
function writeLive(
	statements: Statements,
	batch: NewEvents,
	live: NewLiveState,
	known: KnownConversation | undefined,
	activity: Activity | undefined,
	nextSequence: () => bigint,
): bigint | undefined {
	const { version } = live;
	if (version === undefined) {
		if (known !== undefined) updateConversation(statements, known, stateAfterEvents(known.state, live), undefined);
		return undefined;
	}
	const summary = fromBinary(ConversationSummarySchema, version.summary);
	const sequence = nextSequence();
	const of = { batch, live, version, status: summary.executionStatus, before: known?.state, activity, sequence };
	const leaf = leafOver({ status: of.status, postedAt: of.before?.postedAt }, activity);
	const form = storedForm(statements, version.record, of.before, leaf);
	const { written, after } = planLiveVersion(of, form);
	writeUpdate(statements, written, summary, known, after);
	return sequence;
}

/** Returns the record of a live version as it is stored: as a delta over the last whole record, or whole. */
function storedForm(
	statements: Statements,
	record: StoredRecord,
	before: ConversationState | undefined,
	leaf: string | undefined,
): StoredForm {
	if (before === undefined) return firstForm(record, leaf);
	const { sequence } = before;
	const records = new RecordReader(statements);
	const row = statements.prepare("SELECT base_sequence FROM updates WHERE sequence = ?").get(sequence);
	const base = nullable(bigint, row?.base_sequence) ?? sequence;
	const delta = deltaOverBase(record, leaf, base === sequence ? undefined : records.readRaw(sequence));
	const size = statements.prepare("SELECT size FROM updates WHERE sequence = ?").get(base)?.size;
	return deltaForm(delta, base, integer(size)) ?? wholeForm(mergeProtected(records.readRaw(base), delta, mergeRecord));
}

/**
 * Inserts an event.
 *
 * @param activity row id of its conversation's activity
 */
export function insertEvent(statements: Statements, activity: bigint, event: Omit<EventRow, "conversationId">): void {
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
