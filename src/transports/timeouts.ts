const UNITS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1 };

/**
 * Whether a timeout in gRPC's form (a number and a unit, gRPC over HTTP/2, "Requests") is longer than a timer of Node.js
 * can be: 2^31 - 1 ms, 24.8 days. The libraries would take it for a very short one. It is as good as none.
 */
export function isEndless(timeout: string): boolean {
	const [, number = "", unit = ""] = /^(\d+)\s*([HMSm])$/.exec(timeout) ?? [];
	return Number(number) * (UNITS[unit] ?? 0) > 2 ** 31 - 1;
}
