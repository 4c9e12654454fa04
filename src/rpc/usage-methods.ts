import { ConversationUsageService } from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import { NOTHING_REBUILT, type RebuiltUsage, rebuildUsage } from "../conversations/ingest/rebuild-usage.ts";
import { ServiceError } from "../errors.ts";
import type { Store } from "../store/store.ts";
import { COST_UNITS } from "../usage/ledger.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** A run that a command started. */
interface StartedRun {
	readonly total: number;
	done: RebuiltUsage;
	running: boolean;
	/** Why it ended early; empty if it did not. */
	error: string;
}

/**
 * The methods of `ConversationUsageService`. They are for commands on the machine of the service only.
 *
 * @param stopping ends a run
 */
export function usageMethods(store: Store, stopping: AbortSignal): readonly RpcMethod[] {
	let last: StartedRun | undefined;
	return [
		unary(ConversationUsageService.method.startUsageRebuild, async () => {
			if (last?.running) throw underWay();
			const { total } = await store.countConversations({ conditions: [], group: undefined, limit: 1 });
			// Another call may have started one meanwhile.
			if (last?.running) throw underWay();
			const run: StartedRun = { total, done: NOTHING_REBUILT, running: true, error: "" };
			last = run;
			void follow(run, store, stopping);
			return {};
		}),
		unary(ConversationUsageService.method.getUsageRebuild, async () => {
			if (last === undefined) throw new ServiceError("not_found", "No run was started");
			const { total, done, running, error } = last;
			return {
				...{ running, error, total: BigInt(total) },
				conversations: BigInt(done.conversations),
				corrected: BigInt(done.corrected),
				differences: done.differences.map(({ conversationId, before, after }) => ({
					conversationId,
					costBefore: Number(before.cost) / COST_UNITS,
					cost: Number(after.cost) / COST_UNITS,
					callsBefore: before.calls,
					calls: after.calls,
				})),
				unreadable: BigInt(done.unreadable),
				correctedDays: BigInt(done.correctedDays),
			};
		}),
	];
}

async function follow(run: StartedRun, store: Store, stopping: AbortSignal): Promise<void> {
	try {
		await rebuildUsage(store, stopping, (done) => {
			run.done = done;
		});
	} catch (error) {
		run.error = stopping.aborted ? "The service is stopping" : error instanceof Error ? error.message : String(error);
	}
	run.running = false;
}

function underWay(): ServiceError {
	return new ServiceError("failed_precondition", "The usage is being rebuilt already");
}
