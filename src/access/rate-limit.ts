import { ServiceError } from "../errors.ts";
import type { Principal } from "./keys.ts";

interface Bucket {
	tokens: number;
	/** When the tokens were counted, in milliseconds. */
	at: number;
}

/** Lets each holder of a key make a number of requests a second, and as many at once after a second of rest. */
export class RateLimit {
	readonly #perSecond: number;
	readonly #buckets = new Map<Principal, Bucket>();

	constructor(perSecond: number) {
		this.#perSecond = perSecond;
	}

	/**
	 * Counts a request.
	 *
	 * @param now milliseconds of a clock that never goes back
	 * @throws {ServiceError} `rate_limited`
	 */
	take(holder: Principal, now = performance.now()): void {
		const { tokens, at } = this.#buckets.get(holder) ?? { tokens: this.#perSecond, at: now };
		const filled = Math.min(this.#perSecond, tokens + ((now - at) / 1000) * this.#perSecond);
		this.#buckets.set(holder, { tokens: filled < 1 ? filled : filled - 1, at: now });
		if (filled < 1)
			throw new ServiceError("rate_limited", `More than ${this.#perSecond} requests a second came with this key`, {
				caller: holder.name,
			});
	}
}
