import { ServiceError } from "../../errors.ts";

/** Limits how many connections are in use at the same time. Waiting callers get a slot in the order of arrival. */
export class Slots {
	#free: number;
	readonly #waiting = new Set<() => void>();

	/** @param count at least 1 */
	constructor(count: number) {
		this.#free = count;
	}

	/**
	 * Takes a slot, which {@link release} returns.
	 *
	 * @param timeout maximum time to wait, in milliseconds
	 * @throws {ServiceError} `unavailable` when no slot became free in that time
	 */
	async take(timeout: number): Promise<void> {
		if (this.#free > 0) {
			this.#free--;
			return;
		}
		const { promise, resolve, reject } = Promise.withResolvers<void>();
		this.#waiting.add(resolve);
		const timer = setTimeout(() => {
			this.#waiting.delete(resolve);
			reject(new ServiceError("unavailable", "all connections to the database are in use"));
		}, timeout);
		await promise.finally(() => clearTimeout(timer));
	}

	release(): void {
		const [next] = this.#waiting;
		if (next === undefined) {
			this.#free++;
			return;
		}
		this.#waiting.delete(next);
		next();
	}
}
