import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import { ConversationUsageService } from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import { parseAgentServer } from "../config/parsers.ts";
import { invalid, ServiceError } from "../errors.ts";
import { NOTHING, type Progress } from "../reconcile/reconcile.ts";
import { type Reconciler, reasonOf } from "../reconcile/reconciler.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** The services that only commands can call, over the Unix socket of the service. */
export const COMMAND_SERVICES = [ConversationReconcileService, ConversationSpaceService, ConversationUsageService];

interface Run {
	readonly progress: Progress;
	/** Why it ended early; undefined if it did not. */
	readonly error: unknown;
	running: boolean;
}

/** The methods of {@link COMMAND_SERVICES}. */
export function commandMethods(
	reconciler: Pick<Reconciler, "run" | "senderOf">,
	store: Pick<Store, "compactEvents" | "returnSpace" | "resetViews">,
): readonly RpcMethod[] {
	const { method: reconciling } = ConversationReconcileService;
	const { method: usage } = ConversationUsageService;
	const { method: space } = ConversationSpaceService;
	/** The last run that a command started. */
	let last: Run | undefined;
	return [
		unary(reconciling.startReconciliation, async ({ agentServer, key, senders }, _, signal) => {
			const url = parseAgentServer(agentServer);
			if (url === undefined)
				throw invalid("agent_server", "must be an http or https URL without user name, query and fragment");
			// Refused at once.
			reconciler.senderOf(senders);
			const target = { address: { url, key: key === "" ? undefined : key }, senders };
			const ended = signal instanceof AbortSignal ? signal : undefined;
			const underWay = "This agent server is being compared already; try again later";
			// With SQLite, no other process could claim it.
			if (last?.running === true) throw new ServiceError("failed_precondition", underWay);
			const run: Run = { progress: NOTHING, error: undefined, running: true };
			last = run;
			const onProgress = (progress: Progress) => Object.assign(run, { progress });
			try {
				const result = await reconciler.run(target, onProgress, undefined, ended);
				if (result === undefined) throw new ServiceError("failed_precondition", underWay);
				Object.assign(run, result);
			} finally {
				run.running = false;
			}
			return {};
		}),
		unary(reconciling.getReconciliation, async () => {
			if (last === undefined) throw new ServiceError("not_found", "No run was started");
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
		unary(usage.startUsageRebuild, async () => {
			await store.resetViews(["usage"]);
			return {};
		}),
		unary(usage.getUsageRebuild, async () => ({ running: false })),
		unary(space.compactEvents, async ({ after }) => {
			const { compressed, ...step } = await store.compactEvents(after);
			return { ...step, compressed: BigInt(compressed) };
		}),
		unary(space.returnSpace, async () => await store.returnSpace()),
		unary(space.resetViews, async () => {
			await store.resetViews();
			return {};
		}),
	];
}
