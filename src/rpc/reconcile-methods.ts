import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import { invalid } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import { parseAgentServer } from "../reconcile/address.ts";
import { NOTHING, type Progress } from "../reconcile/reconcile.ts";
import { type Reconciler, reasonOf } from "../reconcile/reconciler.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** A run that a command started. */
interface StartedRun {
	progress: Progress;
	running: boolean;
	/** Why it ended early. */
	error: unknown;
}

/** The methods of `ConversationReconcileService`. They are for commands on the machine of the service only. */
export function reconcileMethods(reconciler: Pick<Reconciler, "run" | "senderOf">): readonly RpcMethod[] {
	let last: StartedRun | undefined;
	return [
		unary(ConversationReconcileService.method.startReconciliation, async ({ agentServer, key, senders }) => {
			const url = parseAgentServer(agentServer);
			if (url === undefined)
				throw invalid("agent_server", "must be an http or https URL without user name, query and fragment");
			const sender = reconciler.senderOf(senders);
			if (last?.running) throw underWay();
			const run: StartedRun = { progress: NOTHING, running: true, error: undefined };
			last = run;
			const target = { address: { url, key: key === "" ? undefined : key }, sender };
			void follow(run, reconciler, target);
			return {};
		}),
		unary(ConversationReconcileService.method.getReconciliation, async () => {
			if (last === undefined) throw new ServiceError("not_found", "No reconciliation was started");
			const { progress, running, error } = last;
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

async function follow(
	run: StartedRun,
	reconciler: Pick<Reconciler, "run">,
	target: Parameters<Reconciler["run"]>[0],
): Promise<void> {
	try {
		const result = await reconciler.run(target, (progress) => {
			run.progress = progress;
		});
		if (result === undefined) throw underWay();
		Object.assign(run, result);
	} catch (error) {
		run.error = error;
	}
	run.running = false;
}

function underWay(): ServiceError {
	return new ServiceError("failed_precondition", "This agent server is being compared already; try again later");
}
