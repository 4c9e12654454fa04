import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { ThreadLogger } from "../../threads/worker-thread.ts";
import type { PostgresSettings } from "../database.ts";
import { committed, isDistributed, settle, Unsettled } from "./citus.ts";
import { CommitUnknown, DatabaseError } from "./failures.ts";
import { findPrimary, type Lease, type Primary, requireWrites } from "./primary.ts";
import { ClientTransaction, type Session, Spread, type Transaction } from "./transaction.ts";

/**
 * `idle_in_transaction_session_timeout` of transactions, in milliseconds. Without it, a replica whose machine failed would
 * hold its locks for hours.
 */
const IDLE_IN_TRANSACTION_TIMEOUT = 5_000;
/** Maximum number of times that a read settles what it saw. */
const MAX_SETTLED = 10;

/**
 * Makes transactions that write find rows by an index. The planner prefers a sequential scan for a table that it takes for
 * empty. A prepared statement would keep that plan while the table grows, until the server has analysed the table.
 */
const PREFER_INDEXES = [
	"SET LOCAL enable_seqscan = off",
	"SET LOCAL enable_hashjoin = off",
	"SET LOCAL enable_mergejoin = off",
].join("; ");

/**
 * Turns off just-in-time compilation, which the server would apply to each execution of an expensive statement, for a
 * tenth of a second and more. Before PostgreSQL 18, a disabled scan adds 10^10 to the cost. The row of `state` is read
 * by such a scan.
 */
const WITHOUT_JIT = "jit = off";

/**
 * Makes the server send warnings, which the role may have turned off. Only a warning shows that the server stopped waiting
 * for its standby: see `CommitUnknown`.
 */
const WITH_WARNINGS = "client_min_messages = warning";

/** Timeout parameters that the role or the server may have set. Not every release of PostgreSQL has all of them. */
const TIMEOUTS = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"];

/** The statement that turns these timeouts off for the transaction. */
const WITHOUT_TIMEOUTS = `SELECT set_config(name, '0', true) FROM pg_settings
	WHERE name IN (${TIMEOUTS.map((name) => `'${name}'`).join()})`;

export interface TransactionOptions {
	/** Turns off timeouts, and uses a connection outside of the pool: for migrations, exports and imports. */
	readonly unlimited?: boolean;
	/** Makes the transaction read-only, and lets all its statements see the database as it was at the first one. */
	readonly snapshot?: boolean;
}

/** Transactions on the primary (the server that accepts writes), and notifications from it. */
export type Connections = Awaited<ReturnType<typeof openConnections>>;

/**
 * Connects to a database.
 *
 * @throws {ServiceError} `unavailable` when no host accepts writes; its cause names the failure of each host
 */
export async function openConnections(settings: PostgresSettings, log: ThreadLogger) {
	// Whether each connection keeps one session of the server. Behind a pooler in transaction mode it does not, and
	// notifications are off.
	const keepsSession = settings.notify;
	const limits = [
		`statement_timeout = ${settings.statementTimeout}`,
		`lock_timeout = ${settings.lockTimeout}`,
		`idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_TIMEOUT}`,
		WITHOUT_JIT,
		WITH_WARNINGS,
	];
	const set = (scope: "SESSION" | "LOCAL") => limits.map((setting) => `SET ${scope} ${setting}`).join("; ");
	const primary = await findPrimary(settings, log, keepsSession ? set("SESSION") : "");
	const limited = keepsSession ? "" : `; ${set("LOCAL")}`;
	const spread = new Spread(isDistributed);
	const closing = new AbortController();
	let listening: Promise<void> | undefined;

	/** Runs the work of a transaction that begins with some statements, and rolls back what it has not committed. */
	function run<T>(
		begin: string,
		{ unlimited, snapshot = false }: TransactionOptions,
		work: (transaction: ClientTransaction) => Promise<T>,
	): Promise<T> {
		return withRetry(async () => {
			const { client, release } = await primary.lease(unlimited);
			const transaction = new ClientTransaction(client, begin, keepsSession, spread, snapshot);
			let usable = true;
			try {
				return await work(transaction);
			} catch (error) {
				if (error instanceof DatabaseError && error.connectionLost) usable = false;
				throw error;
			} finally {
				const end = () => release(usable && client.getTransactionStatus() === "I");
				// The result does not wait for the rollback.
				if (usable) transaction.abandon().then(end);
				else end();
			}
		});
	}

	const settleNow = (conversationIds?: readonly string[]) =>
		run(`${BEGIN} READ ONLY${limited}`, {}, async (session) => {
			if (!(await spread.isDistributed(session))) return;
			const [rows = []] = await session.query(committed);
			await settle(session, rows, conversationIds);
		});

	return {
		/** Whether notifications are sent and listened for. */
		notifies: settings.notify,
		/**
		 * Lets all servers of Citus commit what the coordinator has committed.
		 *
		 * @param conversationIds lets only those servers that have rows of these; left out for all
		 * @throws {DatabaseError} `unavailable` when one of them cannot be reached
		 */
		settle: settleNow,
		/**
		 * Runs `work` in a read-only transaction, whose statements all see the database as it was at the first one. Retries it as
		 * `transaction` does, and with Citus when it saw what was not settled.
		 *
		 * @throws {DatabaseError} or the error that `work` throws
		 */
		async read<T>(work: (session: Session) => Promise<T>): Promise<T> {
			for (let n = 0; ; n++)
				try {
					return await run(`${BEGIN_SNAPSHOT}${limited}`, { snapshot: true }, work);
				} catch (error) {
					// Other replicas may have committed since then.
					if (!(error instanceof Unsettled) || n === MAX_SETTLED) throw error;
					await settleNow(error.conversationIds);
				}
		},
		/**
		 * Runs `work` in a transaction, and commits unless `work` has done so. Retries once when the connection broke before
		 * COMMIT was sent, or after a serialization failure or a deadlock (SQLSTATE 40001, 40P01).
		 *
		 * @throws {CommitUnknown} when COMMIT was sent and its outcome is unknown
		 * @throws {DatabaseError} or the error that `work` throws, after the transaction was rolled back
		 */
		transaction<T>(work: (transaction: Transaction) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
			const local = options.unlimited
				? `; SET LOCAL ${WITH_WARNINGS}; ${WITHOUT_TIMEOUTS}`
				: `${limited}; ${PREFER_INDEXES}`;
			return run(`${options.snapshot ? BEGIN_SNAPSHOT : BEGIN}${local}`, options, async (transaction) => {
				const result = await work(transaction);
				await transaction.finish();
				return result;
			});
		},
		/**
		 * Calls the listener of this process with the payload of each notification of {@link CHANNEL}. Calls it with undefined when
		 * notifications may have been missed: after each connection, and every second. So it works without notifications too.
		 */
		listen(listener: Listener): void {
			const poll = setInterval(() => listener(), POLL_INTERVAL).unref();
			closing.signal.addEventListener("abort", () => clearInterval(poll));
			if (settings.notify) listening = listen(primary, listener, closing.signal);
		},
		async [Symbol.asyncDispose](): Promise<void> {
			closing.abort();
			await listening;
			await primary[Symbol.asyncDispose]();
		},
	};
}

const BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED";
const BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/** Calls a function, and once more if it failed with a database error that a retry may avoid. */
async function withRetry<T>(call: () => Promise<T>): Promise<T> {
	try {
		return await call();
	} catch (error) {
		const mayRetry = error instanceof DatabaseError && !(error instanceof CommitUnknown) && error.isRetryable;
		if (!mayRetry) throw error;
		return await call();
	}
}

/** Channel on which processes notify each other of new entries. */
export const CHANNEL = "conversation_updates";

type Listener = (payload?: string) => void;

/** Milliseconds between two calls of the listener without a notification. */
const POLL_INTERVAL = 1_000;
/** Milliseconds between two attempts to connect. */
const RECONNECT_DELAY = 250;
/** Milliseconds between two checks that the server responds and accepts writes. */
const CHECK_INTERVAL = 5_000;

/**
 * Passes on notifications until the signal aborts, over a connection of its own that is renewed when it breaks. Never rejects.
 */
async function listen(primary: Primary, listener: Listener, signal: AbortSignal): Promise<void> {
	while (!signal.aborted) {
		// A failed attempt makes the next one look for the primary, which logs the reasons.
		const lease = await primary.lease(true).catch(() => undefined);
		if (lease !== undefined) await passOn(lease, listener, signal).catch(() => lease.release(false));
		await delay(RECONNECT_DELAY, undefined, { signal }).catch(() => undefined);
	}
}

/** Rejects when the connection breaks, when the server does not respond or no longer accepts writes, and at the signal. */
async function passOn({ client }: Lease, listener: Listener, signal: AbortSignal): Promise<void> {
	client.on("notification", ({ payload }) => listener(payload ?? ""));
	const check = async () => {
		const query = { text: `LISTEN ${CHANNEL}`, query_timeout: CHECK_INTERVAL };
		await client.query(query);
		listener();
		for (;;) {
			await delay(CHECK_INTERVAL, undefined, { signal, ref: false });
			await requireWrites(client, CHECK_INTERVAL);
		}
	};
	await Promise.race([once(client, "end", { signal }).then(() => Promise.reject(new Error("ended"))), check()]);
}
