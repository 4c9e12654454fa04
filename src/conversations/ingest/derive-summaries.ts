import { setImmediate } from "node:timers/promises";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { isDataLoss } from "../../errors.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import { encodeSummary, SUMMARY_RULES, summarize } from "../../record/summary.ts";
import { COMPLETE, type DerivedSummary } from "../../store/derivation.ts";
import type { Store, StoredUpdate } from "../../store/store.ts";

/** Maximum number of updates, and of bytes of their records, of one step. */
const STEP = { limit: 200, maxBytes: 2 ** 20 };
const NAME = "summaries";

/**
 * Derives the summaries of the updates anew that a release with other rules stored: the rules for secrets, or for
 * summaries. Continues where an earlier run ended. Does nothing once all updates are done. The summary of a record that
 * cannot be read stays as it is.
 *
 * @param onProgress called after each step with the number of updates examined and of summaries replaced by this run
 */
export async function deriveSummaries(
	store: Pick<Store, "updates" | "getDerivation" | "saveDerivation">,
	vault: RecordVault,
	signal: AbortSignal,
	onProgress: (examined: number, replaced: number, isComplete: boolean) => void,
): Promise<void> {
	const version = vault.rules + SUMMARY_RULES;
	const before = await store.getDerivation(NAME);
	let through = before?.version === version ? before.through : 0n;
	let [examined, replaced] = [0, 0];
	while (through !== COMPLETE && !signal.aborted) {
		const updates = await store.updates.list({ after: through, ...STEP, withRecords: true });
		const summaries: DerivedSummary[] = [];
		for (const update of updates) {
			const summary = changedSummary(update, vault);
			if (summary !== undefined) summaries.push(summary);
			// Requests that wait are answered in between.
			await setImmediate();
		}
		through = updates.at(-1)?.sequence ?? COMPLETE;
		await store.saveDerivation({ name: NAME, version, through, summaries });
		examined += updates.length;
		replaced += summaries.length;
		onProgress(examined, replaced, through === COMPLETE);
	}
}

/** Returns the summary of an update by the present rules; undefined when the stored one is the same. */
function changedSummary(
	{ conversationId, sequence, record, summary: stored }: StoredUpdate,
	vault: RecordVault,
): DerivedSummary | undefined {
	if (record === undefined || "unreadable" in record) return undefined;
	try {
		const derived = summarize(vault.open(record.bytes, "redacted"));
		const { createdAt, updatedAt } = fromBinary(ConversationSummarySchema, stored);
		// Where the record has no time, the stored summary has a time of receipt.
		const times = create(ConversationSummarySchema, {
			...(derived.createdAt === undefined && createdAt !== undefined ? { createdAt } : {}),
			...(derived.updatedAt === undefined && updatedAt !== undefined ? { updatedAt } : {}),
		});
		const summary = new Uint8Array(Buffer.concat([encodeSummary(derived), toBinary(ConversationSummarySchema, times)]));
		// The fields of the activity follow the stored summary.
		if (Buffer.from(stored).subarray(0, summary.byteLength).equals(summary)) return undefined;
		return { conversationId, sequence, summary };
	} catch (error) {
		if (isDataLoss(error)) return undefined;
		throw error;
	}
}
