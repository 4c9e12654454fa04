import type { EndpointHealth } from "../store/forwarding.ts";
import type { Answer } from "./http-sink.ts";

/** When a delivery is tried again, and what its tries say about the endpoint. Times are milliseconds. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Time without a success after which an endpoint is disabled, and during which a delivery is tried at the last pace. */
export const MAX_FAILING = 72 * HOUR;
/** Waits before the tries of a delivery after the first one, without their jitter. */
export const WAITS: readonly number[] = [
	...[5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR],
	...Array.from({ length: MAX_FAILING / (6 * HOUR) }, () => 6 * HOUR),
];
/** A wait is longer by up to this part of it, so that what failed together is not tried together. */
const JITTER = 0.1;
/** Longest time for which a receiver can put off the next try. */
const MAX_RETRY_AFTER = 24 * HOUR;
/** Number of failures in a row after which an endpoint is tried with one delivery at a time. */
const CIRCUIT = 5;
/** Least time between two tries then. */
export const PROBE_WAIT = 5 * SECOND;

/**
 * Returns the wait before the next try of a delivery; undefined after the last one.
 *
 * @param attempts number of failed tries, at least 1
 * @param random from 0 to before 1
 */
export function waitAfter(attempts: number, { retryAfter = 0 }: Pick<Answer, "retryAfter">, random: number) {
	const wait = WAITS[attempts - 1];
	return wait === undefined ? undefined : Math.max(wait * (1 + JITTER * random), Math.min(retryAfter, MAX_RETRY_AFTER));
}

/** Returns the wait before the next try of any delivery, when the receiver asks for one. */
export function pauseAfter({ status, retryAfter = 0 }: Answer): number {
	return status === 429 || status === 503 ? Math.min(retryAfter, MAX_RETRY_AFTER) : 0;
}

/** Whether an endpoint is tried with one delivery at a time. */
export function isCircuitOpen({ failures }: Pick<EndpointHealth, "failures">): boolean {
	return failures >= CIRCUIT;
}

/** Returns what is known of an endpoint after a try. */
export function healthAfter(before: EndpointHealth, { status, error }: Answer, now: number): EndpointHealth {
	const at = BigInt(now) * 1000n;
	if (error === "")
		return { failures: 0, failingSince: undefined, lastSuccessAt: at, disabledBecause: before.disabledBecause };
	const failingSince = before.failingSince ?? at;
	// A refusal by another status may concern this delivery only.
	const failures = before.failures + (status === 0 || status >= 500 || (status >= 200 && status < 300) ? 1 : 0);
	const disabledBecause =
		status === 410
			? "it answered with 410"
			: at - failingSince >= BigInt(MAX_FAILING) * 1000n
				? "no delivery succeeded for 3 days"
				: before.disabledBecause;
	return { ...before, failures, failingSince, disabledBecause };
}
