import type { OwnerAssignment, Unassigned } from "../owners.ts";
import { text } from "../values.ts";
import type { Connections } from "./connections.ts";
import { lockConversations } from "./locks.ts";
import { isConversationId } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Query } from "./transaction.ts";

/** Tables with a row for each conversation. A conversation can have a row in both; `pruned` has one for each log. */
const CONVERSATIONS = ["conversations", "activities"];
const OWNED = [...CONVERSATIONS, "pruned"];

/**
 * Gives conversations an owner: see `Store.assignOwner`.
 *
 * @returns the number of changed conversations
 */
export async function assignOwner(connections: Connections, { owner, of, limit }: OwnerAssignment): Promise<number> {
	const stored = encodeText(owner);
	return await connections.transaction(async (transaction) => {
		const candidates = await transaction.query(selection(stored, of, limit, undefined));
		const ids = [...new Set(candidates.flat().map((row) => text(row.conversation_id)))];
		if (ids.length === 0) return 0;
		// Read again under the locks, because another process may have changed them.
		const [, rows = []] = await transaction.query(lockConversations(ids), selection(stored, of, limit, ids));
		const chosen = rows.map((row) => text(row.conversation_id));
		await transaction.commit(
			...OWNED.map((table) => ({
				text: `UPDATE conversation_updates.${table} SET owner = $1 WHERE conversation_id = ANY ($2::uuid[])`,
				values: [stored, chosen],
			})),
		);
		return chosen.length;
	});
}

/** @param among the only conversations to select; undefined for all */
function selection(owner: string, of: Unassigned, limit: number, among: readonly string[] | undefined): Query {
	const sql = new Sql();
	const tests = [`owner IS DISTINCT FROM ${sql.value(owner)}`];
	if (of === "all without an owner") tests.push("owner IS NULL");
	else if ("sender" in of) tests.push("owner IS NULL", `sender = ${sql.value(encodeText(of.sender))}`);
	else tests.push(`conversation_id = ANY (${sql.value(of.ids.filter(isConversationId))}::uuid[])`);
	if (among !== undefined) tests.push(`conversation_id = ANY (${sql.value(among)}::uuid[])`);
	const where = `WHERE ${tests.join(" AND ")}`;
	const selects = CONVERSATIONS.map((table) => `SELECT conversation_id FROM conversation_updates.${table} ${where}`);
	return sql.query(`${selects.join(" UNION ")} LIMIT ${sql.value(limit)}`);
}
