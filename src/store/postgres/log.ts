import type { LogTable, NewestSequences, RangeQuery, SequenceRange } from "../sequence-log.ts";
import { bigint, bindable, nullable } from "../values.ts";
import { awaitAppends } from "./locks.ts";
import { isConversationId } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Query, Session, Transaction } from "./transaction.ts";

/** Channel on which processes notify each other of new entries. */
export const CHANNEL = "conversation_updates";

/** Returns the query that notifies other processes, if they are to be notified. */
export function notifyQueries(notifies: boolean, payload: string): Query[] {
	return notifies ? [{ name: "notify", text: `SELECT pg_notify('${CHANNEL}', $1)`, values: [payload] }] : [];
}

const NEWEST = { updates: "newest_update", events: "newest_event" } as const;

/** Returns which sequences a log has, and how far it was pruned. */
export async function readRange(
	session: Session,
	log: LogTable,
	{ conversationId, owner, afterRemoval }: RangeQuery,
): Promise<SequenceRange> {
	const sql = new Sql();
	const ofLog = `log = ${sql.value(log)}`;
	let through = "r.pruned_through";
	if (conversationId !== undefined || owner !== undefined || afterRemoval !== undefined) {
		const tests = [ofLog];
		if (afterRemoval !== undefined) tests.push(`removal > ${sql.value(bindable(afterRemoval))}`);
		if (conversationId !== undefined)
			tests.push(`conversation_id = ${sql.value(isConversationId(conversationId) ? conversationId : null)}`);
		if (owner !== undefined) tests.push(`owner = ${sql.value(encodeText(owner))}`);
		through = `(SELECT max(through) FROM conversation_updates.pruned WHERE ${tests.join(" AND ")})`;
	}
	const [[row] = []] = await session.query(
		sql.query(`
			SELECT p.${NEWEST[log]} AS newest, r.last_removal, ${through} AS through
			FROM conversation_updates.positions p, conversation_updates.removals r WHERE r.${ofLog}
		`),
	);
	return {
		newest: bigint(row?.newest),
		prunedThrough: nullable(bigint, row?.through) ?? 0n,
		lastRemoval: bigint(row?.last_removal),
	};
}

/** Returns the time that `Store.saveRetentionTime` stored last; undefined when it was never called. */
export async function readRetentionTime(session: Session): Promise<bigint | undefined> {
	const [[row] = []] = await session.query({ text: "SELECT clock FROM conversation_updates.retention" });
	return nullable(bigint, row?.clock ?? null);
}

/** Returns the statement that stores the time of retention. The last write of several processes counts. */
export function saveRetentionTime(time: bigint | undefined): Query {
	return { text: "UPDATE conversation_updates.retention SET clock = $1", values: [time ?? null] };
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
