import type { OwnerAssignment, Unassigned } from "../owners.ts";
import { text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** Tables with a row for each conversation. A conversation can have a row in both; `pruned` has one for each log. */
const CONVERSATIONS = ["conversations", "activities"];
const OWNED = [...CONVERSATIONS, "pruned"];

/**
 * Gives conversations an owner: see `Store.assignOwner`. The caller has begun a transaction.
 *
 * @returns the number of changed conversations
 */
export function assignOwner(statements: Statements, { owner, of, limit }: OwnerAssignment): number {
	const { test, values } = testOf(of);
	const found = new Set(
		CONVERSATIONS.flatMap((table) =>
			statements
				.prepare(`SELECT conversation_id FROM ${table} WHERE owner IS NOT ? AND ${test} LIMIT ?`)
				.all(owner, ...values, limit)
				.map(({ conversation_id }) => text(conversation_id)),
		),
	);
	const ids = [...found].slice(0, limit);
	for (const id of ids)
		for (const table of OWNED)
			statements.prepare(`UPDATE ${table} SET owner = ? WHERE conversation_id = ?`).run(owner, id);
	return ids.length;
}

function testOf(of: Unassigned): { readonly test: string; readonly values: readonly string[] } {
	if (of === "all without an owner") return { test: "owner IS NULL", values: [] };
	if ("sender" in of) return { test: "owner IS NULL AND sender = ?", values: [of.sender] };
	return { test: "conversation_id IN (SELECT value FROM json_each(?))", values: [JSON.stringify(of.ids)] };
}
