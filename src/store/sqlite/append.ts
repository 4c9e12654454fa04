import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { microsecondsOf } from "../condition.ts";
import { planPostedUpdate } from "../conversation-state.ts";
import { type AppendRequest, findRepetition, type PossibleRepetition, type StoredPost } from "../repetition.ts";
import type { Appended } from "../store.ts";
import { boolean, integer } from "../values.ts";
import { findActivity } from "./activities.ts";
import { RecordReader } from "./record-reader.ts";
import type { Statements } from "./statements.ts";
import { findConversation, writeUpdate } from "./update-writer.ts";

/**
 * Appends a posted update. The caller has begun a transaction.
 *
 * @param nextSequence called only if the update is written
 */
export function appendUpdate(
	statements: Statements,
	request: AppendRequest,
	nextSequence: () => bigint,
): Appended | PossibleRepetition {
	const { update } = request;
	const summary = fromBinary(ConversationSummarySchema, update.summary);
	const known = findConversation(statements, update.conversationId);
	const updatedAt = microsecondsOf(summary.updatedAt);
	const repetition = known && findRepetition(request, known.state, updatedAt, (newest) => findPost(statements, newest));
	if (repetition !== undefined) return repetition;
	const activity = findActivity(statements, update.conversationId);
	const { written, after } = planPostedUpdate(update, summary, known?.state, activity, nextSequence());
	writeUpdate(statements, written, summary, known, after);
	const { sequence, change, current } = written;
	return { sequence, repeated: false, change, current, hasUnappliedEvents: after.hasUnappliedEvents };
}

function findPost(statements: Statements, sequence: bigint): StoredPost | undefined {
	const row = statements
		.prepare("SELECT change, current, schema_version FROM updates WHERE sequence = ?")
		.get(sequence);
	return (
		row && {
			change: integer(row.change),
			current: boolean(row.current),
			schemaVersion: integer(row.schema_version),
			read: () => new RecordReader(statements).read(sequence),
		}
	);
}
