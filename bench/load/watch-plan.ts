import { z } from "zod";

/** Requests to a watcher process: `start` once, then `progress` as often as wanted. */
export const watchPlan = z.discriminatedUnion("kind", [
	z.object({
		kind: z.literal("start"),
		port: z.int(),
		path: z.string(),
		key: z.string(),
		watchers: z.int(),
		/**
		 * Request of each watcher in turn, as a gRPC message with its prefix. They are reused if there are more watchers.
		 */
		requests: z.array(z.instanceof(Uint8Array)).min(1),
	}),
	z.object({ kind: z.literal("progress") }),
	/** Discards the delays that were measured so far. */
	z.object({ kind: z.literal("reset") }),
]);

export const watchProgress = z.object({
	/** Number of updates that the slowest watcher has received. */
	least: z.int(),
	/** Number of updates that all watchers have received together. */
	total: z.int(),
	/** Number of updates whose sequence number was not greater than the previous one. */
	disordered: z.int(),
	/** Number of streams that ended, and the reason of the first one. */
	ended: z.int(),
	reason: z.string().optional(),
	/** Sample of the delays from an update's arrival at the service to its receipt by a watcher, in milliseconds. */
	delays: z.array(z.number()),
	/** Processor time of the client since its start, in seconds. */
	clientSeconds: z.number(),
});

export type WatchPlan = z.output<typeof watchPlan>;
export type WatchProgress = z.output<typeof watchProgress>;
