import { randomUUID } from "node:crypto";
import type { EndpointRow, ListedEndpoint } from "../store/forwarding.ts";
import { claimFor } from "../store/session.ts";
import type { Store } from "../store/store.ts";
import { type EndpointCounts, EndpointWorker, type WorkerOptions } from "./endpoint-worker.ts";
import { FORMS } from "./tell.ts";

const LOOK = 10_000;
/** Milliseconds for which a process has an endpoint without renewing its claim. */
const CLAIM = 30_000;
/** Milliseconds for deliveries under way when the service stops, or the endpoint is changed. */
const GRACE = 2_000;

export interface EndpointFigures extends EndpointCounts {
	readonly name: string;
	readonly owner: string;
	readonly state: EndpointRow["state"];
	readonly waiting: number;
	readonly lag: number;
	/** Seconds since the first failure after the last success; 0 without one. */
	readonly failing: number;
	/** Number of updates that were removed before they were sent, since the endpoint was created. */
	readonly lost: number;
}

export interface ForwarderOptions extends WorkerOptions {
	readonly store: Pick<Store, "updates" | "tables" | "claim">;
	/** Milliseconds between two looks at the endpoints, and of a claim. For tests. */
	readonly look?: number;
	readonly claim?: number;
}

/**
 * Delivers to all endpoints. Of several processes with one database, one delivers to an endpoint; another one follows
 * within a minute after that one has ended.
 */
export class Forwarder implements AsyncDisposable {
	readonly #options: ForwarderOptions;
	readonly #holder = randomUUID();
	readonly #workers = new Map<string, EndpointWorker>();
	readonly #counts = new Map<string, EndpointCounts>();
	readonly #stop = new AbortController();
	readonly #unsubscribe: () => void;
	#listed: readonly ListedEndpoint[] = [];
	#newest = 0n;
	#newestThen = 0n;
	readonly #firstLook: Promise<void>;
	#wake = new AbortController();
	readonly #running: Promise<void>;

	constructor(options: ForwarderOptions) {
		this.#options = options;
		this.#unsubscribe = options.store.updates.subscribe((newest) => {
			this.#newest = newest;
			for (const worker of this.#workers.values()) worker.wake(newest);
		});
		const { promise, resolve } = Promise.withResolvers<void>();
		this.#firstLook = promise;
		this.#running = this.#run(resolve);
	}

	/** Says that endpoints or deliveries have changed. */
	poke(): void {
		this.#wake.abort();
	}

	/** Returns the endpoints as they were at the last look; those to which this process delivers as they are. */
	async figures(): Promise<readonly EndpointFigures[]> {
		await this.#firstLook;
		const now = this.#options.clock.now();
		return this.#listed.map(({ id, name, owner, state, failingSince, lost, ...listed }) => {
			const worker = this.#workers.get(id);
			const { position, waiting } = worker ?? listed;
			const newest = worker === undefined ? this.#newestThen : this.#newest;
			return {
				...this.#countsOf(id),
				...{ name, owner, state, waiting, lost: Number(lost), lag: Math.max(0, Number(newest - position)) },
				failing: failingSince === undefined ? 0 : Math.max(0, now - Number(failingSince / 1000n)) / 1000,
			};
		});
	}

	async #run(onLooked: () => void): Promise<void> {
		const { clock, onError, look = LOOK } = this.#options;
		while (!this.#stop.signal.aborted) {
			this.#wake = new AbortController();
			await this.#look().catch(onError);
			onLooked();
			await clock.wait(look, AbortSignal.any([this.#wake.signal, this.#stop.signal]));
		}
	}

	/** Begins to deliver to endpoints that no process delivers to, and ends where this one should not. */
	async #look(): Promise<void> {
		const { store } = this.#options;
		this.#listed = await store.tables.read.listEndpoints({ owner: undefined });
		if (this.#newest === 0n) {
			const { newest } = await store.updates.range();
			// A newer one may have been told meanwhile.
			if (this.#newest === 0n) this.#newest = newest;
		}
		this.#newestThen = this.#newest;
		const { ownForms } = this.#options;
		// What the service itself sends may be off in this process.
		const isKnown = (form: string) => Object.hasOwn(FORMS, form) || ownForms?.has(form) === true;
		const listed = this.#listed.filter(({ state, form }) => state === "active" && isKnown(form));
		const active = new Map(listed.map((one) => [one.id, one]));
		for (const [id, worker] of this.#workers) {
			const present = active.get(id);
			const isPresent = present !== undefined && present.generation === worker.generation && !worker.isOver;
			if (isPresent && (await this.#claim(id))) worker.wake();
			else await this.#end(id, worker);
		}
		for (const id of active.keys()) {
			if (this.#workers.has(id) || this.#stop.signal.aborted || !(await this.#claim(id))) continue;
			const endpoint = await store.tables.write.beginDelivering(id);
			if (endpoint === undefined) continue;
			const worker = new EndpointWorker(endpoint, this.#newest, this.#countsOf(id), this.#options);
			this.#workers.set(id, worker);
			// Another process, a change of the endpoint, or its failures end it.
			void worker.done.then(() => {
				if (!this.#stop.signal.aborted && this.#workers.get(id) === worker) this.poke();
			});
		}
		for (const id of this.#counts.keys()) if (!this.#listed.some((one) => one.id === id)) this.#counts.delete(id);
	}

	async #end(id: string, worker: EndpointWorker): Promise<void> {
		await worker.stop(GRACE);
		this.#workers.delete(id);
	}

	#claim(id: string, milliseconds = this.#options.claim ?? CLAIM): Promise<boolean> {
		return claimFor(this.#options.store, `forward ${id}`, this.#holder, milliseconds);
	}

	#countsOf(id: string): EndpointCounts {
		return this.#counts.getOrInsertComputed(id, () => ({ delivered: 0, failedTries: 0, failed: 0 }));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#unsubscribe();
		this.#stop.abort();
		await this.#running;
		await Promise.all(
			[...this.#workers].map(async ([id, worker]) => {
				await worker.stop(GRACE);
				// So another process need not wait.
				await this.#claim(id, 0).catch(() => undefined);
			}),
		);
	}
}
