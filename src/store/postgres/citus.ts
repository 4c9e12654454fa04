import { ServiceError } from "../../errors.ts";
import { SCHEMA } from "../schema.ts";
import { allTables, type Table } from "../tables.ts";
import { type Row, text } from "../values.ts";
import { DatabaseError } from "./failures.ts";
import { lockConversations, type Query, type Session, START } from "./transaction.ts";

/** What is particular to Citus: where tables are, and which transactions all servers show. */

/** The table whose shards decide where those of all others are. */
const FIRST = `${SCHEMA.postgres}heads`;

/**
 * Tables of the coordinator of which each transaction writes one that writes tables by conversation. Citus commits in two
 * phases, so that all servers commit or none, only when it knows of a change on the coordinator.
 */
const MANAGED: readonly string[] = ["state", "removals", "views", "search_progress"];

/** Returns whether the database has the extension Citus. */
export async function isCitus(session: Session): Promise<boolean> {
	const [rows = []] = await session.query({ text: "SELECT 1 FROM pg_extension WHERE extname = 'citus'" });
	return rows.length > 0;
}

/** Returns whether the tables of the service are spread. */
export async function isDistributed(session: Session): Promise<boolean> {
	return (await isCitus(session)) && (await distributedTables(session)).size > 0;
}

/**
 * Refuses a setting with which a reader of the logs was seen to miss committed entries while a worker failed: more than one
 * connection to each worker (docs/citus.md).
 *
 * @throws ServiceError `unavailable` when the tables are spread and the database, the role or the server has that setting
 */
export async function requireOneConnection(session: Session): Promise<void> {
	if (!(await isDistributed(session))) return;
	const setting = "citus.max_adaptive_executor_pool_size";
	const [[row] = []] = await session.query({ text: "SELECT current_setting($1) AS size", values: [setting] });
	const size = text(row?.size);
	if (size === "1") return;
	const cause = new Error(
		`${setting} is ${size}, and must be 1: with more, reads can miss entries while a server of Citus fails; ` +
			`set it with ALTER SYSTEM or ALTER ROLE`,
	);
	throw new ServiceError("unavailable", "the store's database cannot be opened", { cause });
}

/**
 * Returns the tables of the service that are spread: those by conversation and the reference tables. The database has the
 * extension.
 */
async function distributedTables(session: Session): Promise<ReadonlySet<string>> {
	const [rows = []] = await session.query({
		text: `
			SELECT n.nspname || '.' || c.relname AS name FROM pg_dist_partition p
			JOIN pg_class c ON c.oid = p.logicalrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'conversation_updates'
		`,
	});
	return new Set(rows.map(({ name }) => text(name)));
}

/** Returns conversations by the server of Citus that has their rows. */
export async function byServer(session: Session, conversationIds: readonly string[]): Promise<string[][]> {
	const [rows = []] = await session.query({
		text: `
			SELECT array_agg(k.id::text) AS ids
			FROM (SELECT DISTINCT id, get_shard_id_for_distribution_column('${FIRST}', id) AS shard FROM unnest($1::uuid[]) AS id) k
			JOIN pg_dist_placement p ON p.shardid = k.shard GROUP BY p.groupid
		`,
		values: [conversationIds],
	});
	return rows.map(({ ids }) => (Array.isArray(ids) ? ids.map(text) : []));
}

/**
 * Spreads the tables over the workers of Citus, with their rows: those by conversation in shards that are together for
 * each conversation, the reference tables as copies. Tables of which that is true already stay as they are. Each table is
 * a transaction of its own, so an interrupted call can be repeated.
 *
 * @param transaction runs its argument in a transaction that has locked the schema
 */
export async function distribute(
	transaction: (work: (session: Session) => Promise<void>) => Promise<void>,
): Promise<void> {
	const isFirst = ({ name }: Table) => name === "heads";
	for (const table of allTables("postgres").toSorted((one, other) => Number(isFirst(other)) - Number(isFirst(one))))
		await transaction(async (session) => {
			const name = SCHEMA.postgres + table.name;
			if ((await distributedTables(session)).has(name)) return;
			if (table.spread === "conversation")
				await session.query({
					text: "SELECT create_distributed_table($1, $2, colocate_with => $3)",
					values: [name, conversationOf(table), name === FIRST ? "none" : FIRST],
				});
			else if (table.spread === "reference")
				await session.query({ text: "SELECT create_reference_table($1)", values: [name] });
			else if (MANAGED.includes(table.name))
				await session.query({ text: "SELECT citus_add_local_table_to_metadata($1)", values: [name] });
		});
}

/** Returns the column of a table's key that has the conversation. */
function conversationOf({ name, key, columns }: Table): string {
	const column = key.find((of) => columns[of] === "id");
	if (column === undefined) throw new Error(`the key of ${name} has no conversation`);
	return column;
}

/**
 * Citus commits in two phases: the workers prepare a transaction, the coordinator commits it, and then the workers do. When a
 * worker or the coordinator fails in between, the transaction is committed, but a worker shows it only when it is told again.
 * A transaction is settled when all workers show it. Who reads what was accepted, or decides by it, settles first.
 */

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
	const names = session.spread.unsettled(rows);
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
		const unknown = new Set(session.spread.unsettled(of));
		return (name: string) => unknown.has(name);
	};
	if (names.some(isIn(conversationIds === undefined ? left : here))) {
		const cause = new Error("a server has not committed what it has prepared");
		throw new DatabaseError("unavailable", PART_AWAY, cause, undefined, true);
	}
	const isLeft = isIn(left);
	for (const name of names) if (!isLeft(name)) session.spread.addSettled(name);
	return true;
}

/**
 * Locks conversations, and settles what was committed to them.
 *
 * @returns whether it settled something: then only later statements see all
 */
export async function lockSettled(session: Session, conversationIds: readonly string[]): Promise<boolean> {
	const lock = lockConversations(conversationIds);
	if (!session.spread.isKnownDistributed) {
		await session.query(lock);
		return false;
	}
	const [, rows = []] = await session.query(lock, committed);
	return await settle(session, rows, conversationIds);
}
