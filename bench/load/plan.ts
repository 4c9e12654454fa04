import { z } from "zod";

/**
 * How the copies of a request are made to differ. Request number n is of conversation
 * `firstConversation + n % conversations` and, where it holds a time, its update number `n / conversations`; both are
 * written over bytes of the request, which keeps its length.
 */
const variation = z.object({
	/** Where the first eight hexadecimal digits of the conversation's id stand. */
	idOffset: z.int(),
	time: z
		.object({
			/** Where the fraction of `updated_at` stands. */
			offset: z.int(),
			/** Six decimal digits of microseconds, or a protobuf varint of four bytes with nanoseconds. */
			form: z.enum(["digits", "varint"]),
		})
		.optional(),
	/** Where the update's number stands in eight hexadecimal digits, as part of ids that no two requests share. */
	counterOffsets: z.array(z.int()).optional(),
	conversations: z.int(),
	firstConversation: z.int(),
	/** The number of the first request. */
	first: z.int(),
});

/** What a load client is to do. */
export const loadPlan = z.object({
	port: z.int(),
	/** A whole HTTP/1.1 request, or a gRPC message with its five bytes of prefix. */
	request: z.instanceof(Uint8Array),
	/** How requests differ; without it all are the same. */
	variation: variation.optional(),
	/** Most requests under way at a time. */
	concurrency: z.int(),
	/** How long to send, in milliseconds. */
	milliseconds: z.number(),
	/** How many requests to send in all that time; without it as many as it takes. */
	requests: z.int().optional(),
	/** Requests a second; without it the next one is sent as soon as one is answered. */
	rate: z.number().optional(),
	/** gRPC: path of the method. */
	path: z.string().optional(),
	/** gRPC: access key. */
	key: z.string().optional(),
});

export const loadResult = z.object({
	/** Requests that were answered with success while the time ran. */
	answered: z.int(),
	/** How long it ran, in seconds. */
	seconds: z.number(),
	/** From the sending of a request to its whole answer, in milliseconds: the median, and the 99th percentile; 0 when none was answered. */
	latency: z.tuple([z.number(), z.number()]),
	failed: z.int(),
	/** What was wrong with the first request that failed. */
	failure: z.string().optional(),
	/** Number of the next request that was not yet sent. */
	next: z.int(),
	/** Processor time of the client, in seconds. */
	clientSeconds: z.number(),
});

export type Variation = z.output<typeof variation>;
export type LoadPlan = z.output<typeof loadPlan>;
export type LoadResult = z.output<typeof loadResult>;

/** Least nanoseconds of the varint form: all from here to 268,435,455 take four bytes. */
const FIRST_MICROSECOND = 2_100;
const LAST_MICROSECOND = 268_435;

/** Time of an update within its second, in microseconds. */
export function microsecondOf(update: number): number {
	const microsecond = FIRST_MICROSECOND + update;
	if (microsecond > LAST_MICROSECOND) throw new RangeError("too many updates of one conversation");
	return microsecond;
}

/** First eight hexadecimal digits of a conversation's id: as scattered as those of random ids, and all different. */
export function idDigits(conversation: number): string {
	return (Math.imul(conversation, 0x9e37_79b1) >>> 0).toString(16).padStart(8, "0");
}

/** The number of an update of a conversation in eight hexadecimal digits. */
export function counterDigits(update: number): string {
	return update.toString(16).padStart(8, "0");
}

/** Writes request number `n` over a request. */
export function vary(request: Buffer, variation: Variation, n: number): void {
	const { idOffset, time, counterOffsets, conversations, firstConversation } = variation;
	request.write(idDigits(firstConversation + (n % conversations)), idOffset, "latin1");
	const update = Math.floor(n / conversations);
	for (const offset of counterOffsets ?? []) request.write(counterDigits(update), offset, "latin1");
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
