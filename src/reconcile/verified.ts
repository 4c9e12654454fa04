import { LRUCache } from "lru-cache";

/** What a run has compared of a conversation whose run was over. */
export interface VerifiedConversation {
	/** `updated_at` as the agent server listed it. */
	readonly updatedAt: string | undefined;
	/** Id and time of the newest event, as the agent server writes them. All events up to it are stored. */
	readonly newestId: string;
	readonly newestAt: string;
}

/** What the runs of this process have compared, so that the next one need not do it again. */
export type Verified = Pick<LRUCache<string, VerifiedConversation>, "get" | "set" | "delete">;

/** Maximum number of conversations that are remembered: about 30 MiB. Others are compared again. */
const MAX_CONVERSATIONS = 100_000;
/** Milliseconds before the newest known event from which events are listed: a local time can repeat two hours. */
const OVERLAP = 2 * 60 * 60 * 1000;

export function newVerified(): Verified {
	return new LRUCache<string, VerifiedConversation>({ max: MAX_CONVERSATIONS });
}

/** Returns a time some hours before a local one, in the same form; undefined when it is no time. */
export function earlier(local: string): string | undefined {
	const time = Date.parse(`${local.slice(0, 19)}Z`);
	return Number.isNaN(time) ? undefined : new Date(time - OVERLAP).toISOString().slice(0, 19);
}
