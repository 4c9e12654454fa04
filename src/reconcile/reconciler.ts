import { randomUUID } from "node:crypto";
import type { Principal } from "../access/keys.ts";
import type { EventIngest } from "../conversations/ingest/event-ingest.ts";
import type { Ingest } from "../conversations/ingest/ingest.ts";
import { ServiceError } from "../errors.ts";
import { claimFor } from "../store/claims.ts";
import type { Store } from "../store/store.ts";
import type { EventLog } from "../telemetry/log.ts";
import { type AgentServerAddress, AgentServerClient, AgentServerError, type ClientOptions } from "./agent-server.ts";
import { NOTHING, type Progress, type ReconciledSender, reconcile, type Verified } from "./reconcile.ts";

/** Milliseconds for which a process may reconcile one agent server without renewing its claim. */
const CLAIM = 60_000;

/** Who may post or might once, by the configuration and the stored keys. */
type Posters = () => readonly (Pick<Principal, "name" | "owner"> & {
	/** Whether the key is revoked or has expired. */
	readonly hasEnded: boolean;
})[];

export interface ReconcilerOptions {
	readonly store: Pick<
		Store,
		"getOwnership" | "getErasure" | "getRecordState" | "listConversations" | "listGaps" | "claim"
	>;
	readonly ingest: Pick<Ingest, "fetched">;
	readonly eventIngest: Pick<EventIngest, "fetched" | "applyFetched">;
	readonly timeZoneOf: (sender: string) => string;
	/** Holders of keys and certificates with the scope `ingest`. */
	readonly posters: Posters;
	readonly client: Omit<ClientOptions, "signal">;
	readonly log: EventLog;
	/** Ends all runs. */
	readonly stopping: AbortSignal;
}

/** An agent server that is to be compared, and in whose name. */
export interface ReconcileTarget {
	readonly address: AgentServerAddress;
	/** As {@link Reconciler.senderOf} takes them. */
	readonly senders: readonly string[];
}

/** The result of a run, also of one that ended early. */
interface RunResult {
	readonly progress: Progress;
	readonly error: unknown;
}

/** What the runs over an agent server have done since the start. */
interface ReconcileFigures {
	/** Host and port of the agent server. */
	readonly agentServer: string;
	readonly completed: number;
	/** Runs that ended early. */
	readonly incomplete: number;
	readonly events: number;
	readonly records: number;
	readonly gapsClosed: number;
	/** Conversations that it no longer had at the last run. */
	readonly gone: number;
}

/** Runs reconciliations for commands and for the job of the service. All processes run one at a time for an agent server. */
export class Reconciler {
	readonly #options: ReconcilerOptions;
	readonly #holder: string = randomUUID();
	readonly #running = new Set<string>();
	readonly #figures = new Map<string, ReconcileFigures>();

	constructor(options: ReconcilerOptions) {
		this.#options = options;
	}

	/** What was done since the start, by agent server. */
	get figures(): readonly ReconcileFigures[] {
		return [...this.#figures.values()];
	}

	/** Shows the figures of an agent server before its first run, so that its counters begin at 0. */
	announce(agentServer: string): void {
		const none = { completed: 0, incomplete: 0, events: 0, records: 0, gapsClosed: 0, gone: 0 };
		if (!this.#figures.has(agentServer)) this.#figures.set(agentServer, { agentServer, ...none });
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
	): Promise<RunResult | undefined> {
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

	#count(agentServer: string, { events, records, gapsClosed, gone }: Progress, isComplete: boolean): void {
		const before = this.#figures.get(agentServer);
		this.#figures.set(agentServer, {
			agentServer,
			completed: (before?.completed ?? 0) + Number(isComplete),
			incomplete: (before?.incomplete ?? 0) + Number(!isComplete),
			events: (before?.events ?? 0) + events,
			records: (before?.records ?? 0) + records,
			gapsClosed: (before?.gapsClosed ?? 0) + gapsClosed,
			gone: isComplete ? gone : (before?.gone ?? 0),
		});
	}

	/** Claims an agent server until the result is disposed of; undefined when it is claimed already. */
	async #claim(name: string): Promise<(AsyncDisposable & { readonly lost: AbortSignal }) | undefined> {
		const claim = (milliseconds: number) =>
			claimFor(this.#options.store, `reconcile ${name}`, this.#holder, milliseconds);
		if (this.#running.has(name)) return undefined;
		this.#running.add(name);
		let isMine = false;
		try {
			isMine = await claim(CLAIM);
		} finally {
			if (!isMine) this.#running.delete(name);
		}
		if (!isMine) return undefined;
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
				this.#running.delete(name);
				await claim(0).catch(() => undefined);
			},
		};
	}
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
