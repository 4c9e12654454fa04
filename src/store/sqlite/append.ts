import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { microsecondsOf } from "../condition.ts";
import { nextPosted } from "../conversation-state.ts";
import { type AppendRequest, isRepetition, mayRepeat, type PossibleRepetition } from "../repetition.ts";
import type { Appended } from "../store.ts";
import { boolean, integer } from "../values.ts";
import { findActivity } from "./activities.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { findConversation, type KnownConversation, writeUpdate } from "./update-writer.ts";

/**
 * Appends a posted update, inside a transaction that the caller holds.
 *
 * @param nextSequence called only when the update is to be written
 */
export function appendUpdate(
	statements: Statements,
	request: AppendRequest,
	nextSequence: () => bigint,
): Appended | PossibleRepetition {
	const { update } = request;
	const summary = fromBinary(ConversationSummarySchema, update.summary);
	const known = findConversation(statements, update.conversationId);
	const repetition = known && repetitionOf(statements, request, known, microsecondsOf(summary.updatedAt));
	if (repetition !== undefined) return repetition;
	const activity = findActivity(statements, update.conversationId);
	const { written, after } = nextPosted(update, summary, known?.state, activity, nextSequence());
	writeUpdate(statements, written, summary, known, after);
	const { sequence, change, current } = written;
	return { sequence, repeated: false, change, current, hasUnappliedEvents: after.hasUnappliedEvents };
}

/** What the request is answered if it repeats the newest posted update, or may; undefined when it does not. */
function repetitionOf(
	statements: Statements,
	request: AppendRequest,
	{ state }: KnownConversation,
	updatedAt: bigint | undefined,
): Appended | PossibleRepetition | undefined {
	const { newest } = state;
	const schemaVersionOf = (sequence: bigint) => {
		const row = statements.prepare("SELECT schema_version FROM updates WHERE sequence = ?").get(sequence);
		return row && integer(row.schema_version);
	};
	if (newest === undefined || !mayRepeat(state, updatedAt, request.update.record, schemaVersionOf)) return undefined;
	const { sequence } = newest;
	const repeats = isRepetition(request, sequence, () => new RecordReader(statements).read(sequence));
	if (repeats === false) return undefined;
	if (repeats !== true) return repeats;
	const row = statements.prepare("SELECT change, current FROM updates WHERE sequence = ?").get(sequence);
	// Pruning can have removed it.
	if (row === undefined) return undefined;
	const { hasUnappliedEvents } = state;
	return { sequence, repeated: true, change: integer(row.change), current: boolean(row.current), hasUnappliedEvents };
}
