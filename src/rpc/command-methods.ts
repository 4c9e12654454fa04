import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import { ConversationUsageService } from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import { parseAgentServer } from "../config/parsers.ts";
import { invalid } from "../conversations/read/filter.ts";
import { NOTHING_REBUILT, type RebuiltUsage, rebuildUsage } from "../conversations/read/report-usage.ts";
import { ServiceError } from "../errors.ts";
import { NOTHING, type Progress } from "../reconcile/reconcile.ts";
import { type Reconciler, reasonOf } from "../reconcile/reconciler.ts";
import { COST_UNITS } from "../record/stats.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** The services that only commands can call, over the Unix socket of the service. */
export const COMMAND_SERVICES = [ConversationReconcileService, ConversationSpaceService, ConversationUsageService];

const RECONCILE_MESSAGES = {
	none: "No reconciliation was started",
	underWay: "This agent server is being compared already; try again later",
};

/**
 * The methods of `ConversationReconcileService`.
 *
 * @param unwatched as for {@link StartedRun}
 */
export function reconcileMethods(
	reconciler: Pick<Reconciler, "run" | "senderOf">,
	unwatched?: number,
): readonly RpcMethod[] {
	const run = new StartedRun<Progress>(RECONCILE_MESSAGES, unwatched);
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

const REBUILD_MESSAGES = { none: "No run was started", underWay: "The usage is being rebuilt already" };

/**
 * The methods of `ConversationUsageService`.
 *
 * @param stopping ends a run
 */
export function usageMethods(store: Store, stopping: AbortSignal): readonly RpcMethod[] {
	const run = new StartedRun<{ readonly done: RebuiltUsage; readonly total: number }>(REBUILD_MESSAGES);
	return [
		unary(ConversationUsageService.method.startUsageRebuild, async () => {
			run.start({ done: NOTHING_REBUILT, total: 0 }, async (onProgress) => {
				const { total } = await store.countConversations({ conditions: [], group: undefined, limit: 1 });
				const rebuilt = await rebuildUsage(store, stopping, (done) => onProgress({ done, total }));
				// Those without usage were not counted.
				onProgress({ done: rebuilt, total: rebuilt.conversations });
			});
			return {};
		}),
		unary(ConversationUsageService.method.getUsageRebuild, async () => {
			const { progress, running, error } = run.state;
			const { done, total } = progress;
			return {
				...{ running, error: endReason(error, stopping), total: BigInt(total) },
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
function endReason(error: unknown, stopping: AbortSignal): string {
	if (error === undefined) return "";
	if (stopping.aborted) return "The service is stopping";
	return error instanceof Error ? error.message : String(error);
}

/** The methods of `ConversationSpaceService`. */
export function spaceMethods(store: Pick<Store, "compactEvents" | "returnSpace" | "resetViews">): readonly RpcMethod[] {
	return [
		unary(ConversationSpaceService.method.compactEvents, async ({ after }) => {
			const { compressed, ...step } = await store.compactEvents(after);
			return { ...step, compressed: BigInt(compressed) };
		}),
		unary(ConversationSpaceService.method.returnSpace, async () => await store.returnSpace()),
		unary(ConversationSpaceService.method.resetViews, async () => {
			await store.resetViews();
			return {};
		}),
	];
}

/** What is known of a run. */
interface RunState<Progress> {
	readonly progress: Progress;
	readonly running: boolean;
	/** Why it ended early; undefined if it did not. */
	readonly error: unknown;
}

/** Milliseconds after which a run ends that no command looks at: the one that started it was killed. */
const UNWATCHED = 30_000;

/** The last run that a command started. Commands look at its state until it has ended. */
export class StartedRun<Progress> {
	readonly #messages: { readonly none: string; readonly underWay: string };
	readonly #unwatched: number;
	#state: RunState<Progress> | undefined;
	/** Ends the run when nobody has looked at it for long. */
	#watch: NodeJS.Timeout | undefined;

	/**
	 * @param messages of errors: that there was no run, and that there is one under way
	 * @param unwatched milliseconds after which a run ends that no command looks at
	 */
	constructor(messages: { readonly none: string; readonly underWay: string }, unwatched: number = UNWATCHED) {
		this.#messages = messages;
		this.#unwatched = unwatched;
	}

	/**
	 * The state of the last run. A command that looks at it keeps the run going.
	 *
	 * @throws ServiceError `not_found` when there was none
	 */
	get state(): RunState<Progress> {
		if (this.#state === undefined) throw new ServiceError("not_found", this.#messages.none);
		this.#watch?.refresh();
		return this.#state;
	}

	/** The error for a run that cannot start because of another one. */
	get underWay(): ServiceError {
		return new ServiceError("failed_precondition", this.#messages.underWay);
	}

	/**
	 * Starts a run, and returns before it has ended.
	 *
	 * @param progress before the run has done anything
	 * @param work gets a signal that ends it
	 * @throws ServiceError `failed_precondition` while the last run is under way
	 */
	start(
		progress: Progress,
		work: (onProgress: (progress: Progress) => void, signal: AbortSignal) => Promise<void>,
	): void {
		if (this.#state?.running) throw this.underWay;
		const ended = new AbortController();
		const gone = new ServiceError("unavailable", "The command that started the run has gone");
		this.#watch = setTimeout(() => ended.abort(gone), this.#unwatched).unref();
		let last = progress;
		const show = (running: boolean, error?: unknown) => {
			this.#state = { progress: last, running, error };
			if (running) return;
			clearTimeout(this.#watch);
			this.#watch = undefined;
		};
		show(true);
		const running = work((now) => {
			last = now;
			show(true);
		}, ended.signal);
		running.then(
			() => show(false),
			(error: unknown) => show(false, error),
		);
	}
}
