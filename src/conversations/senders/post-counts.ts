import type { Poster } from "../../store/owners.ts";
import { CountedPosts } from "../../store/senders.ts";
import type { Store } from "../../store/store.ts";

/** Length of a period in which refusals are counted, in microseconds. */
const PERIOD = 300_000_000n;
/** How long the numbers are kept, in microseconds: a day, and an hour more. */
const KEPT = 25n * 3_600_000_000n;
/** Milliseconds between two writes of the numbers. */
const FLUSH_INTERVAL = 10_000;

/**
 * Counts the refused and the repeated posts of senders in memory, and adds them to those of the store every ten seconds
 * and when it is disposed. So the numbers of several replicas add up. Posts that store something are counted with it.
 */
export class PostCounts implements AsyncDisposable {
	readonly #store: Pick<Store, "addRefusals">;
	readonly #onError: (error: unknown) => void;
	readonly #timer: NodeJS.Timeout;
	#counts = new Map<string, { readonly sender: string; owner: string; since: bigint; kind: string; count: bigint }>();
	#repeats = new CountedPosts();
	#flushing: Promise<void> = Promise.resolve();

	/** @param onError called when the numbers could not be stored; they are stored later */
	constructor(store: Pick<Store, "addRefusals">, onError: (error: unknown) => void) {
		this.#store = store;
		this.#onError = onError;
		this.#timer = setInterval(() => void this.flush(), FLUSH_INTERVAL).unref();
	}

	/** Counts a refused post. `now` is milliseconds of Unix time. */
	add({ sender, owner = "" }: Poster, kind: string, now = Date.now()): void {
		const since = ((BigInt(now) * 1000n) / PERIOD) * PERIOD;
		const key = JSON.stringify([owner, sender, kind, String(since)]);
		const counted = this.#counts.getOrInsertComputed(key, () => ({ sender, owner, since, kind, count: 0n }));
		counted.count += 1n;
	}

	/** Counts a post that repeats what is stored. `at` is when it arrived, in microseconds of Unix time. */
	addRepeat({ sender, owner = "" }: Poster, at: bigint): void {
		this.#repeats.add({ sender, owner }, at, {});
	}

	/** Stores the numbers. Never rejects. */
	async flush(now = Date.now()): Promise<void> {
		this.#flushing = this.#flushing.then(() => this.#storeCounts(now));
		await this.#flushing;
	}

	async #storeCounts(now: number): Promise<void> {
		const [counts, repeats] = [this.#counts, this.#repeats.all()];
		if (counts.size === 0 && repeats.length === 0) return;
		this.#counts = new Map();
		this.#repeats = new CountedPosts();
		try {
			const keptSince = BigInt(now) * 1000n - KEPT;
			await this.#store.addRefusals({ refusals: [...counts.values()], repeats, keptSince });
		} catch (error) {
			for (const [key, counted] of counts) {
				const later = this.#counts.get(key);
				this.#counts.set(key, { ...counted, count: counted.count + (later?.count ?? 0n) });
			}
			for (const one of repeats) this.#repeats.merge(one);
			this.#onError(error);
		}
	}

	async [Symbol.asyncDispose](): Promise<void> {
		clearInterval(this.#timer);
		await this.flush();
	}
}
