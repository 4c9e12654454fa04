import { addAudit } from "./access.ts";
import type { OwnerAssignment } from "./owners.ts";
import type { Session, Value } from "./session.ts";
import { integer, text } from "./values.ts";
import { markChanged } from "./views/follow.ts";
import { assignUsage } from "./views/usage.ts";

/**
 * Returns the tables with a row for each conversation, which can have one in each of them, and SQL for whether a row has no
 * owner.
 */
function tablesOf({ dialect: { schema } }: Session) {
	return [
		{ table: `${schema}heads`, hasNone: "owner IS NULL" },
		{ table: `${schema}activities`, hasNone: "owner IS NULL" },
		{ table: `${schema}usage_conversations`, hasNone: "owner = '' AND ledger <> ''" },
	];
}

/** SQL for whether a row has no sender; the tables of usage store it as an empty one. */
const NO_SENDER = "(sender IS NULL OR sender = '')";

/**
 * Gives conversations an owner: see `Store.assignOwner`.
 *
 * @returns the ids of the changed conversations
 */
export async function assignOwner(session: Session, assignment: OwnerAssignment): Promise<readonly string[]> {
	const candidates = await findUnassigned(session, assignment);
	if (candidates.length === 0) return [];
	await session.lock(candidates);
	// Read again under the locks, because another process may have changed them.
	const ids = await findUnassigned(session, assignment, candidates);
	await assignUsage(session, ids, assignment.owner);
	for (const table of OWNED)
		await session.all(
			`UPDATE ${session.dialect.schema}${table} SET owner = ? WHERE ${session.isIn("conversation_id")}`,
			assignment.owner,
			ids,
		);
	await markChanged(session, ids);
	if (assignment.audit !== undefined && ids.length > 0)
		await addAudit(session, { ...assignment.audit, details: String(ids.length) });
	return ids;
}

/** Tables whose rows have the owner of their conversation, beside those of usage. */
const OWNED = ["heads", "activities", "updates", "events", "pruned", "scores"];

/** @param among the only conversations to find; left out for all */
async function findUnassigned(
	session: Session,
	{ owner, of, limit }: OwnerAssignment,
	among?: readonly string[],
): Promise<string[]> {
	const values: Value[] = [];
	const selects = tablesOf(session).map(({ table, hasNone }) => {
		const tests = ["owner IS DISTINCT FROM ?"];
		values.push(owner);
		const testIds = (ids: readonly string[]) => {
			tests.push(session.isIn("conversation_id"));
			values.push(ids);
		};
		if (of === "all without an owner") tests.push(hasNone);
		else if ("ids" in of) testIds(of.ids);
		else if ("sender" in of) {
			tests.push(hasNone, "sender = ?");
			values.push(of.sender);
		} else {
			tests.push(hasNone, NO_SENDER);
			if (of.withoutSender !== "all") testIds(of.withoutSender);
		}
		if (among !== undefined) testIds(among);
		values.push(limit);
		return `SELECT id FROM (SELECT conversation_id AS id FROM ${table} WHERE ${tests.join(" AND ")} LIMIT ?) AS found`;
	});
	const rows = await session.all(`${selects.join(" UNION ")} LIMIT ?`, ...values, limit);
	return rows.map(({ id }) => text(id));
}

/**
 * Counts the conversations that have no owner and no sender: they were stored when the service kept none, and nobody has
 * posted to them since.
 */
export async function countWithoutSender(session: Session): Promise<number> {
	const selects = tablesOf(session).map(
		({ table, hasNone }) => `SELECT conversation_id FROM ${table} WHERE ${hasNone} AND ${NO_SENDER}`,
	);
	const [row] = await session.all(`SELECT count(*) AS number FROM (${selects.join(" UNION ")}) AS found`);
	return integer(row?.number);
}
