import type { Connections } from "./connections.ts";
import type { Query } from "./transaction.ts";

/**
 * Advisory locks, which the server releases when the transaction ends. The first key separates them from the locks of
 * other programs; the second key identifies what is locked.
 *
 * A transaction takes the locks of all its conversations together, in the order of their keys, before it changes anything.
 * It locks the row of `positions` or `removals` last. So these transactions cannot deadlock.
 */

const SCHEMA_LOCK = 0x63757731;
const CONVERSATION_LOCK = 0x63757732;
const HISTORY_LOCK = 0x63757733;
const TITLES_LOCK = 0x63757734;
const LOGS_LOCK = 0x63757735;

/** Waits for other processes that migrate the schema. */
export const lockSchema: Query = { text: `SELECT pg_advisory_xact_lock(${SCHEMA_LOCK}, 0)` };

/** Takes the lock for removing history if it is free. Returns `taken`. */
export const tryLockHistory: Query = { text: `SELECT pg_try_advisory_xact_lock(${HISTORY_LOCK}, 0) AS taken` };

/** Takes the lock for creating the index of titles if it is free. Returns `taken`. */
export const tryLockTitles: Query = { text: `SELECT pg_try_advisory_xact_lock(${TITLES_LOCK}, 0) AS taken` };

/**
 * Keeps other transactions from appending to the logs. With Citus, a transaction takes it before it takes its sequences. A
 * commit is visible on the coordinator before it is on the workers, and the lock is held until it is on all of them.
 */
export const lockLogs: Query = { text: `SELECT pg_advisory_xact_lock(${LOGS_LOCK}, 0)` };

/** Waits for the transaction that has {@link lockLogs}, and holds nothing up. */
export const awaitAppends: Query = {
	text: `SELECT pg_advisory_lock_shared(${LOGS_LOCK}, 0), pg_advisory_unlock_shared(${LOGS_LOCK}, 0)`,
};

/**
 * Returns the query that waits for other transactions that append to some conversations or prune them, and locks these
 * conversations. Two conversations may have the same lock by chance. Only a later statement sees what the other
 * transactions changed.
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

/** Folds all 128 bits of an id into 32, because UUIDs of about the same time may differ in few places. */
function lockKey(id: string): number {
	const words = id.replaceAll("-", "").match(/.{8}/g) ?? [];
	return words.reduce((key, word) => key ^ Number.parseInt(word, 16), 0);
}

/** Claims some work in a transaction of its own: see `Store.claim`. */
export async function claim(
	connections: Connections,
	name: string,
	holder: string,
	now: bigint,
	until: bigint,
): Promise<boolean> {
	return await connections.transaction(async (transaction) => {
		const [rows = []] = await transaction.query({
			text: `
				INSERT INTO conversation_updates.claims AS c VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
				WHERE c.holder = excluded.holder OR c.until <= $4
				RETURNING 1 AS taken
			`,
			values: [name, holder, until, now],
		});
		await transaction.commit();
		return rows.length > 0;
	});
}
