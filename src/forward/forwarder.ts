import type { Store } from "../store/store.ts";
import { EndpointWorker, LOOK, type WorkerOptions } from "./endpoint-worker.ts";
import { FORMS } from "./tell.ts";

const NOTHING = { delivered: 0, failedTries: 0, failed: 0 };

/**
 * Delivers to all endpoints. Of several processes with one database, one delivers to an endpoint; another one follows
 * within a minute after that one has ended.
 */
export class Forwarder implements AsyncDisposable {
	readonly #options: WorkerOptions;
	readonly #workers = new Map<string, EndpointWorker>();
	readonly #stop = new AbortController();
	readonly #unsubscribe: () => void;
	#listing: ReturnType<Store["tables"]["read"]["listEndpoints"]> | undefined;
	#newest = 0n;
	#wake = new AbortController();
	readonly #running: Promise<void>;

	constructor(options: WorkerOptions) {
		this.#options = options;
		this.#unsubscribe = options.store.updates.subscribe((newest) => {
			this.#newest = newest;
			for (const worker of this.#workers.values()) worker.wake(false);
		});
		this.#running = this.#run();
	}

	/** Says that endpoints or deliveries have changed. */
	poke(): void {
		for (const worker of this.#workers.values()) worker.wake(true);
		this.#wake.abort();
	}

	/**
	 * Returns what there is to know of each endpoint: of its deliveries since the start of this process, `lost` of all
	 * times, and `failing`, the seconds since the first failure after the last success.
	 */
	async figures() {
		const { store, clock } = this.#options;
		// A scrape reads several figures at a time.
		this.#listing ??= store.tables.read.listEndpoints({ owner: undefined }).finally(() => {
			this.#listing = undefined;
		});
		return (await this.#listing).map(({ id, name, owner, state, waiting, lost, position, failingSince }) => {
			const worker = this.#workers.get(id);
			return {
				...(worker?.counts ?? NOTHING),
				...{ name, owner, state, waiting, lost: Number(lost) },
				lag: Math.max(0, Number(this.#newest - (worker?.position ?? position))),
				failing: failingSince === undefined ? 0 : Math.max(0, clock.now() - Number(failingSince / 1000n)) / 1000,
			};
		});
	}

	async #run(): Promise<void> {
		const { clock, onError } = this.#options;
		while (!this.#stop.signal.aborted) {
			this.#wake = new AbortController();
			await this.#look().catch(onError);
			await clock.wait(LOOK, AbortSignal.any([this.#wake.signal, this.#stop.signal]));
		}
	}

	/** Begins to work for new endpoints. */
	async #look(): Promise<void> {
		const { store, ownForms } = this.#options;
		const listed = await store.tables.read.listEndpoints({ owner: undefined });
		if (this.#newest === 0n) {
			const { newest } = await store.updates.range();
			// A newer one may have been told meanwhile.
			if (this.#newest === 0n) this.#newest = newest;
		}
		for (const { id, form } of listed) {
			// What the service itself sends may be off in this process.
			const isKnown = Object.hasOwn(FORMS, form) || ownForms?.has(form) === true;
			if (!isKnown || this.#workers.has(id) || this.#stop.signal.aborted) continue;
			const worker = new EndpointWorker(id, () => this.#newest, this.#options);
			this.#workers.set(id, worker);
			void worker.done.then(() => this.#workers.delete(id));
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#unsubscribe();
		this.#stop.abort();
		await this.#running;
		await Promise.all(Array.from(this.#workers.values(), (worker) => worker[Symbol.asyncDispose]()));
	}
}
