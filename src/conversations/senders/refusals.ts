import type { Poster, Store } from "../../store/store.ts";

/** Length of a period in which refusals are counted, in microseconds. */
const PERIOD = 300_000_000n;
/** How long the numbers are kept, in microseconds: a day, and an hour more. */
const KEPT = 25n * 3_600_000_000n;
/** Milliseconds between two writes of the numbers. */
const FLUSH_INTERVAL = 10_000;

/**
 * Counts the refused posts of senders in memory, and adds them to those of the store every ten seconds and when it is
 * disposed. So the numbers of several replicas add up.
 */
export class RefusalCounts implements AsyncDisposable {
	readonly #store: Pick<Store, "addRefusals">;
	readonly #onError: (error: unknown) => void;
	readonly #timer: NodeJS.Timeout;
	#counts = new Map<string, { readonly sender: string; owner: string; since: bigint; kind: string; count: bigint }>();
	#flushing: Promise<void> = Promise.resolve();

	/** @param onError called when the numbers could not be stored; they are stored later */
	constructor(store: Pick<Store, "addRefusals">, onError: (error: unknown) => void) {
		this.#store = store;
		this.#onError = onError;
		this.#timer = setInterval(() => void this.flush(), FLUSH_INTERVAL).unref();
	}

	/** @param now milliseconds of Unix time */
	add({ sender, owner = "" }: Poster, kind: string, now = Date.now()): void {
		const since = ((BigInt(now) * 1000n) / PERIOD) * PERIOD;
		const key = JSON.stringify([owner, sender, kind, String(since)]);
		const counted = this.#counts.getOrInsertComputed(key, () => ({ sender, owner, since, kind, count: 0n }));
		counted.count += 1n;
	}

	/** Stores the numbers. Never rejects. */
	async flush(now = Date.now()): Promise<void> {
		this.#flushing = this.#flushing.then(() => this.#storeCounts(now));
		await this.#flushing;
	}

	async #storeCounts(now: number): Promise<void> {
		if (this.#counts.size === 0) return;
		const counts = this.#counts;
		this.#counts = new Map();
		try {
			await this.#store.addRefusals({ refusals: [...counts.values()], keptSince: BigInt(now) * 1000n - KEPT });
		} catch (error) {
			for (const [key, counted] of counts) {
				const later = this.#counts.get(key);
				this.#counts.set(key, { ...counted, count: counted.count + (later?.count ?? 0n) });
			}
			this.#onError(error);
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		clearInterval(this.#timer);
		await this.flush();
	}
}
