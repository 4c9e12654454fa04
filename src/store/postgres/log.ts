import type { NewestSequences } from "../sequence-log.ts";
import { bigint } from "../values.ts";
import { awaitAppends } from "./locks.ts";
import type { Query, Session, Transaction } from "./transaction.ts";

/** Channel on which processes notify each other of new entries. */
export const CHANNEL = "conversation_updates";

/** Returns the query that notifies other processes, if they are to be notified. */
export function notifyQueries(notifies: boolean, payload: string): Query[] {
	return notifies ? [{ name: "notify", text: `SELECT pg_notify('${CHANNEL}', $1)`, values: [payload] }] : [];
}

/**
 * Returns the sequences up to which later statements of the transaction read all entries of the logs. Undefined without
 * Citus: there the order of sequences is the order in which entries become visible. With Citus, statements read each server
 * at another moment.
 */
export async function settledSequences(session: Session): Promise<NewestSequences | undefined> {
	if (!(await session.isDistributed())) return undefined;
	// In this order: the appends for which it waits have sequences up to these, or later ones.
	const positions = await readPositions(session);
	await session.query(awaitAppends);
	return positions;
}

/** The newest sequences of both logs, and how often stored entries were given other owners or erased. */
export interface Positions extends NewestSequences {
	readonly rewrites: bigint;
}

export async function readPositions(session: Session): Promise<Positions> {
	const [[row] = []] = await session.query({
		name: "positions",
		text: "SELECT newest_update, newest_event, rewrites FROM conversation_updates.positions",
	});
	return {
		updates: bigint(row?.newest_update),
		events: bigint(row?.newest_event),
		rewrites: bigint(row?.rewrites),
	};
}

/**
 * Commits, and lets other processes know that stored entries have other owners. It locks the row of `positions`, so it is the
 * last statement.
 *
 * @returns how often stored entries were rewritten
 */
export async function commitRewrite(transaction: Transaction, notifies: boolean): Promise<bigint> {
	const [[row] = []] = await transaction.commit(
		{ text: "UPDATE conversation_updates.positions SET rewrites = rewrites + 1 RETURNING rewrites" },
		...notifyQueries(notifies, "rewritten"),
	);
	return bigint(row?.rewrites);
}
