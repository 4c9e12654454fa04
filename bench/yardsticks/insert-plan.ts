import { z } from "zod";

/** What the driver has to insert. */
export const insertPlan = z.object({
	/** URL of a database that holds the current updates of several conversations. */
	url: z.string(),
	/** Number of updates in a transaction. */
	group: z.int(),
	/** Duration, in milliseconds. */
	milliseconds: z.number(),
});
export type InsertPlan = z.output<typeof insertPlan>;

export const insertResult = z.object({
	/** Number of committed updates. */
	rows: z.int(),
	/** Duration, in seconds. */
	seconds: z.number(),
	/** Time that a group takes, in milliseconds: median and 99th percentile. */
	latency: z.tuple([z.number(), z.number()]),
});
export type InsertResult = z.output<typeof insertResult>;
