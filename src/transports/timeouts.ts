/** Milliseconds per unit. A timeout in microseconds or nanoseconds has at most 8 digits, which a timer can hold. */
const UNITS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1 };

/**
 * Whether a timeout in gRPC's form (a number and a unit; gRPC over HTTP/2, "Requests") is longer than the longest timer
 * of Node.js: 2^31 - 1 ms, 24.8 days. The libraries would treat it as a very short one. The callers treat it as none.
 */
export function isEndless(timeout: string): boolean {
	const [, number = "", unit = ""] = /^(\d+)\s*([HMSm])$/.exec(timeout) ?? [];
	return Number(number) * (UNITS[unit] ?? 0) > 2 ** 31 - 1;
}
