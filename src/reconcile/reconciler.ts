import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Principal } from "../access/keys.ts";
import { ServiceError } from "../errors.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import type { EventLog } from "../telemetry/log.ts";
import { type AgentServerAddress, AgentServerClient, AgentServerError, type ClientOptions } from "./agent-server.ts";
import {
	NOTHING,
	newVerified,
	type Progress,
	type ReconciledSender,
	type ReconcileOptions,
	reconcile,
	type Verified,
} from "./reconcile.ts";

/** Milliseconds between two runs. */
const INTERVAL = 3_600_000;
/** Milliseconds between two looks for new gaps. */
const GAP_CHECK = 30_000;
/** Milliseconds after which a run begins again that ended early. */
const RETRY = 300_000;
/** Milliseconds for which a process may reconcile one agent server without renewing its claim. */
const CLAIM = 60_000;

export interface ReconcilerOptions extends Pick<ReconcileOptions, "ingest" | "eventIngest"> {
	readonly store: ReconcileOptions["store"] & Pick<Store, "claim">;
	/** Returns who may post or might once, by the configuration and the stored keys: the holders of the scope `ingest`. */
	readonly posters: () => readonly (Pick<Principal, "name" | "owner"> & {
		readonly hasEnded: boolean;
	})[];
	readonly client: Omit<ClientOptions, "signal">;
	readonly log: EventLog;
	readonly stopping: AbortSignal;
}

/** An agent server that is to be compared, and in whose name. */
interface ReconcileTarget {
	readonly address: AgentServerAddress;
	/** As {@link Reconciler.senderOf} takes them. */
	readonly senders: readonly string[];
}

/** What the runs over an agent server have done since the start; `incomplete` ones ended early. */
const NO_RUNS = {
	...{ completed: 0, incomplete: 0, events: 0, records: 0 },
	/** Conversations that it no longer had at the last run. */
	gone: 0,
};

/** Runs reconciliations for commands and for the job of the service. All processes run one at a time for an agent server. */
export class Reconciler {
	readonly #options: ReconcilerOptions;
	/** By the host and port of the agent server. */
	readonly #figures = new Map<string, typeof NO_RUNS>();

	constructor(options: ReconcilerOptions) {
		this.#options = options;
	}

	get figures(): readonly (Readonly<typeof NO_RUNS> & { readonly agentServer: string })[] {
		return Array.from(this.#figures, ([agentServer, figures]) => ({ agentServer, ...figures }));
	}

	/** Shows the figures of an agent server before its first run, so that its counters begin at 0. */
	announce(agentServer: string): void {
		this.#figures.getOrInsert(agentServer, NO_RUNS);
	}

	/**
	 * Returns in whose name data of an agent server is stored.
	 *
	 * @param names names under which it posts; if there are none, that of the only one that may post. The key of a name can
	 *   have ended: its conversations stay
	 * @throws ServiceError `invalid_argument` when a name is not known, or it is not clear to which owner the data belongs
	 */
	senderOf(names: readonly string[]): ReconciledSender {
		const known = this.#options.posters();
		const chosen = names.map((name) => {
			const poster = known.find((other) => other.name === name);
			if (poster === undefined)
				throw new ServiceError("invalid_argument", `No access key and no client certificate has the name "${name}"`);
			return poster;
		});
		const candidates = names.length > 0 ? chosen : known.filter(({ hasEnded }) => !hasEnded);
		const [first] = candidates;
		if (candidates.some(({ owner }) => owner !== first?.owner))
			throw new ServiceError(
				"invalid_argument",
				names.length > 0 ? "The senders have different owners" : "Name the sender: there are keys of different owners",
			);
		const isClear = names.length > 0 || candidates.length === 1;
		return { names: isClear ? candidates.map(({ name }) => name) : [], owner: first?.owner };
	}

	/**
	 * Runs once over an agent server. Resolves also when it cannot be read, or a sender is not known: what was taken in
	 * until then stays.
	 *
	 * @param verified what earlier runs have compared. Without it, everything is compared
	 * @param ended ends the run
	 * @returns undefined when a run over this agent server is under way, here or in another process
	 */
	async run(
		{ address, senders }: ReconcileTarget,
		onProgress: (progress: Progress) => void,
		verified?: Verified,
		ended?: AbortSignal,
	): Promise<{ readonly progress: Progress; readonly error: unknown } | undefined> {
		const { client, log, stopping, ...rest } = this.#options;
		const claim = await this.#claim(address.url.href);
		if (claim === undefined) return undefined;
		await using _ = claim;
		const signal = AbortSignal.any([stopping, claim.lost, ...(ended === undefined ? [] : [ended])]);
		let progress = NOTHING;
		const begin = performance.now();
		let error: unknown;
		try {
			progress = await reconcile({
				...rest,
				client: new AgentServerClient(address, { ...client, signal }),
				sender: this.senderOf(senders),
				verified,
				onFailure: (conversationId, failure) => log.emit("reconcile_failed", { conversationId }, failure),
				onProgress: (now) => {
					progress = now;
					onProgress(now);
				},
				signal,
			});
		} catch (cause) {
			error = cause;
		}
		const agentServer = address.url.host;
		this.#count(agentServer, progress, error === undefined);
		const { goneIds: _ids, ...counts } = progress;
		const line = { agentServer, ...counts, seconds: (performance.now() - begin) / 1000 };
		log.emit(error === undefined ? "reconciled" : "reconcile_incomplete", line, error);
		return { progress, error };
	}

	#count(agentServer: string, { events, records, gone }: Progress, isComplete: boolean): void {
		const before = this.#figures.get(agentServer) ?? NO_RUNS;
		this.#figures.set(agentServer, {
			completed: before.completed + Number(isComplete),
			incomplete: before.incomplete + Number(!isComplete),
			events: before.events + events,
			records: before.records + records,
			gone: isComplete ? gone : before.gone,
		});
	}

	/** Claims an agent server until the result is disposed of; undefined when another run has claimed it. */
	async #claim(name: string): Promise<(AsyncDisposable & { readonly lost: AbortSignal }) | undefined> {
		const holder = randomUUID();
		const claim = (milliseconds: number) => claimFor(this.#options.store, `reconcile ${name}`, holder, milliseconds);
		if (!(await claim(CLAIM))) return undefined;
		const lost = new AbortController();
		const renew = async () => {
			if (!(await claim(CLAIM))) throw new ServiceError("unavailable", "another process took over the run");
		};
		let renewing = Promise.resolve();
		const timer = setInterval(() => {
			renewing = renew().catch((error: unknown) => lost.abort(error));
		}, CLAIM / 3);
		return {
			lost: lost.signal,
			[Symbol.asyncDispose]: async () => {
				clearInterval(timer);
				await renewing;
				await claim(0).catch(() => undefined);
			},
		};
	}
}

interface ReconcileJob {
	readonly reconciler: Pick<Reconciler, "run">;
	readonly store: Pick<Store, "countConversations" | "claim">;
	readonly holder: string;
	/** Milliseconds between two runs. Default: {@link INTERVAL}. */
	readonly interval?: number;
	/** Milliseconds between two looks for new gaps. Default: {@link GAP_CHECK}. */
	readonly gapCheck?: number;
	readonly onError: (error: unknown) => void;
	readonly stopping: AbortSignal;
}

/**
 * Compares an agent server with the store every so often, and sooner when there are new gaps, until the signal fires. Of
 * several processes with one database, one does it; another one follows soon after that one has ended.
 *
 * @param sender name under which the agent server posts
 */
export async function reconcileUntilStopped(job: ReconcileJob, sender: string, target: ReconcileTarget): Promise<void> {
	const { reconciler, store, holder, interval = INTERVAL, gapCheck = GAP_CHECK, onError, stopping } = job;
	const verified = newVerified();
	// Also renewed during a run, which can take long.
	const claim = () => claimFor(store, `reconcile job ${sender}`, holder, 3 * gapCheck).catch(() => false);
	let isClaimed = claim();
	const renewing = setInterval(() => {
		isClaimed = claim();
	}, gapCheck);
	/** When the next run is due, by the monotonic clock. */
	let due = 0;
	/** Number of conversations with gaps after the last run, and at the last look. */
	let [left, before] = [0, 0];
	while (!stopping.aborted) {
		try {
			if (await isClaimed) {
				const gaps = await countGaps(store, sender);
				// A gap that closes at once was none: a record often arrives before the events of the same moment.
				const isNew = gaps > left && before > left;
				[left, before] = [Math.min(left, gaps), gaps];
				if (isNew || performance.now() >= due) {
					due = performance.now() + Math.min(interval, RETRY);
					const result = await reconciler.run(target, () => undefined, verified);
					if (result !== undefined && result.error === undefined) due = performance.now() + interval;
					// What the run could not close is no reason for another one; a gap that appeared meanwhile is.
					left = before = Math.min(gaps, await countGaps(store, sender));
				}
			}
		} catch (error) {
			if (!stopping.aborted) onError(error);
		}
		await delay(Math.min(gapCheck, interval), undefined, { signal: stopping }).catch(() => undefined);
	}
	clearInterval(renewing);
	await isClaimed;
}

async function countGaps(store: Pick<Store, "countConversations">, sender: string): Promise<number> {
	const { total } = await store.countConversations({
		conditions: [
			{ kind: "equal", field: "sender", value: sender },
			{ kind: "gaps", value: true },
		],
		group: undefined,
		limit: 1,
	});
	return total;
}

/** Returns why a run ended early, in a sentence for people; empty if it did not. */
export function reasonOf(error: unknown): string {
	if (error === undefined) return "";
	if (error instanceof AgentServerError) {
		const { cause } = error;
		return cause instanceof Error ? `${error.message}: ${cause.message}` : error.message;
	}
	return error instanceof ServiceError ? error.message : "The run ended unexpectedly; the log has the reason";
}
