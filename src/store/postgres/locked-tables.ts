import type { Connections } from "./connections.ts";
import type { Session } from "./transaction.ts";

/** A transaction that keeps every service from writing, without limits of time. */
export interface LockedTables {
	/** @throws {DatabaseError} also when the connection broke, so that the tables were written meanwhile perhaps */
	readonly session: Session;
	/** Ends the transaction, if that was not done: commits, or rolls back when `commits` is false. */
	release(commits: boolean): Promise<void>;
}

/** Every append and every removal writes one of these tables. */
const WRITTEN = "conversation_updates.positions, conversation_updates.removals";

/**
 * Takes the tables that every append and every removal writes, until they are released or the connection ends. Reads go on.
 *
 * @param lockTimeout longest time to wait for what is written at the moment, in milliseconds
 * @throws {DatabaseError}
 */
export async function lockTables(connections: Connections, lockTimeout: number): Promise<LockedTables> {
	const taken = Promise.withResolvers<Session>();
	const released = Promise.withResolvers<void>();
	let [isTaken, isReleased] = [false, false];
	const ended = connections.transaction(
		async (transaction) => {
			// A transaction that lost its connection runs again, but another one may have written since.
			if (isTaken) throw new Error("the connection that kept others from writing broke");
			await transaction.query(
				{ text: `SET LOCAL lock_timeout = ${lockTimeout}` },
				{ text: `LOCK TABLE ${WRITTEN} IN SHARE ROW EXCLUSIVE MODE` },
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
