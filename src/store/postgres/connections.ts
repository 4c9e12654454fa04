import type { ThreadLog } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "./dial.ts";
import { CommitUnknown, DatabaseError, databaseError } from "./failures.ts";
import { Listener } from "./listener.ts";
import { type Lease, lend, Primary } from "./primary.ts";
import { ClientTransaction, type Query, type Session, type Transaction } from "./transaction.ts";

/**
 * Longest time in milliseconds for which a transaction may wait for the service. Without a limit, what a replica has locked
 * would stay locked for hours after its machine failed.
 */
const IDLE_IN_TRANSACTION = 15_000;
/** Longest time of a statement without a limit, in milliseconds: 12 days. */
const UNLIMITED = 2 ** 30;

/**
 * What writes finds its rows by an index. The planner would read a table as a whole that it knows as empty, and the plan of
 * a prepared statement would stay while the table grows, until the server has analysed it.
 */
const BY_INDEX = [
	"SET LOCAL enable_seqscan = off",
	"SET LOCAL enable_hashjoin = off",
	"SET LOCAL enable_mergejoin = off",
].join("; ");

/**
 * The server would compile a statement of high cost each time, for a tenth of a second and more. Before PostgreSQL 18, the
 * one way to read a table that is turned off above counts as a cost of 10^10, as it does for the row of `positions`.
 */
const UNCOMPILED = "SET LOCAL jit = off";

/**
 * Without the warnings of the server nobody would learn that it stopped waiting for its standby: see `CommitUnknown`. The
 * role may have turned them off.
 */
const WITH_WARNINGS = "SET LOCAL client_min_messages = warning";

/** The limits of time that the role or the server may have set; not each release of PostgreSQL has all. */
const TIME_LIMITS = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"];

/** The statement that removes them, for the transaction or for the session. */
function withoutLimits(scope: "transaction" | "session"): string {
	const names = TIME_LIMITS.map((name) => `'${name}'`).join();
	return `SELECT set_config(name, '0', ${scope === "transaction"}) FROM pg_settings WHERE name IN (${names})`;
}

/** Transactions on the server that takes writes, and notifications from it. */
export interface Connections extends AsyncDisposable {
	/** Whether notifications are sent and listened for. */
	readonly notifies: boolean;
	/**
	 * Runs work in a transaction that only reads. Runs it again, once, when the connection broke.
	 *
	 * @throws {DatabaseError} or what work throws
	 */
	read<T>(work: (session: Session) => Promise<T>): Promise<T>;
	/**
	 * Runs work in a transaction, and commits if work has not. Runs it again, once, when the connection broke before COMMIT
	 * was sent, or when it lost against other transactions (SQLSTATE 40001, 40P01).
	 *
	 * @throws {CommitUnknown} when COMMIT was sent and the outcome is unknown
	 * @throws {DatabaseError} or what work throws, after the transaction was rolled back
	 */
	transaction<T>(work: (transaction: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
	/**
	 * Runs a statement outside of a transaction on a connection beside the pool. It has no limits of time, except for those
	 * that the role has set when the connection goes through a pooler.
	 *
	 * @throws {DatabaseError}
	 */
	alone(query: Query): Promise<void>;
	/**
	 * Tells a listener of each notification of a channel, and with undefined whenever it may have missed some: after each
	 * connection, and every second, so that what is announced is seen without notifications too.
	 *
	 * @param channel an identifier of lower-case letters, digits and `_`
	 */
	listen(channel: string, listener: (payload: string | undefined) => void): void;
}

export interface TransactionOptions {
	/** Statements and locks have no limit of time, on a connection beside the pool: for migrations. */
	readonly unlimited?: boolean;
}

/**
 * Connects to a database.
 *
 * @throws {ServiceError} `unavailable` when no host takes writes; its cause says what is wrong with each
 */
export async function openConnections(settings: PostgresSettings, log: ThreadLog): Promise<Connections> {
	const primary = await Primary.find(settings, log);
	const listener = new Listener(settings.notify ? primary : undefined, log);
	// Whether a connection is one session of the server: notifications are off for a pooler in transaction mode.
	const ownsSessions = settings.notify;
	// Local to the transaction: the sessions of a pooler in transaction mode are shared.
	const limited = [
		`SET LOCAL statement_timeout = ${settings.statementTimeout}`,
		`SET LOCAL lock_timeout = ${settings.lockTimeout}`,
		`SET LOCAL idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION}`,
		UNCOMPILED,
	].join("; ");

	async function dial(): Promise<Lease> {
		const client = await primary.dial(UNLIMITED);
		return lend(client, () => void client.end().catch(() => undefined));
	}

	return {
		notifies: settings.notify,
		read: (work) =>
			twice(async () => {
				const lease = await primary.lease();
				const transaction = new ClientTransaction(lease, `${BEGIN} READ ONLY; ${limited}`, ownsSessions);
				return run(lease, transaction, () => work(transaction));
			}),
		transaction: (work, { unlimited = false } = {}) =>
			twice(async () => {
				const lease = unlimited ? await dial() : await primary.lease();
				const local = unlimited
					? `${WITH_WARNINGS}; ${withoutLimits("transaction")}`
					: `${limited}; ${WITH_WARNINGS}; ${BY_INDEX}`;
				const transaction = new ClientTransaction(lease, `${BEGIN}; ${local}`, ownsSessions);
				return run(lease, transaction, async () => {
					const result = await work(transaction);
					await transaction.finish();
					return result;
				});
			}),
		async alone({ text, values = [] }) {
			const { client, release } = await dial();
			try {
				if (ownsSessions) await client.query(withoutLimits("session"));
				await client.query(text, [...values]);
			} catch (error) {
				throw databaseError(error);
			} finally {
				release(true);
			}
		},
		listen: (channel, listen) => listener.add(channel, listen),
		async [Symbol.asyncDispose]() {
			await listener[Symbol.asyncDispose]();
			await primary[Symbol.asyncDispose]();
		},
	};
}

const BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED";

/**
 * Runs the work of a transaction. If that left it open, it is rolled back, and then the connection given back; the outcome
 * of the work does not wait for that.
 */
async function run<T>(lease: Lease, transaction: ClientTransaction, work: () => Promise<T>): Promise<T> {
	let usable = true;
	try {
		return await work();
	} catch (error) {
		if (error instanceof DatabaseError && error.connectionLost) usable = false;
		throw error;
	} finally {
		const release = () => lease.release(usable && lease.client.getTransactionStatus() === "I");
		if (usable) transaction.abandon().then(release);
		else release();
	}
}

/** Calls what may be called again once more when it failed at the database in a way that passes. */
async function twice<T>(call: () => Promise<T>): Promise<T> {
	try {
		return await call();
	} catch (error) {
		const again = error instanceof DatabaseError && !(error instanceof CommitUnknown) && error.mayRunAgain;
		if (!again) throw error;
		return await call();
	}
}
