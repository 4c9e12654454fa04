import type { Connections } from "./connections.ts";
import type { Session } from "./transaction.ts";

/** A transaction without timeouts that keeps all services from writing. */
export interface LockedTables {
	/** @throws {DatabaseError} also when the connection broke, after which services may have written */
	readonly session: Session;
	/** Ends the transaction unless it has ended: commits it, or rolls it back when `commits` is false. */
	release(commits: boolean): Promise<void>;
}

/** Tables of which every append and every removal writes at least one. */
const WRITTEN_TABLES = "conversation_updates.positions, conversation_updates.removals";

/**
 * Locks the tables that appends and removals write, until they are released or the connection ends. Reads go on.
 *
 * @param lockTimeout `lock_timeout` in milliseconds, for writes in progress
 * @throws {DatabaseError}
 */
export async function lockTables(connections: Connections, lockTimeout: number): Promise<LockedTables> {
	const taken = Promise.withResolvers<Session>();
	const released = Promise.withResolvers<void>();
	let [isTaken, isReleased] = [false, false];
	const ended = connections.transaction(
		async (transaction) => {
			// This is a retry after the connection broke. Another transaction may have written in between.
			if (isTaken) throw new Error("the connection that locked the tables broke");
			await transaction.query(
				{ text: `SET LOCAL lock_timeout = ${lockTimeout}` },
				{ text: `LOCK TABLE ${WRITTEN_TABLES} IN SHARE ROW EXCLUSIVE MODE` },
			);
			isTaken = true;
			taken.resolve(transaction);
			await released.promise;
		},
		{ unlimited: true },
	);
	ended.catch(taken.reject);
	released.promise.catch(() => undefined);
	const session = await taken.promise;
	return {
		session,
		async release(commits) {
			if (isReleased) return;
			isReleased = true;
			if (commits) released.resolve();
			else released.reject(new RolledBack());
			await ended.catch((error: unknown) => {
				if (!(error instanceof RolledBack)) throw error;
			});
		},
	};
}

class RolledBack extends Error {}
