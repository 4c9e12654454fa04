import { constants, type Http2Stream } from "node:http2";

/** Milliseconds within which a request must have arrived as a whole. */
export const REQUEST_TIMEOUT = 120_000;
/** Milliseconds that anything may stay open with nothing moving on it. Streams of updates have heartbeats. */
export const IDLE_TIMEOUT = 65_000;

/**
 * Ends a stream of HTTP/2 whose client sends its request, or takes its answer, too slowly.
 *
 * @param mayRest whether nothing has to move on it once the request is there
 */
export function limitStream(stream: Http2Stream, mayRest = false): void {
	const end = (): void => stream.close(constants.NGHTTP2_CANCEL);
	if (!mayRest) stream.setTimeout(IDLE_TIMEOUT, end);
	if (stream.endAfterHeaders) return;
	const late = setTimeout(end, REQUEST_TIMEOUT);
	const clear = (): void => clearTimeout(late);
	stream.once("end", clear).once("close", clear);
}
