import { COMPLETE } from "../../store/derivation.ts";
import type { Store } from "../../store/store.ts";
import { replayUsage } from "./replay-usage.ts";

const NAME = "usage";
const VERSION = 1;
/** Number of conversations of one step. */
const STEP = 20;

/**
 * Counts the usage of the conversations that a release without a ledger stored, from their stored updates and events, the
 * conversations with the newest updates first. A conversation whose usage has been counted meanwhile stays as it is.
 * Continues where an earlier run ended. Does nothing once all conversations are done.
 *
 * @param onProgress called after each step with the number of conversations counted by this run
 */
export async function countStoredUsage(
	store: Pick<
		Store,
		"listConversations" | "updates" | "getOrigin" | "getUsage" | "correctUsage" | "getDerivation" | "saveDerivation"
	>,
	signal: AbortSignal,
	onProgress: (counted: number, isComplete: boolean) => void,
): Promise<void> {
	const before = await store.getDerivation(NAME);
	// Conversations are examined from the newest to the oldest, so the progress is the distance from the end of the log.
	let through = before?.version === VERSION ? before.through : 0n;
	let counted = 0;
	while (through !== COMPLETE && !signal.aborted) {
		const query = { conditions: [], before: COMPLETE - through, limit: STEP, withRecords: false };
		const found = await store.listConversations(query);
		for (const { conversationId } of found) if (await countOne(store, conversationId)) counted += 1;
		const last = found.at(-1)?.sequence;
		through = last === undefined ? COMPLETE : COMPLETE - last;
		await store.saveDerivation({ name: NAME, version: VERSION, through, summaries: [] });
		onProgress(counted, through === COMPLETE);
	}
}

/** Counts the usage of a conversation, unless it has been counted. Returns whether it was counted now. */
async function countOne(
	store: Pick<Store, "updates" | "getOrigin" | "getUsage" | "correctUsage">,
	conversationId: string,
): Promise<boolean> {
	for (;;) {
		const { ledger, responses } = await store.getUsage(conversationId);
		if (ledger !== undefined) return false;
		const { state, rows } = await replayUsage(store, conversationId, responses);
		if (state === undefined) return false;
		// It fails when usage has been counted meanwhile, or the conversation has another owner now.
		if (await store.correctUsage({ conversationId, known: undefined, state, rows })) return true;
	}
}
