import { hash } from "node:crypto";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import type { NewAuditEntry } from "./access.ts";
import type { Condition } from "./condition.ts";
import type { AppendedEvents, AppendedUpdate, StoredUpdate, UpdateQuery } from "./entries.ts";
import type { Session, Test } from "./session.ts";
import { type RowOf, readRow, selectRows } from "./typed-rows.ts";
import { bindable, max } from "./values.ts";

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
	/** Written with it; left out for none. */
	readonly audit?: NewAuditEntry | undefined;
}

/**
 * What is kept of an erased conversation: the result of {@link idDigest}, the sequence of its update of change ERASED, its owner,
 * and the `createdAt` after which records of the conversation are stored again.
 */
export type Erasure = RowOf<"erasures">;

/** What an erasure has done. */
export interface Erased {
	/** Undefined when nothing but refused posts was stored. They make no owner, so nothing keeps later posts away. */
	readonly erasure: Erasure | undefined;
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
	return max(createdAt ?? time, time);
}

/** Returns the SHA-256 of the id of a conversation, in lower-case hexadecimal digits. */
export function idDigest(conversationId: string): string {
	return hash("sha256", conversationId, "hex");
}

/** What an insert does for an erasure of an earlier life: see `Session.insert`. */
export const REPLACE_ERASURE = `UPDATE SET
	sequence = excluded.sequence, owner = excluded.owner, created_at = excluded.created_at, erased_at = excluded.erased_at
`;

/** Returns what is kept of those of the conversations that were erased and have not been stored again. */
export async function findErasures(
	{ all, isIn, dialect: { schema } }: Session,
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
	return rows.map((row) => readRow("erasures", row)).filter(({ idDigest: digest }) => !ids.has(digests.get(digest)));
}

/** Lists the erasures that belong to a page of updates, by sequence. */
export async function listErasures(
	session: Session,
	{ after, conversationId, owner, limit }: UpdateQuery,
): Promise<Erasure[]> {
	const tests: Test[] = [
		["sequence > ?", bindable(after)],
		["id_digest = ?", conversationId === undefined ? undefined : idDigest(conversationId)],
		["owner = ?", owner],
	];
	return await selectRows(session, "erasures", tests, "sequence", limit);
}

/** Whether a record belongs to the life of its conversation that was erased. */
export function isOfErased({ createdAt }: Erasure, recordCreatedAt: bigint | undefined): boolean {
	return recordCreatedAt === undefined || recordCreatedAt <= createdAt;
}

/** Result of a post of a record that is not stored because its conversation was erased. */
export function erasedPost({ sequence }: Erasure): AppendedUpdate {
	return { sequence, duplicate: true, change: UpdateChange.ERASED, current: false, hasUnappliedEvents: false };
}

/** Result of a post of events that are not stored because their conversation was erased. */
export const ERASED_EVENTS: AppendedEvents = { stored: 0, newest: 0n, updateSequence: undefined };

/** Returns the update that tells of an erasure. It has no summary and no record. */
function updateOf({ idDigest: conversationId, sequence, owner, erasedAt }: Erasure): StoredUpdate {
	return {
		conversationId,
		sequence,
		owner,
		receivedAt: erasedAt,
		change: UpdateChange.ERASED,
		current: false,
		origin: UpdateOrigin.UNSPECIFIED,
		previousSequence: undefined,
		sender: undefined,
		summary: new Uint8Array(),
		record: undefined,
	};
}

/**
 * Adds the updates of erasures to a page of updates.
 *
 * @param page updates in order of their sequences
 * @param isCut whether the page ended before the last update that the query asked for
 * @param erasures of the same snapshot as the page, in order of their sequences, from after the position at which it begins
 * @param limit maximum number of updates of the result
 */
export function withErasures(
	page: readonly StoredUpdate[],
	isCut: boolean,
	erasures: readonly Erasure[],
	limit: number,
): StoredUpdate[] {
	const last = page.at(-1)?.sequence;
	const within = erasures.filter(({ sequence }) => !isCut || last === undefined || sequence < last);
	if (within.length === 0) return [...page];
	return [...page, ...within.map(updateOf)].sort((a, b) => (a.sequence < b.sequence ? -1 : 1)).slice(0, limit);
}
