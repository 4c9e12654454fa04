import { z } from "zod";

/** How to fill a database with conversations that differ in the properties that lists can filter by. */
export const fillPlan = z.object({
	/** Port of a service's HTTP listener, and its access key. */
	port: z.int(),
	key: z.string(),
	/** Number of conversations; each gets one update. */
	conversations: z.int(),
	/** Number of the first one to post; those before were posted already. Default: 0. */
	first: z.int().default(0),
	/** Number of the one after the last to post. Default: all. */
	end: z.int().optional(),
	/** Number of conversations with the properties of `RARE`. */
	rare: z.int(),
	/** Number of owners to whom the conversations belong in turn: see {@link keyOfOwner}. Default: no owners. */
	owners: z.int().optional(),
});
export type FillPlan = z.input<typeof fillPlan>;

/** Returns the access key of an owner with which its conversations are posted, made from the key of the plan. */
export function keyOfOwner(key: string, owner: number): string {
	return `${key}-${owner}`;
}

/** Properties that only the rare conversations have. These also have native agents. */
export const RARE = {
	status: "paused",
	model: "rare-model",
	title: "philodendron",
	parentId: "6a0f9d5e-3c1b-4f7a-9a55-0c9f3a7b2d11",
	tagKey: "rare",
	tagValue: "yes",
	/** Seconds since the Unix epoch. The times lie within the hour that follows. */
	created: 1_700_000_000,
	updated: 1_700_100_000,
} as const;
