import { type Erasure, erasureFrom, idDigest } from "../erasure.ts";
import type { UpdateQuery } from "../updates.ts";
import { bindable, type Row } from "../values.ts";
import { decoded } from "./rows.ts";
import { Sql } from "./sql.ts";
import { encodeText } from "./stored-text.ts";
import type { Query, Session } from "./transaction.ts";

/** Columns of the table `erasures`. */
export const ERASURE_COLUMNS = "id_digest, sequence, owner, created_at, erased_at";

/** Reads a row with {@link ERASURE_COLUMNS}. */
export function erasureOf(row: Row): Erasure {
	return erasureFrom(row, decoded);
}

/** Returns the query for the erasures that belong to a page of updates, by sequence. */
export function erasuresQuery({
	after,
	conversationId,
	owner,
	limit,
}: Pick<UpdateQuery, "after" | "conversationId" | "owner" | "limit">): Query {
	const sql = new Sql();
	const tests = [`sequence > ${sql.value(bindable(after))}`];
	if (conversationId !== undefined) tests.push(`id_digest = ${sql.value(idDigest(conversationId))}`);
	if (owner !== undefined) tests.push(`owner = ${sql.value(encodeText(owner))}`);
	return sql.query(`
		SELECT ${ERASURE_COLUMNS} FROM conversation_updates.erasures
		WHERE ${tests.join(" AND ")} ORDER BY sequence LIMIT ${sql.value(limit)}
	`);
}

/** Returns what is kept of those of the conversations that were erased and have not been stored again. */
export async function findErasures(session: Session, conversationIds: readonly string[]): Promise<Erasure[]> {
	const [rows = []] = await session.query({
		name: "erasures",
		text: `
			SELECT ${ERASURE_COLUMNS.split(", ")
				.map((column) => `x.${column}`)
				.join()}
			FROM unnest($1::uuid[], $2::text[]) AS k (id, digest)
			JOIN conversation_updates.erasures x ON x.id_digest = k.digest
			WHERE NOT EXISTS (SELECT 1 FROM conversation_updates.heads WHERE conversation_id = k.id)
				AND NOT EXISTS (SELECT 1 FROM conversation_updates.activities WHERE conversation_id = k.id)
		`,
		values: [conversationIds, conversationIds.map(idDigest)],
	});
	return rows.map(erasureOf);
}

/** Begins the statement that inserts an erasure: its values follow, and {@link REPLACE_ERASURE}. */
export const INSERT_ERASURE = `INSERT INTO conversation_updates.erasures (${ERASURE_COLUMNS})`;
export const REPLACE_ERASURE = `
	ON CONFLICT (id_digest) DO UPDATE SET sequence = excluded.sequence, owner = excluded.owner,
		created_at = excluded.created_at, erased_at = excluded.erased_at
`;
