import { constants, type Http2Stream } from "node:http2";

/** Limits that a listener sets for its clients. Times are in milliseconds. */
export interface Limits {
	/** Maximum number of open connections. Further ones are closed at once. */
	readonly connections: number;
	/** Time within which a client must send its first bytes, finish the TLS handshake, or send the header of a request. */
	readonly headerTime: number;
	/** Time within which a request must arrive as a whole. */
	readonly requestTime: number;
	/** Time within which a client must take a whole response, or a whole message of a gRPC stream. */
	readonly answerTime: number;
	/** Time for which a connection or a stream may be idle. Heartbeats keep watches from being idle. */
	readonly idleTime: number;
	/** Maximum bytes of a request header on the HTTP listener. The gRPC listener has the default of Node.js, 64 KiB. */
	readonly headerBytes: number;
	/** Maximum number of concurrent requests on one HTTP/2 connection of the HTTP listener, and of the gRPC listener. */
	readonly httpStreams: number;
	readonly grpcStreams: number;
	/** Maximum bytes of a request message of a read or a watch. Requests with a record have `MAX_BODY_BYTES` instead. */
	readonly readRequestBytes: number;
}

export const LIMITS: Limits = {
	connections: 10_000,
	headerTime: 10_000,
	requestTime: 120_000,
	answerTime: 120_000,
	idleTime: 65_000,
	headerBytes: 16 * 1024,
	httpStreams: 100,
	grpcStreams: 1_000,
	readRequestBytes: 64 * 1024,
};

/**
 * Ends an HTTP/2 stream whose client sends its request, or takes the response, too slowly.
 *
 * @param mayIdle whether the stream may be idle; then only the time in which the request arrives is limited
 */
export function limitStream(stream: Http2Stream, { idleTime, requestTime }: Limits, mayIdle = false): void {
	const end = (): void => stream.close(constants.NGHTTP2_CANCEL);
	if (!mayIdle) stream.setTimeout(idleTime, end);
	if (stream.endAfterHeaders) return;
	const timeout = setTimeout(end, requestTime);
	const clear = (): void => clearTimeout(timeout);
	stream.once("end", clear).once("close", clear);
}

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
