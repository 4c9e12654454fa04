import { setImmediate } from "node:timers/promises";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { isDataLoss } from "../../errors.ts";
import { concatBytes } from "../../record/record-delta.ts";
import type { RecordVault } from "../../record/secrets/record-vault.ts";
import { encodeSummary, SUMMARY_MEMBERS, SUMMARY_RULES, summarize } from "../../record/summary.ts";
import { COMPLETE, type DerivedSummary } from "../../store/derivation.ts";
import type { Store } from "../../store/store.ts";
import type { StoredUpdate } from "../../store/updates.ts";

/** Maximum number of updates, and of bytes of their records, of one step. */
const STEP = { limit: 200, maxBytes: 2 ** 20 };
const NAME = "summaries";

/** Summarizes large records on another thread, so that they do not delay requests. */
export interface LargeSummaries {
	/** Minimum size of a large record, in bytes. */
	readonly minLargeBytes: number;
	/** As {@link summaryOf}. The memory of the bytes may be released. */
	summaryOf(record: Uint8Array): Promise<Uint8Array>;
}

/**
 * Returns the encoded summary of a protected record.
 *
 * @throws ServiceError `data_loss` when the bytes are not a record
 */
export function summaryOf(record: Uint8Array, vault: RecordVault): Uint8Array {
	return encodeSummary(summarize(vault.openMembers(record, SUMMARY_MEMBERS, "redacted")));
}

/**
 * Derives anew the summaries of updates that were stored by a release with other rules for secrets or for summaries.
 * Continues where an earlier run ended. Does nothing once all updates are done. The summary of a record that cannot be
 * read stays as it is.
 *
 * @param onProgress called after each step with the number of updates examined and of summaries replaced by this run
 */
export async function deriveSummaries(
	store: Pick<Store, "updates" | "getDerivation" | "saveDerivation">,
	vault: RecordVault,
	large: LargeSummaries,
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
			const summary = await derivedSummary(update, vault, large);
			if (summary?.isChanged) replaced += 1;
			// That of a record that was current is stored again, with the values that lists filter and order by.
			if (summary !== undefined && (summary.isChanged || update.current)) summaries.push(summary);
			// Requests that wait are answered in between.
			await setImmediate();
		}
		through = updates.at(-1)?.sequence ?? COMPLETE;
		await store.saveDerivation({ name: NAME, version, through, summaries });
		examined += updates.length;
		onProgress(examined, replaced, through === COMPLETE);
	}
}

/** Returns the summary of an update by the present rules; undefined when its record cannot be read. */
async function derivedSummary(
	{ conversationId, sequence, record, summary: stored }: StoredUpdate,
	vault: RecordVault,
	large: LargeSummaries,
): Promise<(DerivedSummary & { readonly isChanged: boolean }) | undefined> {
	if (record === undefined || "unreadable" in record) return undefined;
	try {
		const isLarge = record.bytes.byteLength >= large.minLargeBytes;
		const encoded = isLarge ? await large.summaryOf(record.bytes) : summaryOf(record.bytes, vault);
		const derived = fromBinary(ConversationSummarySchema, encoded);
		const { createdAt, updatedAt } = fromBinary(ConversationSummarySchema, stored);
		// Where the record has no time, the stored summary has a time of receipt.
		const times = create(ConversationSummarySchema, {
			...(derived.createdAt === undefined && createdAt !== undefined ? { createdAt } : {}),
			...(derived.updatedAt === undefined && updatedAt !== undefined ? { updatedAt } : {}),
		});
		const summary = concatBytes([encoded, toBinary(ConversationSummarySchema, times)]);
		// The fields of the activity follow the stored summary.
		const isChanged = !Buffer.from(stored).subarray(0, summary.byteLength).equals(summary);
		return { conversationId, sequence, summary, isChanged };
	} catch (error) {
		if (isDataLoss(error)) return undefined;
		throw error;
	}
}
