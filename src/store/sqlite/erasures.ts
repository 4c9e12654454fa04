import { type Erasure, erasureFrom, idDigest } from "../erasure.ts";
import type { UpdateQuery } from "../updates.ts";
import { bindable, text } from "../values.ts";
import type { Statements } from "./statements.ts";

/** Returns what is kept of a conversation that was erased; undefined when it was not, or has been stored again. */
export function findErasure(statements: Statements, conversationId: string): Erasure | undefined {
	const row = statements
		.prepare(`
			SELECT * FROM erasures WHERE id_digest = :digest
				AND NOT EXISTS (SELECT 1 FROM heads WHERE conversation_id = :id)
				AND NOT EXISTS (SELECT 1 FROM activities WHERE conversation_id = :id)
		`)
		.get({ digest: idDigest(conversationId), id: conversationId });
	return row && erasureFrom(row, text);
}

/** Lists the erasures that belong to a page of updates, by sequence. */
export function listErasures(
	statements: Statements,
	{ after, conversationId, owner, limit }: Pick<UpdateQuery, "after" | "conversationId" | "owner" | "limit">,
): Erasure[] {
	const ofOne = conversationId === undefined ? [] : [idDigest(conversationId)];
	const ofOwner = owner === undefined ? [] : [owner];
	return statements
		.prepare(`
			SELECT * FROM erasures WHERE sequence > ?
				${ofOne.length > 0 ? "AND id_digest = ?" : ""} ${ofOwner.length > 0 ? "AND owner = ?" : ""}
			ORDER BY sequence LIMIT ?
		`)
		.all(bindable(after), ...ofOne, ...ofOwner, limit)
		.map((row) => erasureFrom(row, text));
}

/** Inserts what is kept of an erased conversation, in place of what was kept of an earlier life. */
export function insertErasure(
	statements: Statements,
	{ idDigest: digest, sequence, owner, createdAt, erasedAt }: Erasure,
): void {
	statements
		.prepare(
			"INSERT OR REPLACE INTO erasures (id_digest, sequence, owner, created_at, erased_at) VALUES (?, ?, ?, ?, ?)",
		)
		.run(digest, sequence, owner ?? null, createdAt, erasedAt);
}
