import { z } from "zod";

/** With what to fill a database. */
export const fillPlan = z.discriminatedUnion("kind", [
	z.object({
		kind: z.literal("history"),
		path: z.string(),
		updates: z.int(),
		body: z.enum(["small", "large"]),
		/** The updates are of these conversations in turn. */
		conversations: z.int(),
	}),
	z.object({
		kind: z.literal("variety"),
		path: z.string(),
		/** One of each conversation. */
		updates: z.int(),
		/** Conversations that have what `RARE` says. */
		rare: z.int(),
	}),
]);
export type FillPlan = z.output<typeof fillPlan>;

/** What only the rare conversations of a variety have; their agents are native ones. */
export const RARE = {
	status: "PAUSED",
	model: "rare-model",
	title: "philodendron",
	parentId: "6a0f9d5e-3c1b-4f7a-9a55-0c9f3a7b2d11",
	tagKey: "rare",
	tagValue: "yes",
	/** Seconds since the Unix epoch, within the hour that follows. */
	created: 1_700_000_000n,
	updated: 1_700_100_000n,
} as const;
