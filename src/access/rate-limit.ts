import { ServiceError } from "../errors.ts";
import type { Principal } from "./keys.ts";

/** A token bucket: each request takes one token. */
interface Bucket {
	tokens: number;
	/** Time at which the tokens were counted, in milliseconds. */
	countedAt: number;
}

/**
 * Limits the requests a second of each holder of a key or certificate, by a token bucket. The bucket holds one second's
 * requests, so that a holder may make as many at once after a pause of a second.
 */
export class RateLimit {
	readonly #perSecond: number;
	readonly #buckets = new Map<Principal, Bucket>();

	constructor(perSecond: number) {
		this.#perSecond = perSecond;
	}

	/**
	 * Counts a request of a holder.
	 *
	 * @param now milliseconds of a monotonic clock
	 * @throws {ServiceError} `rate_limited`
	 */
	take(holder: Principal, now = performance.now()): void {
		const { tokens, countedAt } = this.#buckets.get(holder) ?? { tokens: this.#perSecond, countedAt: now };
		const filled = Math.min(this.#perSecond, tokens + ((now - countedAt) / 1000) * this.#perSecond);
		this.#buckets.set(holder, { tokens: filled < 1 ? filled : filled - 1, countedAt: now });
		if (filled < 1)
			throw new ServiceError(
				"rate_limited",
				`The access key or client certificate exceeds its limit of ${this.#perSecond} requests per second`,
				{ caller: holder.name },
			);
	}
}
