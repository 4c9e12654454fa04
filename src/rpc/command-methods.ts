import { ConversationReconcileService } from "../../gen/conversations/v1/conversation_reconcile_service_pb.js";
import { ConversationSpaceService } from "../../gen/conversations/v1/conversation_space_service_pb.js";
import { ConversationUsageService } from "../../gen/conversations/v1/conversation_usage_service_pb.js";
import { parseAgentServer } from "../config/parsers.ts";
import { NOTHING_REBUILT, type RebuiltUsage, rebuildUsage } from "../conversations/read/report-usage.ts";
import { invalid, ServiceError } from "../errors.ts";
import { NOTHING, type Progress } from "../reconcile/reconcile.ts";
import { type Reconciler, reasonOf } from "../reconcile/reconciler.ts";
import { COST_UNITS } from "../record/stats.ts";
import type { Store } from "../store/store.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** The services that only commands can call, over the Unix socket of the service. */
export const COMMAND_SERVICES = [ConversationReconcileService, ConversationSpaceService, ConversationUsageService];

/** The methods of {@link COMMAND_SERVICES}. */
export function commandMethods(
	reconciler: Pick<Reconciler, "run" | "senderOf">,
	store: Store,
	stopping: AbortSignal,
): readonly RpcMethod[] {
	const { method: reconciling } = ConversationReconcileService;
	const { method: rebuilding } = ConversationUsageService;
	const { method: space } = ConversationSpaceService;
	const run = new StartedRun<Progress>("This agent server is being compared already; try again later");
	const rebuild = new StartedRun<{ readonly done: RebuiltUsage; readonly total: number }>(
		"The usage is being rebuilt already",
	);
	return [
		unary(reconciling.startReconciliation, async ({ agentServer, key, senders }) => {
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
		unary(reconciling.getReconciliation, async () => {
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
		unary(rebuilding.startUsageRebuild, async () => {
			rebuild.start({ done: NOTHING_REBUILT, total: 0 }, async (onProgress) => {
				const { total } = await store.countConversations({ conditions: [], group: undefined, limit: 1 });
				const rebuilt = await rebuildUsage(store, stopping, (done) => onProgress({ done, total }));
				// Those without usage were not counted.
				onProgress({ done: rebuilt, total: rebuilt.conversations });
			});
			return {};
		}),
		unary(rebuilding.getUsageRebuild, async () => {
			const { progress, running, error } = rebuild.state;
			const { done, total } = progress;
			return {
				...{ running, error: error instanceof Error ? error.message : "", total: BigInt(total) },
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

interface RunState<Progress> {
	progress: Progress;
	running: boolean;
	/** Why it ended early; undefined if it did not. */
	error: unknown;
}

/** Milliseconds after which a run ends that no command looks at: the one that started it was killed. */
const UNWATCHED = 30_000;

/** The last run that a command started. Commands look at its state until it has ended. */
export class StartedRun<Progress> {
	readonly #underWay: string;
	readonly #unwatched: number;
	#state: RunState<Progress> | undefined;
	/** Ends the run when nobody has looked at it for long. */
	#watch: NodeJS.Timeout | undefined;

	constructor(underWay: string, unwatched: number = UNWATCHED) {
		this.#underWay = underWay;
		this.#unwatched = unwatched;
	}

	/**
	 * The state of the last run. A command that looks at it keeps the run going.
	 *
	 * @throws ServiceError `not_found` when there was none
	 */
	get state(): Readonly<RunState<Progress>> {
		if (this.#state === undefined) throw new ServiceError("not_found", "No run was started");
		this.#watch?.refresh();
		return this.#state;
	}

	get underWay(): ServiceError {
		return new ServiceError("failed_precondition", this.#underWay);
	}

	/** Starts a run, and returns before it has ended. */
	start(
		progress: Progress,
		work: (onProgress: (progress: Progress) => void, signal: AbortSignal) => Promise<void>,
	): void {
		if (this.#state?.running) throw this.underWay;
		const gone = new ServiceError("unavailable", "The command that started the run has gone");
		const ended = new AbortController();
		const state: RunState<Progress> = { progress, running: true, error: undefined };
		const end = (error?: unknown) => {
			clearTimeout(this.#watch);
			this.#watch = undefined;
			state.running = false;
			state.error = error;
		};
		this.#state = state;
		this.#watch = setTimeout(() => ended.abort(gone), this.#unwatched).unref();
		work((now) => {
			state.progress = now;
		}, ended.signal).then(() => end(), end);
	}
}
