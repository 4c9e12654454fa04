import type { OwnerAssignment, Unassigned } from "../owners.ts";
import { bigint, text } from "../values.ts";
import { assignUsage } from "../views/usage.ts";
import type { Connections } from "./connections.ts";
import { lockConversations } from "./locks.ts";
import { isConversationId } from "./rows.ts";
import { postgresSession } from "./session.ts";
import { Sql } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";
import { markChangedQuery } from "./views.ts";
import { CHANNEL } from "./written-group.ts";

/** Tables with a row for each conversation. A conversation can have a row in each of them. */
const CONVERSATIONS = [
	{ table: "heads", id: "conversation_id", hasNone: "owner IS NULL" },
	{ table: "activities", id: "conversation_id", hasNone: "owner IS NULL" },
	{ table: "usage_conversations", id: "id", hasNone: "owner = '' AND ledger <> ''" },
];
/** Tables whose rows get the owner of the conversation as it is. */
const OWNED = ["activities", "updates", "events", "pruned", "heads"];

/** Result of {@link assignOwner}. */
export interface Assigned {
	/** Number of changed conversations. */
	readonly assigned: number;
	/** How often entries of the database were rewritten; 0 when none was now. */
	readonly rewrites: bigint;
}

/** Gives conversations an owner: see `Store.assignOwner`. */
export async function assignOwner(connections: Connections, { owner, of, limit }: OwnerAssignment): Promise<Assigned> {
	const stored = encodeText(owner);
	return await connections.transaction(async (transaction) => {
		const candidates = await transaction.query(selection(stored, of, limit, undefined));
		const ids = [...new Set(candidates.flat().map((row) => text(row.conversation_id)))];
		if (ids.length === 0) return { assigned: 0, rewrites: 0n };
		// Read again under the locks, because another process may have changed them.
		const [, rows = []] = await transaction.query(lockConversations(ids), selection(stored, of, limit, ids));
		const chosen = rows.map((row) => text(row.conversation_id));
		await assignUsage(postgresSession(transaction), chosen, owner);
		const results = await transaction.commit(
			...OWNED.map((table) => ({
				text: `UPDATE conversation_updates.${table} SET owner = $1 WHERE conversation_id = ANY ($2::uuid[])`,
				values: [stored, chosen],
			})),
			markChangedQuery(chosen),
			countChange(connections.notifies),
		);
		return { assigned: chosen.length, rewrites: bigint(results.at(-1)?.[0]?.rewrites) };
	});
}

/** Returns the query by which other processes learn that entries have other owners. It locks the row of `positions`. */
function countChange(notifies: boolean): Query {
	return {
		text: `
			UPDATE conversation_updates.positions SET rewrites = rewrites + 1
			RETURNING rewrites, CASE WHEN $1::boolean THEN pg_notify('${CHANNEL}', 'rewritten') END
		`,
		values: [notifies],
	};
}

/** @param among the only conversations to select; undefined for all */
function selection(owner: string, of: Unassigned, limit: number, among: readonly string[] | undefined): Query {
	const sql = new Sql();
	const selects = CONVERSATIONS.map(({ table, id, hasNone }) => {
		const tests = [`owner IS DISTINCT FROM ${sql.value(owner)}`];
		if (of === "all without an owner") tests.push(hasNone);
		else if ("sender" in of) tests.push(hasNone, `sender = ${sql.value(encodeText(of.sender))}`);
		else if ("ids" in of) tests.push(`${id} = ANY (${sql.value(of.ids.filter(isConversationId))}::uuid[])`);
		else {
			tests.push(hasNone, NO_SENDER);
			const { withoutSender: ids } = of;
			if (ids !== "all") tests.push(`${id} = ANY (${sql.value(ids.filter(isConversationId))}::uuid[])`);
		}
		if (among !== undefined) tests.push(`${id} = ANY (${sql.value(among)}::uuid[])`);
		const where = tests.join(" AND ");
		return `(SELECT ${id} AS conversation_id FROM conversation_updates.${table} WHERE ${where} LIMIT ${sql.value(limit)})`;
	});
	return sql.query(`${selects.join(" UNION ")} LIMIT ${sql.value(limit)}`);
}

/** SQL for whether a row has no sender; the tables of usage store it as an empty one. */
const NO_SENDER = "(sender IS NULL OR sender = '')";

/** Counts the conversations that have no owner and no sender: see `Store.countWithoutSender`. */
export async function countWithoutSender(session: Session): Promise<number> {
	const selects = CONVERSATIONS.map(
		({ table, id, hasNone }) => `SELECT ${id} FROM conversation_updates.${table} WHERE ${hasNone} AND ${NO_SENDER}`,
	);
	const [rows = []] = await session.query({
		text: `SELECT count(*) AS number FROM (${selects.join(" UNION ")}) AS found`,
		values: [],
	});
	return Number(bigint(rows[0]?.number));
}
