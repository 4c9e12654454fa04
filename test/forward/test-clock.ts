import type { Clock } from "../../src/forward/endpoint-worker.ts";

/** A clock that a test sets. */
export class TestClock implements Clock {
	#now = Date.parse("2026-01-01T00:00:00Z");
	readonly #waiting = new Set<{ readonly until: number; readonly resolve: () => void }>();

	now(): number {
		return this.#now;
	}

	wait(milliseconds: number, signal: AbortSignal): Promise<void> {
		return new Promise((resolve) => {
			const waiter = { until: this.#now + milliseconds, resolve };
			if (signal.aborted || milliseconds <= 0) return resolve();
			this.#waiting.add(waiter);
			signal.addEventListener("abort", () => {
				this.#waiting.delete(waiter);
				resolve();
			});
		});
	}

	/** Lets time pass. */
	advance(milliseconds: number): void {
		this.#now += milliseconds;
		for (const waiter of this.#waiting) {
			if (waiter.until > this.#now) continue;
			this.#waiting.delete(waiter);
			waiter.resolve();
		}
	}
}
