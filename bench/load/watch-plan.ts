import { z } from "zod";

/** What a process of watchers is asked: to start them, then how far they have come, as often as wanted. */
export const watchPlan = z.discriminatedUnion("kind", [
	z.object({
		kind: z.literal("start"),
		port: z.int(),
		path: z.string(),
		key: z.string(),
		watchers: z.int(),
		/** The request of each watcher in turn, as gRPC messages with their prefix; over again when there are fewer. */
		requests: z.array(z.instanceof(Uint8Array)).min(1),
	}),
	z.object({ kind: z.literal("progress") }),
	/** Forgets the delays that were measured so far. */
	z.object({ kind: z.literal("reset") }),
]);

export const watchProgress = z.object({
	/** Updates that the watcher that is behind all others has received. */
	least: z.int(),
	/** Updates that all watchers have received together. */
	total: z.int(),
	/** Updates that did not come after the one before. */
	disordered: z.int(),
	/** Streams that ended, and why the first of them did. */
	ended: z.int(),
	reason: z.string().optional(),
	/** From the arrival of an update at the service to its receipt by a watcher, in milliseconds; of a sample. */
	delays: z.array(z.number()),
	/** Processor time of the client since its start, in seconds. */
	clientSeconds: z.number(),
});

export type WatchPlan = z.output<typeof watchPlan>;
export type WatchProgress = z.output<typeof watchProgress>;
