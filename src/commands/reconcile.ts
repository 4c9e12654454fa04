import { createClient } from "@connectrpc/connect";
import {
	ConversationReconcileService,
	type GetReconciliationResponse,
} from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import type { Config } from "../config/config.ts";
import { atMostEvery } from "../progress.ts";
import { reachService, untilEnded } from "./call.ts";

/** The command `reconcile`. It is a client of `ConversationReconcileService`. */

/** Milliseconds between two lines about its progress. */
const PROGRESS_INTERVAL = 10_000;
/** Maximum number of ids in the report. */
const MAX_IDS = 20;

/** Which agent server is compared. */
interface ReconciledServer {
	readonly url: string;
	/** Empty for an agent server without keys. */
	readonly key: string;
	readonly senders: readonly string[];
}

/**
 * Compares an agent server with the store, and takes in what is missing.
 *
 * @param onProgress receives a line every few seconds
 * @returns the lines of a report
 * @throws Error when the run ended early, or some conversations could not be taken in
 */
export async function runReconcile(
	config: Config,
	{ url, key, senders }: ReconciledServer,
	onProgress: (line: string) => void,
): Promise<readonly string[]> {
	return await reachService(config, async ({ transport }) => {
		const client = createClient(ConversationReconcileService, transport);
		await client.startReconciliation({ agentServer: url, key, senders: [...senders] });
		const isTime = atMostEvery(PROGRESS_INTERVAL);
		const state = await untilEnded(
			() => client.getReconciliation({}),
			(now) => now.running && isTime() && onProgress(`${countsOf(now)} so far`),
		);
		return reportOf(state, url);
	});
}

function countsOf({ conversations, events, records }: GetReconciliationResponse): string {
	return `${counted(conversations, "conversation")} looked at, ${counted(events, "event")} and ${counted(records, "record")} fetched`;
}

function reportOf(state: GetReconciliationResponse, url: string): string[] {
	const { gapsClosed, failures, gone, goneIds, error } = state;
	const summary = `${countsOf(state)}, ${counted(gapsClosed, "gap")} closed, ${counted(gone, "conversation")} no longer known to ${new URL(url).host}`;
	if (error !== "") throw new Error(`${error} (${summary})`);
	if (failures > 0n)
		throw new Error(`${counted(failures, "conversation")} could not be taken in; the log has the reasons (${summary})`);
	const ids = goneIds.slice(0, MAX_IDS).map((id) => `no longer known: ${id}`);
	const more = gone > BigInt(ids.length) ? [`and ${gone - BigInt(ids.length)} more`] : [];
	return [`${summary}.`, ...ids, ...more];
}

function counted(count: bigint, noun: string): string {
	return `${count} ${noun}${count === 1n ? "" : "s"}`;
}
