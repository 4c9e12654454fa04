import { z } from "zod";

/** Requests to a process of open consoles: `start` once, then `progress` as often as wanted. */
export const consolesPlan = z.discriminatedUnion("kind", [
	z.object({ kind: z.literal("start"), port: z.int(), key: z.string(), consoles: z.int() }),
	z.object({ kind: z.literal("progress") }),
]);

export const consolesProgress = z.object({
	/** Number of updates and events that all consoles have received together. */
	received: z.int(),
	/** Number of counts, and of lists that were read again after events. */
	counts: z.int(),
	lists: z.int(),
	/** The first failure. */
	failure: z.string().optional(),
});

export type ConsolesPlan = z.output<typeof consolesPlan>;
