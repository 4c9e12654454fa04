import type { DescMessage } from "@bufbuild/protobuf";
import type { WatchBatch } from "../../conversations/watch/watch.ts";
import { stringifyExactJson } from "../../record/json/exact-json.ts";
import { LIMITS, type Limits } from "../connections.ts";
import { type RpcTransportOptions, untilTaken } from "../stream-messages.ts";
import { abandon, shownError, whenGone } from "./exchange.ts";
import type { StreamedResponse } from "./http-listener.ts";
import type { RouteRequest } from "./router.ts";

/** What all streams of events share. */
export interface EventStreamOptions extends Pick<RpcTransportOptions, "held" | "stopping"> {
	readonly limits?: Pick<Limits, "answerTime">;
}

const HEADERS = {
	"Content-Type": "text/event-stream",
	"Cache-Control": "no-store",
	"X-Content-Type-Options": "nosniff",
	// nginx would keep events back until its buffer is full.
	"X-Accel-Buffering": "no",
} as const;

/**
 * Answers a request by a stream of server-sent events (HTML Standard, section 9.2). The id of an event is its sequence.
 * A heartbeat is a comment; if it is the first message, or the watch has passed entries that its request excludes, it
 * also has an id, which clients take over without an event. An error ends the stream after an event of the type `end`.
 *
 * @throws what the watch throws before its first message, and `rate_limited` when that has no room
 */
export async function sendEventStream(
	{ request, observed, response: sent }: Pick<RouteRequest, "request" | "response" | "observed">,
	watch: (signal: AbortSignal) => AsyncIterable<WatchBatch<DescMessage>>,
	{ held, stopping, limits = LIMITS }: EventStreamOptions,
): Promise<void> {
	const response: StreamedResponse = sent;
	const gone = new AbortController();
	whenGone(request, sent, () => gone.abort());
	const over = AbortSignal.any([gone.signal, stopping]);
	/** Sends a chunk, and waits until the client has taken it or the stream is over. */
	const send = async (chunk: string | Uint8Array): Promise<void> => {
		const timeout = setTimeout(() => abandon(request, sent), limits.answerTime);
		await untilTaken(over, (onTaken) => response.write(chunk, onTaken));
		clearTimeout(timeout);
	};
	let through: bigint | undefined;
	try {
		for await (const batch of watch(over)) {
			const last = batch.at(-1);
			const batchHeld = held.hold(batch, "event");
			try {
				if (!sent.headersSent) response.writeHead(200, HEADERS);
				if (request.method === "HEAD") break;
				const isHeartbeat = last?.event === undefined;
				const id = last === undefined || last.sequence === through ? "" : `id: ${last.sequence}\n`;
				for (const chunk of isHeartbeat ? [`${id}: heartbeat\n\n`] : batchHeld.chunks) await send(chunk);
				through = last?.sequence;
			} finally {
				batchHeld.release();
			}
		}
	} catch (error) {
		if (!sent.headersSent) throw error;
		// A stream that its client ended, or that the service stopped, did not fail.
		if (!over.aborted) observed.failed(error);
		if (!gone.signal.aborted) response.write(lastEvent(error));
	}
	response.end("");
}

/** Returns the event that says why a stream ends, and when a client should connect again. */
function lastEvent(error: unknown): string {
	const { status, detail, retryAfter } = shownError(error);
	const retry = retryAfter === undefined ? "" : `retry: ${retryAfter * 1000}\n`;
	return `event: end\n${retry}data: ${stringifyExactJson({ status, detail })}\n\n`;
}
