import { constants, type Http2Stream } from "node:http2";

/** What a listener bears with its clients. Times are in milliseconds. */
export interface Limits {
	/** Most connections at a time; further ones are closed at once. */
	readonly connections: number;
	/** Until a client must have sent its first bytes, or finished the handshake of TLS, or sent the header of a request. */
	readonly headerTime: number;
	/** Until a request must have arrived as a whole. */
	readonly requestTime: number;
	/** Until a client must have taken an answer, or a message of a gRPC stream, as a whole. */
	readonly answerTime: number;
	/** How long anything may stay open with nothing moving on it. Streams of updates have heartbeats. */
	readonly idleTime: number;
	/** Bytes of the header of a request on the HTTP listener. The gRPC listener has those of Node.js, 64 KiB. */
	readonly headerBytes: number;
	/** Requests at a time on one connection of HTTP/2: of the HTTP listener, and of the gRPC listener. */
	readonly httpStreams: number;
	readonly grpcStreams: number;
	/** Calls at a time that need no key: clients that follow the health have one each. */
	readonly openCalls: number;
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
	openCalls: 1_000,
};

/**
 * Ends a stream of HTTP/2 whose client sends its request, or takes its answer, too slowly.
 *
 * @param mayRest whether nothing has to move on it once the request is there
 */
export function limitStream(stream: Http2Stream, { idleTime, requestTime }: Limits, mayRest = false): void {
	const end = (): void => stream.close(constants.NGHTTP2_CANCEL);
	if (!mayRest) stream.setTimeout(idleTime, end);
	if (stream.endAfterHeaders) return;
	const late = setTimeout(end, requestTime);
	const clear = (): void => clearTimeout(late);
	stream.once("end", clear).once("close", clear);
}
