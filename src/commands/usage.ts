import {
	ConversationUsageService,
	type GetUsageRebuildResponse,
} from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import type { Config } from "../config/config.ts";
import { usageMethods } from "../rpc/command-methods.ts";
import type { RpcMethod } from "../rpc/rpc-method.ts";
import { callAsCommand, type OpenedStore, untilEnded } from "./admin.ts";

/** The command `usage rebuild`. It is a client of `ConversationUsageService`. */

/** Maximum number of differences in the report. */
const MAX_DIFFERENCES = 20;

/**
 * Counts the usage of all conversations anew: see `rebuildUsage`.
 *
 * @param onProgress receives the numbers of conversations that are counted, and of all
 * @returns the lines of a report
 * @throws Error when the run ended early
 */
export async function runUsageRebuild(
	config: Config,
	onProgress: (done: number, total: number) => void,
): Promise<readonly string[]> {
	return await callAsCommand(
		config,
		ConversationUsageService,
		async (client) => {
			await client.startUsageRebuild({});
			const state = await untilEnded(
				() => client.getUsageRebuild({}),
				({ conversations, total }) => onProgress(Math.min(Number(conversations), Number(total)), Number(total)),
			);
			return reportOf(state);
		},
		usageMethodsOf,
	);
}

/** Returns the methods of `ConversationUsageService` for a command that has opened the store. */
async function usageMethodsOf({ store, opened }: OpenedStore): Promise<readonly RpcMethod[]> {
	const stopping = new AbortController();
	opened.defer(() => stopping.abort());
	return usageMethods(store, stopping.signal);
}

function reportOf(state: GetUsageRebuildResponse): string[] {
	const { conversations, corrected, differences, error } = state;
	const summary = `${conversations} conversations counted anew: ${conversations - corrected} equal, ${corrected} corrected`;
	if (error !== "") throw new Error(`${error} (${summary})`);
	const lines = differences
		.slice(0, MAX_DIFFERENCES)
		.map(
			({ conversationId, costBefore, cost, callsBefore, calls }) =>
				`corrected: ${conversationId}: cost ${costBefore} to ${cost}, calls ${callsBefore} to ${calls}`,
		);
	const more = corrected > BigInt(lines.length) ? [`and ${corrected - BigInt(lines.length)} more`] : [];
	return [`${summary}.`, ...lines, ...more];
}
