import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import { invalid } from "../conversations/read/filter.ts";
import { parseAgentServer } from "../reconcile/address.ts";
import { NOTHING, type Progress } from "../reconcile/reconcile.ts";
import { type Reconciler, reasonOf } from "../reconcile/reconciler.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";
import { StartedRun } from "./started-run.ts";

const MESSAGES = {
	none: "No reconciliation was started",
	underWay: "This agent server is being compared already; try again later",
};

/**
 * The methods of `ConversationReconcileService`. They are for commands on the machine of the service only.
 *
 * @param unwatched as for {@link StartedRun}
 */
export function reconcileMethods(
	reconciler: Pick<Reconciler, "run" | "senderOf">,
	unwatched?: number,
): readonly RpcMethod[] {
	const run = new StartedRun<Progress>(MESSAGES, unwatched);
	return [
		unary(ConversationReconcileService.method.startReconciliation, async ({ agentServer, key, senders }) => {
			const url = parseAgentServer(agentServer);
			if (url === undefined)
				throw invalid("agent_server", "must be an http or https URL without user name, query and fragment");
			// Refused at once.
			reconciler.senderOf(senders);
			const target = { address: { url, key: key === "" ? undefined : key }, senders };
			run.start(NOTHING, async (onProgress, signal) => {
				const result = await reconciler.run(target, onProgress, undefined, signal);
				if (result === undefined) throw run.underWay;
				onProgress(result.progress);
				if (result.error !== undefined) throw result.error;
			});
			return {};
		}),
		unary(ConversationReconcileService.method.getReconciliation, async () => {
			const { progress, running, error } = run.state;
			return {
				running,
				conversations: BigInt(progress.conversations),
				events: BigInt(progress.events),
				records: BigInt(progress.records),
				gapsClosed: BigInt(progress.gapsClosed),
				failures: BigInt(progress.failures),
				gone: BigInt(progress.gone),
				goneIds: [...progress.goneIds],
				error: reasonOf(error),
			};
		}),
	];
}
