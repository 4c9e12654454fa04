import { setImmediate } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { microsecondsOf } from "../../store/condition.ts";
import { COMPLETE } from "../../store/derivation.ts";
import type { Store } from "../../store/store.ts";

const NAME = "usage";
const VERSION = 1;
/** Number of conversations of one step. Their records are in memory together. */
const STEP = 20;

/**
 * Counts the usage of the conversations that a release without a ledger stored, from their current records, newest first.
 * A conversation that changes meanwhile is counted by its new record. Continues where an earlier run ended. Does nothing
 * once all conversations are done. The times of calls come from the lists of costs.
 *
 * @param onProgress called after each step with the number of conversations counted by this run
 */
export async function countStoredUsage(
	store: Pick<Store, "listConversations" | "appendEvents" | "getDerivation" | "saveDerivation">,
	signal: AbortSignal,
	onProgress: (counted: number, isComplete: boolean) => void,
): Promise<void> {
	const before = await store.getDerivation(NAME);
	// Conversations are examined from the newest to the oldest, so the progress is the distance from the end of the log.
	let through = before?.version === VERSION ? before.through : 0n;
	let counted = 0;
	while (through !== COMPLETE && !signal.aborted) {
		const query = { conditions: [], before: COMPLETE - through, limit: STEP, withRecords: true };
		const found = await store.listConversations(query);
		for (const { conversationId, sequence, summary, record } of found) {
			// Requests that wait are answered in between.
			await setImmediate();
			if (record === undefined || "unreadable" in record) continue;
			const { updatedAt, agentKind } = fromBinary(ConversationSummarySchema, summary);
			const receivedAt = microsecondsOf(updatedAt) ?? BigInt(Date.now()) * 1000n;
			const uncounted = { sequence, record: record.bytes, agentKind };
			await store.appendEvents({ conversationId, receivedAt, events: [], effect: undefined, uncounted });
			counted += 1;
		}
		const last = found.at(-1)?.sequence;
		through = last === undefined ? COMPLETE : COMPLETE - last;
		await store.saveDerivation({ name: NAME, version: VERSION, through, summaries: [] });
		onProgress(counted, through === COMPLETE);
	}
}
