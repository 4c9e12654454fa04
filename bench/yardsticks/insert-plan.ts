import { z } from "zod";

/** What the driver is to insert. */
export const insertPlan = z.object({
	/** Of a database that holds the current updates of several conversations. */
	url: z.string(),
	/** Updates in one transaction. */
	group: z.int(),
	/** How long to insert, in milliseconds. */
	milliseconds: z.number(),
});
export type InsertPlan = z.output<typeof insertPlan>;

export const insertResult = z.object({
	/** Updates that were committed. */
	rows: z.int(),
	/** How long it took, in seconds. */
	seconds: z.number(),
	/** Time of a group in milliseconds: the median, and the 99th percentile. */
	latency: z.tuple([z.number(), z.number()]),
});
export type InsertResult = z.output<typeof insertResult>;
