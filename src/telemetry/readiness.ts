import type { Store } from "../store/store.ts";
import type { EventLog } from "./log.ts";

/** A condition for the service to be ready for requests. */
type ReadinessCheck = "store" | "accepting";

/** Whether the service is ready: the store accepts writes, and the service is not stopping. Initially ready. */
export class Readiness {
	readonly #failing = new Map<ReadinessCheck, Date>();
	readonly #onChange: (ready: boolean) => void;

	/** @param onChange called whenever the overall readiness changes */
	constructor(onChange: (ready: boolean) => void) {
		this.#onChange = onChange;
	}

	set(check: ReadinessCheck, succeeds: boolean): void {
		const before = this.ready;
		if (succeeds) this.#failing.delete(check);
		else if (!this.#failing.has(check)) this.#failing.set(check, new Date());
		if (this.ready !== before) this.#onChange(this.ready);
	}

	passes(check: ReadinessCheck): boolean {
		return !this.#failing.has(check);
	}

	get ready(): boolean {
		return this.#failing.size === 0;
	}

	/** The failing checks, each with the time since when it has failed, in ISO 8601. */
	get failing(): { check: ReadinessCheck; since: string }[] {
		return [...this.#failing].map(([check, since]) => ({ check, since: since.toISOString() }));
	}
}

interface StoreHealthOptions {
	/** Called when the store's check begins to fail, and when it succeeds again. */
	readonly onChange: (healthy: boolean) => void;
	readonly log: EventLog;
	/** Milliseconds between two checks. Default: 1000. */
	readonly interval?: number;
	/** Milliseconds after which an unfinished check counts as failed. Default: 10,000. */
	readonly timeout?: number;
}

/**
 * Checks a store periodically until disposed of. The store counts as healthy at first. Only one check runs at a time:
 * the next one waits until it has finished.
 */
export function followStoreHealth(store: Pick<Store, "check">, options: StoreHealthOptions): Disposable {
	const { onChange, log, interval = 1_000, timeout = 10_000 } = options;
	let healthy = true;
	/** Start of the check under way, as returned by performance.now(). */
	let since: number | undefined;
	const change = (error: unknown): void => {
		const now = error === undefined;
		if (now === healthy) return;
		healthy = now;
		log.emit(now ? "store_healthy" : "store_unhealthy", {}, error);
		onChange(now);
	};
	const timer = setInterval(() => {
		if (since !== undefined) {
			// A check that is under way has no result yet.
			if (performance.now() - since > timeout) change(new Error(`The check has not ended in ${timeout} ms`));
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
