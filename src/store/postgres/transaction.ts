import { LRUCache } from "lru-cache";
import type pg from "pg";
import type { ServiceError } from "../../errors.ts";
import { type Row, text } from "../values.ts";
import { CommitUnknown, commitError, DatabaseError, databaseError } from "./failures.ts";
import { whyBroken } from "./primary.ts";

/** A statement with the values of its parameters, $1 and so on. */
export interface Query {
	/**
	 * Name under which the connection keeps the statement prepared, if it can: at most 63 characters. Statements with the
	 * same name must have the same text. The plan must not depend on the values. The statement must not return `*`, because a
	 * migration may add columns.
	 */
	readonly name?: string;
	readonly text: string;
	readonly values?: readonly unknown[];
}

/** A connection within a transaction. */
export type Session = Pick<ClientTransaction, "query" | "spread" | "hasSnapshot">;

/** A transaction that writes. */
export type Transaction = Session & Pick<ClientTransaction, "commit">;

/** Maximum number of transactions that are known to be settled. Citus forgets each one in seconds. */
const MAX_KNOWN = 10_000;

/** What the transactions of a process know of Citus. */
export class Spread {
	readonly #ask: (session: Session) => Promise<boolean>;
	#isDistributed: boolean | undefined;
	readonly #settled = new LRUCache<string, true>({ max: MAX_KNOWN });

	/** @param ask returns whether the tables of the service are spread over servers */
	constructor(ask: (session: Session) => Promise<boolean>) {
		this.#ask = ask;
	}

	/** Returns whether the tables are spread. They must have been migrated. */
	async isDistributed(session: Session): Promise<boolean> {
		this.#isDistributed ??= await this.#ask(session);
		return this.#isDistributed;
	}

	/** Whether the tables are spread, as far as it was asked for. */
	get isKnownDistributed(): boolean {
		return this.#isDistributed === true;
	}

	/** Says that all servers have committed the transaction of a name: see citus.ts. */
	addSettled(name: string): void {
		this.#settled.set(name, true);
	}

	/** Returns the names in rows of transactions that are not known to be settled. */
	unsettled(rows: readonly Row[]): string[] {
		return rows.map(({ name }) => text(name)).filter((name) => !this.#settled.has(name));
	}
}

/** SQLSTATE of a warning without a specific class, such as when the server stops waiting for its synchronous standby. */
const WARNING = "01000";

/** A transaction on one connection. It begins with its first queries. */
export class ClientTransaction {
	readonly #client: pg.ClientBase;
	readonly #begin: string;
	readonly #prepares: boolean;
	/** What the process knows of Citus. */
	readonly spread: Spread;
	/** Whether all statements see the database as it was at the first one. */
	readonly hasSnapshot: boolean;
	#state: "unbegun" | "open" | "over" = "unbegun";
	/** The failure after which the transaction can only be rolled back. */
	#failure: ServiceError | undefined;

	/**
	 * @param begin statements that begin the transaction
	 * @param prepares whether the session stays the same, so that named statements can be kept prepared
	 */
	constructor(client: pg.ClientBase, begin: string, prepares: boolean, spread: Spread, hasSnapshot: boolean) {
		this.#client = client;
		this.#begin = begin;
		this.#prepares = prepares;
		this.spread = spread;
		this.hasSnapshot = hasSnapshot;
	}

	/**
	 * Sends queries together, in one round trip.
	 *
	 * @returns their rows, in order: int8 as bigint, int4 as number, bytea as Buffer, text as string
	 * @throws {DatabaseError} of the first query that failed; the transaction can then only be rolled back
	 */
	async query(...queries: readonly Query[]): Promise<Row[][]> {
		const { begin, results } = this.#send(queries);
		const [begun, ...settled] = await Promise.allSettled([begin, ...results]);
		const failed = [begun, ...settled].find(isRejected);
		if (failed !== undefined) {
			this.#failure ??= databaseError(failed.reason);
			throw databaseError(failed.reason);
		}
		return settled.map(rowsOf);
	}

	/**
	 * Sends queries and COMMIT together, so that their locks are not held for a further round trip. It is the last call in a
	 * transaction.
	 *
	 * @returns the rows of the queries, once the transaction is committed
	 * @throws {DatabaseError} when the transaction was rolled back
	 * @throws {CommitUnknown} when the outcome is unknown
	 */
	async commit(...queries: readonly Query[]): Promise<Row[][]> {
		let warning: Error | undefined;
		const onNotice = ({ code, message }: { code?: string | undefined; message?: string | undefined }) => {
			if (code === WARNING) warning = new Error(message);
		};
		const { begin, results } = this.#send(this.spread.isKnownDistributed ? [...queries, ownName, lockCommit] : queries);
		this.#client.on("notice", onNotice);
		this.#state = "over";
		const [begun, committed, ...settled] = await Promise.allSettled([begin, this.#client.query("COMMIT"), ...results]);
		this.#client.off("notice", onNotice);
		const failed = settled.find(isRejected);
		if (isRejected(begun)) throw new CommitUnknown(databaseError(begun.reason));
		if (isRejected(committed)) throw rolledBack(failed?.reason) ?? commitError(committed.reason);
		if (committed.value.command !== "COMMIT")
			throw this.#failure ?? databaseError(failed?.reason ?? new Error("the transaction was rolled back"));
		if (failed !== undefined) throw new CommitUnknown(databaseError(failed.reason));
		// With Citus also when a worker has not committed.
		if (warning !== undefined) throw new CommitUnknown(warning);
		const rows = settled.map(rowsOf);
		for (const { name } of rows.slice(queries.length).flat())
			if (name !== undefined) this.spread.addSettled(text(name));
		return rows.slice(0, queries.length);
	}

	/** Commits, unless the transaction has ended or has not begun. */
	async finish(): Promise<void> {
		if (this.#state === "open") await this.commit();
	}

	/** Rolls back if the transaction is open. Never rejects. */
	async abandon(): Promise<void> {
		if (this.#state === "open") await this.#client.query("ROLLBACK").catch(() => undefined);
		this.#state = "over";
	}

	#send(queries: readonly Query[]) {
		if (this.#state === "over") throw new Error("the transaction is over");
		// Sends nothing over a connection that is known to be broken, so that its failure leaves no commit in doubt.
		const failure = whyBroken(this.#client);
		if (failure !== undefined) throw databaseError(failure);
		const begin = this.#state === "unbegun" ? this.#client.query(this.#begin) : undefined;
		this.#state = "open";
		const results = queries.map(({ name, text, values = [] }) =>
			this.#client.query<Row>({ ...(this.#prepares && { name }), text, values: [...values] }),
		);
		return { begin, results };
	}
}

function isRejected(result: PromiseSettledResult<unknown>): result is PromiseRejectedResult {
	return result.status === "rejected";
}

function rowsOf(result: PromiseSettledResult<pg.QueryResult<Row> | undefined>): Row[] {
	return isRejected(result) ? [] : (result.value?.rows ?? []);
}

/**
 * Returns the error of a failed statement, after which the server can only roll back; undefined when no statement failed
 * or the connection broke.
 */
function rolledBack(reason: unknown): DatabaseError | undefined {
	if (reason === undefined) return undefined;
	const error = databaseError(reason);
	return error instanceof DatabaseError && error.sqlState !== undefined && !error.connectionLost ? error : undefined;
}

/**
 * Advisory locks, which the server releases when the transaction ends. The first key separates them from the locks of
 * other programs; the second key identifies what is locked.
 *
 * A transaction takes the locks of all its conversations together, in the order of their keys, before it changes anything.
 * It locks the row of `state` or `removals` last, and after that only {@link lockCommit}. So these transactions cannot
 * deadlock.
 */

const SCHEMA_LOCK = 0x63757731;
const CONVERSATION_LOCK = 0x63757732;
const COMMIT_LOCK = 0x63757735;

/** Waits for other processes that migrate the schema. */
export const lockSchema: Query = { text: `SELECT pg_advisory_xact_lock(${SCHEMA_LOCK}, 0)` };

/**
 * Lets commits follow one another. With Citus, it is the last statement of a transaction: a commit is visible on the
 * coordinator before it is on the workers, and the lock is held until all workers have answered.
 */
const lockCommit: Query = { name: "lock_commit", text: `SELECT pg_advisory_xact_lock(${COMMIT_LOCK}, 0)` };

/** The start of the coordinator, because it numbers transactions from one on after each start. */
export const START = "extract(epoch FROM pg_postmaster_start_time())";

/** Returns the name of the transaction in which it is sent, if that changes rows of workers of Citus. */
const ownName: Query = {
	name: "transaction_name",
	text: `SELECT concat_ws('_', ${START}, process_id, transaction_number) AS name FROM get_current_transaction_id()`,
};

/** Waits for the transaction that has {@link lockCommit}, and holds nothing up. */
export const awaitCommit: Query = {
	name: "await_commit",
	text: `SELECT pg_advisory_lock_shared(${COMMIT_LOCK}, 0), pg_advisory_unlock_shared(${COMMIT_LOCK}, 0)`,
};

/**
 * Returns the query that waits for other transactions that append to some conversations or prune them, and locks these
 * conversations. Two conversations may have the same lock by chance. Only a later statement sees what the other
 * transactions changed; with Citus see `lockSettled`.
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
