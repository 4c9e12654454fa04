import type { OwnerAssignment, Unassigned } from "../owners.ts";
import { integer, text } from "../values.ts";
import type { Statements } from "./statements.ts";
import { markChanged } from "./views.ts";

/** Tables with a row for each conversation, and how each of them stores that there is no owner. */
const CONVERSATIONS = {
	heads: "IS NULL",
	activities: "IS NULL",
	usage_conversations: "= '' AND ledger <> ''",
};
/** Tables whose rows get the owner of the conversation as it is. */
const OWNED = ["heads", "activities", "pruned"];
/** Tables of the logs of owners, with the query for the rows of a conversation. */
const LOGS = [
	[
		"updates_of_owners",
		`SELECT c.owner, u.sequence FROM heads c CROSS JOIN updates u INDEXED BY updates_by_conversation
			ON u.conversation = c.id WHERE c.conversation_id = ? AND c.owner IS NOT NULL`,
	],
	[
		"events_of_owners",
		`SELECT a.owner, e.sequence FROM activities a CROSS JOIN events e INDEXED BY events_by_activity
			ON e.activity = a.id WHERE a.conversation_id = ? AND a.owner IS NOT NULL`,
	],
] as const;

/**
 * Gives conversations an owner: see `Store.assignOwner`. The caller has begun a transaction.
 *
 * @returns the changed conversations, of which the caller assigns the usage
 */
export function assignOwner(statements: Statements, { owner, of, limit }: OwnerAssignment): readonly string[] {
	const found = new Set(
		Object.entries(CONVERSATIONS).flatMap(([table, hasNone]) => {
			const { test, values } = testOf(of, `owner ${hasNone}`);
			return statements
				.prepare(`SELECT conversation_id FROM ${table} WHERE owner IS NOT ? AND ${test} LIMIT ?`)
				.all(owner, ...values, limit)
				.map(({ conversation_id }) => text(conversation_id));
		}),
	);
	const ids = [...found].slice(0, limit);
	for (const id of ids) {
		for (const [table, entries] of LOGS)
			statements.prepare(`DELETE FROM ${table} WHERE (owner, sequence) IN (${entries})`).run(id);
		for (const table of OWNED)
			statements.prepare(`UPDATE ${table} SET owner = ? WHERE conversation_id = ?`).run(owner, id);
		for (const [table, entries] of LOGS) statements.prepare(`INSERT INTO ${table} ${entries}`).run(id);
	}
	for (const id of ids) markChanged(statements, id);
	return ids;
}

/** @param hasNone SQL for whether a row has no owner */
function testOf(of: Unassigned, hasNone: string): { readonly test: string; readonly values: readonly string[] } {
	if (of === "all without an owner") return { test: hasNone, values: [] };
	if ("sender" in of) return { test: `${hasNone} AND sender = ?`, values: [of.sender] };
	if ("ids" in of) return { test: AMONG, values: [JSON.stringify(of.ids)] };
	const test = `${hasNone} AND ${NO_SENDER}`;
	const { withoutSender: ids } = of;
	return ids === "all" ? { test, values: [] } : { test: `${test} AND ${AMONG}`, values: [JSON.stringify(ids)] };
}

/** SQL for whether a row has no sender; the tables of usage store it as an empty one. */
const NO_SENDER = "(sender IS NULL OR sender = '')";
const AMONG = "conversation_id IN (SELECT value FROM json_each(?))";

/** Counts the conversations that have no owner and no sender: see `Store.countWithoutSender`. */
export function countWithoutSender(statements: Statements): number {
	const selects = Object.entries(CONVERSATIONS).map(
		([table, hasNone]) => `SELECT conversation_id FROM ${table} WHERE owner ${hasNone} AND ${NO_SENDER}`,
	);
	return integer(statements.prepare(`SELECT count(*) AS number FROM (${selects.join(" UNION ")})`).get()?.number);
}
