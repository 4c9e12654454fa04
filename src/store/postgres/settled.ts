import { LRUCache } from "lru-cache";
import { type Row, text } from "../values.ts";
import { DatabaseError } from "./failures.ts";
import { type KnownTransactions, lockConversations, type Query, type Session } from "./transaction.ts";

/**
 * Citus commits in two phases: the workers prepare a transaction, the coordinator commits it, and then the workers do. When a
 * worker or the coordinator fails in between, the transaction is committed, but a worker shows it only when it is told again.
 * A transaction is settled when all workers show it. Who reads what was accepted, or decides by it, settles first.
 */

/** Maximum number of transactions that are known to be settled. Citus forgets each one in seconds. */
const MAX_KNOWN = 10_000;

/** Names of transactions that this process knows to be settled, in the rows of {@link committed}. */
export class SettledTransactions implements KnownTransactions {
	readonly #names = new LRUCache<string, true>({ max: MAX_KNOWN });

	add(name: string): void {
		this.#names.set(name, true);
	}

	unknown(rows: readonly Row[]): string[] {
		return rows.map(({ name }) => text(name)).filter((name) => !this.#names.has(name));
	}
}

/** The start of the coordinator, because it numbers transactions from one on after each start. */
const START = "extract(epoch FROM pg_postmaster_start_time())";

/** Returns the name of the transaction in which it is sent, if that changes rows of workers. */
export const ownName: Query = {
	name: "transaction_name",
	text: `SELECT concat_ws('_', ${START}, process_id, transaction_number) AS name FROM get_current_transaction_id()`,
};

/**
 * Returns the names of the transactions which the coordinator has committed and which may not be settled. One that still waits
 * for its workers is left out: {@link awaitCommit} and the locks on conversations wait for these.
 */
export const committed: Query = { name: "committed", text: committedWhere("true") };

/** The same, of servers that have rows of some conversations. */
function committedOn(conversationIds: readonly string[]): Query {
	const placements = `
		SELECT p.groupid FROM unnest($1::uuid[]) AS id
		JOIN pg_dist_placement p ON p.shardid = get_shard_id_for_distribution_column('conversation_updates.heads', id)
	`;
	return { name: "committed_on", text: committedWhere(`d.groupid IN (${placements})`), values: [conversationIds] };
}

function committedWhere(condition: string): string {
	const [process, number] = ["split_part(d.gid, '_', 3)", "split_part(d.gid, '_', 4)"];
	return `
		SELECT DISTINCT concat_ws('_', ${START}, ${process}, ${number}) AS name FROM pg_dist_transaction d
		WHERE ${condition} AND NOT EXISTS (
			SELECT 1 FROM get_all_active_transactions() a
			WHERE a.process_id::text = ${process} AND a.transaction_number::text = ${number}
		)
	`;
}

/** The error of a transaction with a snapshot that saw what is not settled. `Connections.read` settles that. */
export class Unsettled extends DatabaseError {
	/** The conversations that it reads; undefined for all. */
	readonly conversationIds: readonly string[] | undefined;

	constructor(conversationIds: readonly string[] | undefined) {
		const cause = new Error("a server may not have committed what it has prepared");
		super("unavailable", PART_AWAY, cause, undefined, true);
		this.conversationIds = conversationIds;
	}
}

const PART_AWAY = "a part of the database cannot be reached";

/**
 * Settles transactions, unless they are known to be.
 *
 * @param rows those of {@link committed}
 * @param conversationIds settles only what may concern these; left out for all
 * @returns whether it settled any
 * @throws {DatabaseError} `unavailable` when a server cannot be reached that has not committed one of them
 */
export async function settle(
	session: Session,
	rows: readonly Row[],
	conversationIds?: readonly string[],
): Promise<boolean> {
	const names = session.known.unknown(rows);
	if (names.length === 0) return false;
	// What other processes settle meanwhile would stay unsettled in a snapshot.
	if (session.hasSnapshot) throw new Unsettled(conversationIds);
	// Citus locks what it settles for the rest of the transaction, but not beyond the savepoint.
	const recover = () =>
		session.query(
			{ text: "SAVEPOINT settling" },
			{ text: "SELECT recover_prepared_transactions()" },
			committed,
			...(conversationIds === undefined ? [] : [committedOn(conversationIds)]),
			{ text: "ROLLBACK TO SAVEPOINT settling" },
		);
	// A connection of Citus that turns out to be broken ends the first call. The second one leaves out its server.
	const [, , left = [], here = []] = await recover().catch((error: unknown) => {
		if (error instanceof DatabaseError && error.isPartAway) return recover();
		throw error;
	});
	const isIn = (of: readonly Row[]) => {
		const unknown = new Set(session.known.unknown(of));
		return (name: string) => unknown.has(name);
	};
	if (names.some(isIn(conversationIds === undefined ? left : here))) {
		const cause = new Error("a server has not committed what it has prepared");
		throw new DatabaseError("unavailable", PART_AWAY, cause, undefined, true);
	}
	const isLeft = isIn(left);
	for (const name of names) if (!isLeft(name)) session.known.add(name);
	return true;
}

/**
 * Locks conversations, and settles what was committed to them.
 *
 * @returns whether it settled something: then only later statements see all
 */
export async function lockSettled(session: Session, conversationIds: readonly string[]): Promise<boolean> {
	const lock = lockConversations(conversationIds);
	if (!session.isKnownDistributed) {
		await session.query(lock);
		return false;
	}
	const [, rows = []] = await session.query(lock, committed);
	return await settle(session, rows, conversationIds);
}
