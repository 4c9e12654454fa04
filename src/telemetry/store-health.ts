import type { Store } from "../store/store.ts";
import type { Log } from "./log.ts";

/** Settings of {@link followStoreHealth}. */
export interface StoreHealthOptions {
	/** Called when the store's check begins to fail, and when it succeeds again. */
	readonly onChange: (healthy: boolean) => void;
	readonly log: Pick<Log, "storeHealth">;
	/** Milliseconds between two checks. 1000 when left out. */
	readonly interval?: number;
	/** Milliseconds after which a check that has not ended counts as failed. 10,000 when left out. */
	readonly longest?: number;
}

/**
 * Checks a store again and again until it is disposed of. A store counts as healthy at first. One check is made at a
 * time: while one does not end, no other can tell anything else.
 */
export function followStoreHealth(store: Pick<Store, "check">, options: StoreHealthOptions): Disposable {
	const { onChange, log, interval = 1_000, longest = 10_000 } = options;
	let healthy = true;
	/** When the check began that is under way, as performance.now() counts. */
	let since: number | undefined;
	const change = (error: unknown): void => {
		const now = error === undefined;
		if (now === healthy) return;
		healthy = now;
		log.storeHealth(error);
		onChange(now);
	};
	const timer = setInterval(() => {
		if (since !== undefined) {
			// A check that is still under way says nothing yet.
			if (performance.now() - since > longest) change(new Error(`The check has not ended in ${longest} ms`));
			return;
		}
		since = performance.now();
		store
			.check()
			.then(
				() => change(undefined),
				(error: unknown) => change(error ?? new Error("The check failed")),
			)
			.finally(() => {
				since = undefined;
			});
	}, interval);
	timer.unref();
	return { [Symbol.dispose]: () => clearInterval(timer) };
}
