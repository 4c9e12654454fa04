import type { Connections, TransactionOptions } from "./connections.ts";
import type { Query, Session } from "./transaction.ts";

/** A transaction without timeouts that stays open until it is released. */
export interface HeldTransaction {
	/** @throws {DatabaseError} also when the connection broke, which ended the transaction */
	readonly session: Session;
	/** Ends the transaction unless it has ended: commits it, or rolls it back when `commits` is false. */
	release(commits: boolean): Promise<void>;
}

/**
 * Begins a transaction and runs its first queries.
 *
 * @throws {DatabaseError}
 */
export async function holdTransaction(
	connections: Connections,
	options: Pick<TransactionOptions, "snapshot">,
	...first: readonly Query[]
): Promise<HeldTransaction> {
	const begun = Promise.withResolvers<Session>();
	const released = Promise.withResolvers<void>();
	let [isBegun, isReleased] = [false, false];
	const ended = connections.transaction(
		async (transaction) => {
			// This is a retry after the connection broke. What the transaction locked or saw is lost.
			if (isBegun) throw new Error("the connection of the transaction broke");
			await transaction.query(...first);
			isBegun = true;
			begun.resolve(transaction);
			await released.promise;
		},
		{ ...options, unlimited: true },
	);
	ended.catch(begun.reject);
	released.promise.catch(() => undefined);
	const session = await begun.promise;
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
