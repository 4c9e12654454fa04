import { ConversationUsageService } from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import { NOTHING_REBUILT, type RebuiltUsage, rebuildUsage } from "../conversations/read/report-usage.ts";
import type { Store } from "../store/store.ts";
import { COST_UNITS } from "../usage/ledger.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";
import { StartedRun } from "./started-run.ts";

const MESSAGES = { none: "No run was started", underWay: "The usage is being rebuilt already" };

/**
 * The methods of `ConversationUsageService`. They are for commands on the machine of the service only.
 *
 * @param stopping ends a run
 */
export function usageMethods(store: Store, stopping: AbortSignal): readonly RpcMethod[] {
	const run = new StartedRun<{ readonly done: RebuiltUsage; readonly total: number }>(MESSAGES);
	return [
		unary(ConversationUsageService.method.startUsageRebuild, async () => {
			run.start({ done: NOTHING_REBUILT, total: 0 }, async (onProgress) => {
				const { total } = await store.countConversations({ conditions: [], group: undefined, limit: 1 });
				await rebuildUsage(store, stopping, (done) => onProgress({ done, total }));
			});
			return {};
		}),
		unary(ConversationUsageService.method.getUsageRebuild, async () => {
			const { progress, running, error } = run.state;
			const { done, total } = progress;
			return {
				...{ running, error: reasonOf(error, stopping), total: BigInt(total) },
				conversations: BigInt(done.conversations),
				corrected: BigInt(done.corrected),
				differences: done.differences.map(({ conversationId, before, after }) => ({
					conversationId,
					costBefore: Number(before.cost) / COST_UNITS,
					cost: Number(after.cost) / COST_UNITS,
					callsBefore: before.calls,
					calls: after.calls,
				})),
			};
		}),
	];
}

/** Returns why a run ended early; empty if it did not. */
function reasonOf(error: unknown, stopping: AbortSignal): string {
	if (error === undefined) return "";
	if (stopping.aborted) return "The service is stopping";
	return error instanceof Error ? error.message : String(error);
}
