import { ServiceError } from "../../errors.ts";

/** Bounds how many connections are in use at once. Who waits gets a slot in the order of arrival. */
export class Slots {
	#free: number;
	readonly #waiting = new Set<() => void>();

	/** @param count at least 1 */
	constructor(count: number) {
		this.#free = count;
	}

	/**
	 * Takes a slot, which {@link give} gives back.
	 *
	 * @param longest time to wait, in milliseconds
	 * @throws {ServiceError} `unavailable` when none became free in that time
	 */
	async take(longest: number): Promise<void> {
		if (this.#free > 0) {
			this.#free--;
			return;
		}
		const { promise, resolve, reject } = Promise.withResolvers<void>();
		this.#waiting.add(resolve);
		const timer = setTimeout(() => {
			this.#waiting.delete(resolve);
			reject(new ServiceError("unavailable", "the database's connections are all in use"));
		}, longest);
		await promise.finally(() => clearTimeout(timer));
	}

	give(): void {
		const [next] = this.#waiting;
		if (next === undefined) {
			this.#free++;
			return;
		}
		this.#waiting.delete(next);
		next();
	}
}
