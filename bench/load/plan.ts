import { z } from "zod";

/**
 * How the variants of a request differ. Request number n belongs to conversation `firstConversation + n %
 * conversations`. If it holds a time, it is that conversation's update number `n / conversations`. Both numbers
 * overwrite bytes of the request, so that its length stays the same.
 */
const variation = z.object({
	/** Offset of the first eight hexadecimal digits of the conversation's id. */
	idOffset: z.int(),
	time: z
		.object({
			/** Offset of the fraction of `updated_at`. */
			offset: z.int(),
			/** `digits`: microseconds in six decimal digits. `varint`: nanoseconds in a protobuf varint of four bytes. */
			form: z.enum(["digits", "varint"]),
		})
		.optional(),
	/** Offsets at which the update's number is written in eight hexadecimal digits, to make ids unique. */
	counterOffsets: z.array(z.int()).optional(),
	/** Offsets at which the number of the update before is written; for the first update its own. */
	previousOffsets: z.array(z.int()).optional(),
	conversations: z.int(),
	firstConversation: z.int(),
	/** Number of the first request. */
	first: z.int(),
});

/** What a load client has to send. */
export const loadPlan = z.object({
	port: z.int(),
	/** A complete HTTP/1.1 request, or a gRPC message with its five-byte prefix. */
	request: z.instanceof(Uint8Array),
	/** How requests differ. Without it all are the same. */
	variation: variation.optional(),
	/** Requests for the updates of a conversation, one after the other; the last one is for all further ones. */
	steps: z.array(z.object({ request: z.instanceof(Uint8Array), variation })).optional(),
	/** Maximum number of requests under way at a time. */
	concurrency: z.int(),
	/** Duration, in milliseconds. */
	milliseconds: z.number(),
	/** Maximum number of requests. Without it only the duration limits them. */
	requests: z.int().optional(),
	/** Requests per second. Without it the next request is sent as soon as one is answered. */
	rate: z.number().optional(),
	/** gRPC: path of the method. */
	path: z.string().optional(),
	/** gRPC: access key. */
	key: z.string().optional(),
});

export const loadResult = z.object({
	/** Requests that were answered with success within the duration. */
	answered: z.int(),
	/** Duration, in seconds. */
	seconds: z.number(),
	/**
	 * Time from sending a request to its complete response, in milliseconds: median and 99th percentile. 0 without any
	 * successful response.
	 */
	latency: z.tuple([z.number(), z.number()]),
	failed: z.int(),
	/** Description of the first failure. */
	failure: z.string().optional(),
	/** Number of the next request to send. */
	next: z.int(),
	/** Processor time of the client, in seconds. */
	clientSeconds: z.number(),
});

export type Variation = z.output<typeof variation>;
export type LoadPlan = z.output<typeof loadPlan>;
export type LoadResult = z.output<typeof loadResult>;

/** Bounds of microseconds within a second: their nanoseconds take exactly four bytes as a varint. */
const FIRST_MICROSECOND = 2_100;
const LAST_MICROSECOND = 268_435;

/** Returns the time of an update within its second, in microseconds. */
export function microsecondOf(update: number): number {
	const microsecond = FIRST_MICROSECOND + update;
	if (microsecond > LAST_MICROSECOND) throw new RangeError("too many updates of one conversation");
	return microsecond;
}

/**
 * Returns the first eight hexadecimal digits of a conversation's id: unique, and scattered like those of random ids.
 */
export function idDigits(conversation: number): string {
	return (Math.imul(conversation, 0x9e37_79b1) >>> 0).toString(16).padStart(8, "0");
}

/** Returns the number of a conversation's update in eight hexadecimal digits. */
export function counterDigits(update: number): string {
	return update.toString(16).padStart(8, "0");
}

/** Overwrites the variable parts of a request for request number `n`. */
export function vary(request: Buffer, variation: Variation, n: number): void {
	const { idOffset, time, counterOffsets, previousOffsets, conversations, firstConversation } = variation;
	request.write(idDigits(firstConversation + (n % conversations)), idOffset, "latin1");
	const update = Math.floor(n / conversations);
	for (const offset of counterOffsets ?? []) request.write(counterDigits(update), offset, "latin1");
	const previous = counterDigits(Math.max(0, update - 1));
	for (const offset of previousOffsets ?? []) request.write(previous, offset, "latin1");
	if (time === undefined) return;
	const microsecond = microsecondOf(update);
	if (time.form === "digits") {
		request.write(String(microsecond).padStart(6, "0"), time.offset, "latin1");
		return;
	}
	const nanoseconds = microsecond * 1000;
	request[time.offset] = (nanoseconds & 0x7f) | 0x80;
	request[time.offset + 1] = ((nanoseconds >>> 7) & 0x7f) | 0x80;
	request[time.offset + 2] = ((nanoseconds >>> 14) & 0x7f) | 0x80;
	request[time.offset + 3] = nanoseconds >>> 21;
}
