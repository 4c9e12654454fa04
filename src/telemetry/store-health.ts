import type { Store } from "../store/store.ts";
import type { Log } from "./log.ts";

/** Settings of {@link followStoreHealth}. */
export interface StoreHealthOptions {
	/** Called when the store's check begins to fail, and when it succeeds again. */
	readonly onChange: (healthy: boolean) => void;
	readonly log: Pick<Log, "storeHealth">;
	/** Milliseconds between two checks. 1000 when left out. */
	readonly interval?: number;
}

/** Checks a store again and again until it is disposed of. A store counts as healthy at first. */
export function followStoreHealth(store: Pick<Store, "check">, options: StoreHealthOptions): Disposable {
	const { onChange, log, interval = 1000 } = options;
	let healthy = true;
	let checking = false;
	const change = (error: unknown): void => {
		const now = error === undefined;
		if (now === healthy) return;
		healthy = now;
		log.storeHealth(error);
		onChange(now);
	};
	const timer = setInterval(() => {
		// A check that is still under way says nothing yet.
		if (checking) return;
		checking = true;
		store
			.check()
			.then(
				() => change(undefined),
				(error: unknown) => change(error ?? new Error("The check failed")),
			)
			.finally(() => {
				checking = false;
			});
	}, interval);
	timer.unref();
	return { [Symbol.dispose]: () => clearInterval(timer) };
}
