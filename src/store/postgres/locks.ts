import type { Query } from "./transaction.ts";

/**
 * Advisory locks, which end with the transaction. Their first number sets them apart from those of other programs; the
 * second one names what is locked.
 *
 * A transaction takes all its locks of conversations at once, in the order of their numbers, before it changes anything,
 * and the row of `positions` or `removals` last: so no two transactions wait for each other.
 */

const SCHEMA_LOCK = 0x63757731;
const CONVERSATION_LOCK = 0x63757732;
const HISTORY_LOCK = 0x63757733;
const TITLES_LOCK = 0x63757734;

/** Waits for other processes that migrate. */
export const lockSchema: Query = { text: `SELECT pg_advisory_xact_lock(${SCHEMA_LOCK}, 0)` };

/** Takes the lock of who removes history, if it is free; gives `taken`. */
export const tryLockHistory: Query = { text: `SELECT pg_try_advisory_xact_lock(${HISTORY_LOCK}, 0) AS taken` };

/** Takes the lock of who makes the index of titles, if it is free; gives `taken`. */
export const tryLockTitles: Query = { text: `SELECT pg_try_advisory_xact_lock(${TITLES_LOCK}, 0) AS taken` };

/**
 * Waits for other transactions that append to some conversations or prune them. Now and then two conversations share a
 * lock. A statement that is to see what those transactions did must be another one.
 *
 * @param conversationIds UUIDs
 */
export function lockConversations(conversationIds: Iterable<string>): Query {
	const keys = new Set([...conversationIds].map(lockKey));
	return {
		name: "lock_conversations",
		text: `SELECT pg_advisory_xact_lock(${CONVERSATION_LOCK}, key) FROM unnest($1::int[]) AS key`,
		values: [`{${[...keys].sort((a, b) => a - b).join()}}`],
	};
}

/** All 128 bits of an id in 32: those of UUIDs of one time may differ in a few places only. */
function lockKey(id: string): number {
	const words = id.replaceAll("-", "").match(/.{8}/g) ?? [];
	return words.reduce((key, word) => key ^ Number.parseInt(word, 16), 0);
}
