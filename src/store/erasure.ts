import { hash } from "node:crypto";
import type { Condition } from "./condition.ts";
import type { Session, Value } from "./session.ts";
import { bigint, bindable, nullable, type Row, text } from "./values.ts";

/**
 * Erased conversations. Of an erased conversation the store keeps one row, without its id: it is the update that tells
 * watchers of the erasure, and the marker by which later posts of the conversation are accepted without being stored.
 */

/** Asks to erase a conversation. */
export interface EraseRequest {
	/** Lower-case UUID with dashes. */
	readonly conversationId: string;
	/** Only if the conversation has this owner; undefined for any. */
	readonly owner: string | undefined;
	/** Only if the conversation meets them when it is erased; left out for any. */
	readonly conditions?: readonly Condition[];
	/** Time of the erasure in microseconds since the Unix epoch. */
	readonly erasedAt: bigint;
}

/** What is kept of an erased conversation. Times are microseconds since the Unix epoch. */
export interface Erasure {
	/** The result of {@link idDigest}. */
	readonly idDigest: string;
	/** Sequence of the update of change ERASED. */
	readonly sequence: bigint;
	/** Owner of the conversation. */
	readonly owner: string | undefined;
	/** Later records of the conversation are stored only if their `created_at` is later. */
	readonly createdAt: bigint;
	readonly erasedAt: bigint;
}

/** What an erasure has done. */
export interface Erased {
	/** Undefined when nothing but refused posts was stored. They make no owner, so nothing keeps later posts away. */
	readonly erasure: Erasure | undefined;
	/** The updates of other conversations that may still name the erased one, because they cannot be read. */
	readonly unreadable: readonly UnreadableRelative[];
}

/** An update of a child, a fork or the parent of an erased conversation, of the same owner, that cannot be read. */
export interface UnreadableRelative {
	readonly conversationId: string;
	readonly sequence: bigint;
	/** The reason, for the log. */
	readonly unreadable: string;
}

/**
 * Returns {@link Erasure.createdAt}: when the erased life began. A record whose `created_at` comes from a clock that is
 * ahead begins no life, but must not come back either.
 *
 * @param lifeBeganAt undefined if it is not known; then the time of the erasure counts
 * @param createdAt that of the current record, as lists show it; undefined without a record
 */
export function markedTime(lifeBeganAt: bigint | undefined, createdAt: bigint | undefined, erasedAt: bigint): bigint {
	const time = lifeBeganAt ?? erasedAt;
	return createdAt !== undefined && createdAt > time ? createdAt : time;
}

/** Returns the SHA-256 of the id of a conversation, in lower-case hexadecimal digits. */
export function idDigest(conversationId: string): string {
	return hash("sha256", conversationId, "hex");
}

/** What an insert does for an erasure of an earlier life: see `Session.insert`. */
export const REPLACE_ERASURE = `UPDATE SET
	sequence = excluded.sequence, owner = excluded.owner, created_at = excluded.created_at, erased_at = excluded.erased_at
`;

/** Returns the columns of a row of `erasures`. */
export function erasureColumns({ idDigest: digest, sequence, owner, createdAt, erasedAt }: Erasure) {
	return { id_digest: digest, sequence, owner, created_at: createdAt, erased_at: erasedAt };
}

/**
 * Reads a row of `erasures`.
 *
 * @param prefix prefix of the column names
 */
export function erasureFrom(row: Row, readText: (value: unknown) => string, prefix = ""): Erasure {
	return {
		idDigest: text(row[`${prefix}id_digest`]),
		sequence: bigint(row[`${prefix}sequence`]),
		owner: nullable(readText, row[`${prefix}owner`]),
		createdAt: bigint(row[`${prefix}created_at`]),
		erasedAt: bigint(row[`${prefix}erased_at`]),
	};
}

/** Returns what is kept of those of the conversations that were erased and have not been stored again. */
export async function findErasures(
	{ all, isIn, readText, dialect: { schema } }: Session,
	conversationIds: readonly string[],
): Promise<Erasure[]> {
	const digests = new Map(conversationIds.map((id) => [idDigest(id), id]));
	if (digests.size === 0) return [];
	const rows = await all(
		`SELECT * FROM ${schema}erasures WHERE id_digest IN (${[...digests].map(() => "?").join()})`,
		...digests.keys(),
	);
	if (rows.length === 0) return [];
	const stored = await all(
		`SELECT conversation_id FROM ${schema}heads WHERE ${isIn("conversation_id")}
		UNION SELECT conversation_id FROM ${schema}activities WHERE ${isIn("conversation_id")}`,
		conversationIds,
		conversationIds,
	);
	const ids = new Set(stored.map(({ conversation_id }) => conversation_id));
	return rows.map((row) => erasureFrom(row, readText)).filter(({ idDigest: digest }) => !ids.has(digests.get(digest)));
}

/** A page of updates. */
interface ErasureQuery {
	readonly after: bigint;
	readonly conversationId?: string | undefined;
	readonly owner?: string | undefined;
	readonly limit: number;
}

/** Lists the erasures that belong to a page of updates, by sequence. */
export async function listErasures(
	{ all, storeText, readText, dialect: { schema } }: Session,
	{ after, conversationId, owner, limit }: ErasureQuery,
): Promise<Erasure[]> {
	const values: Value[] = [bindable(after)];
	const test = (text: string, value: Value) => {
		values.push(value);
		return text;
	};
	const ofOne = conversationId === undefined ? "" : test("AND id_digest = ?", idDigest(conversationId));
	const ofOwner = owner === undefined ? "" : test("AND owner = ?", storeText(owner));
	const rows = await all(
		`SELECT * FROM ${schema}erasures WHERE sequence > ? ${ofOne} ${ofOwner} ORDER BY sequence LIMIT ?`,
		...values,
		limit,
	);
	return rows.map((row) => erasureFrom(row, readText));
}
