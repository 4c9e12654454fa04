import { clearField, fromBinary, toBinary } from "@bufbuild/protobuf";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { ServiceError } from "../errors.ts";
import { forgetInDelta, forgetInRecord } from "../record/record-delta.ts";
import { addAudit } from "./access.ts";
import { type Erased, type EraseRequest, idDigest, markedTime, REPLACE_ERASURE } from "./erasure.ts";
import { eraseDeliveries } from "./forwarding.ts";
import { packRecord, readOrUnreadable, unpackRecord } from "./record-column.ts";
import { removeRefusedOf } from "./refused-posts.ts";
import { meetsNow, removeEntriesOf } from "./remove.ts";
import { packedColumnsFrom } from "./rows.ts";
import type { Session } from "./session.ts";
import { columnsOf } from "./typed-rows.ts";
import { bigint, blob, keyOf, nullable, type Row, text } from "./values.ts";
import { deriveConversations } from "./views/conversations.ts";
import { lockView } from "./views/follow.ts";
import { forgetUsage, keepUsage } from "./views/usage.ts";

/** Erases a conversation: see `Store.erase`. The views have followed the logs. */
export async function erase(session: Session, { audit, ...request }: EraseRequest): Promise<Erased | undefined> {
	const erased = await eraseAll(session, request);
	if (erased !== undefined && audit !== undefined) await addAudit(session, audit);
	return erased;
}

async function eraseAll(
	session: Session,
	{ conversationId, owner, conditions, erasedAt }: EraseRequest,
): Promise<Erased | undefined> {
	const { all, isIn, lock, dialect } = session;
	const candidates = await findRelated(session, conversationId);
	await lock([conversationId, ...candidates]);
	const known = await readRemains(session, conversationId);
	const isOwn = known !== undefined && (owner === undefined || known.owner === owner);
	await lockView(session, "conversations");
	if (conditions !== undefined && !(isOwn && (await meetsNow(session, conversationId, conditions)))) return undefined;
	const refused = await removeRefusedOf(session, conversationId, owner);
	if (!isOwn) return refused === 0 ? undefined : { erasure: undefined };
	const heads = await all(
		`SELECT conversation_id, owner FROM ${dialect.schema}heads WHERE ${isIn("conversation_id")}`,
		candidates,
	);
	const relatives = heads
		.filter((row) => nullable(text, row.owner) === known.owner)
		.map((row) => text(row.conversation_id));
	// Before their records forget what they took over.
	await keepUsage(session, [conversationId, ...relatives]);
	await forgetRelations(session, conversationId, relatives);
	await removeEntriesOf(session, conversationId);
	for (const table of ["activities", "heads", "pruned", "gaps", "children", "changed_conversations", "scores"])
		await all(`DELETE FROM ${dialect.schema}${table} WHERE conversation_id = ?`, conversationId);
	await forgetUsage(session, conversationId);
	await deriveConversations(session, [conversationId, ...relatives]);
	await eraseDeliveries(session, conversationId, erasedAt);
	// Others wait for the sequence until the transaction ends.
	const { updates } = await session.lockSequences();
	const sequence = updates + 1n;
	await all(`UPDATE ${dialect.schema}state SET newest_update = ?`, sequence);
	const erasure = {
		idDigest: idDigest(conversationId),
		owner: known.owner,
		createdAt: markedTime(known.lifeBeganAt, known.createdAt, erasedAt),
		erasedAt,
		sequence,
	};
	await session.insert("erasures", [columnsOf("erasures", erasure)], REPLACE_ERASURE);
	return { erasure };
}

/**
 * Reads the owner of a conversation and the beginning of its life; undefined when nothing is stored but refused posts and
 * their gaps.
 */
async function readRemains({ all, dialect: { schema } }: Session, conversationId: string) {
	const lifeBeganAt = `(SELECT life_began_at FROM ${schema}usage_conversations WHERE conversation_id = ?)`;
	const [row] = await all(
		`SELECT owner, life_began_at, created_at FROM (
			SELECT 1 AS rank, owner, coalesce(life_began_at, ${lifeBeganAt}) AS life_began_at, created_at
			FROM ${schema}heads WHERE conversation_id = ?
			UNION ALL SELECT 2, owner, ${lifeBeganAt}, NULL FROM ${schema}activities WHERE conversation_id = ?
			UNION ALL SELECT 3, nullif(owner, ''), life_began_at, NULL FROM ${schema}usage_conversations WHERE conversation_id = ?
			UNION ALL SELECT 4, owner, NULL, NULL FROM ${schema}pruned WHERE conversation_id = ?
		) remains ORDER BY rank LIMIT 1`,
		...Array.from({ length: 6 }, () => conversationId),
	);
	return (
		row && {
			owner: nullable(text, row.owner),
			lifeBeganAt: nullable(bigint, row.life_began_at),
			createdAt: nullable(bigint, row.created_at),
		}
	);
}

/** Returns the ids of the conversations whose parent or source is a conversation, and of its own parent. */
async function findRelated({ all, dialect: { schema } }: Session, conversationId: string): Promise<string[]> {
	const key = keyOf(conversationId);
	const [parents, children] = await Promise.all([
		all(`SELECT parent_id FROM ${schema}heads WHERE conversation_id = ?`, conversationId),
		all(
			`SELECT conversation_id FROM ${schema}conversations WHERE parent_id = ?
			UNION SELECT conversation_id FROM ${schema}conversations WHERE source_id = ?
			UNION SELECT conversation_id FROM ${schema}children WHERE child = ?`,
			key,
			key,
			key,
		),
	]);
	return [
		...parents.flatMap(({ parent_id }) => nullable(text, parent_id) ?? []),
		...children.map(({ conversation_id }) => text(conversation_id)),
	];
}

/**
 * Makes other conversations of the same owner forget one as their parent, as their source and as their child, in all of
 * their updates. The caller derives their rows in the views.
 *
 * @throws {ServiceError} `data_loss` when one of the updates is damaged
 */
async function forgetRelations(session: Session, conversationId: string, relatives: readonly string[]): Promise<void> {
	const { all, isIn, dialect } = session;
	const { schema } = dialect;
	const key = keyOf(conversationId);
	// What a fork misses may be an event of its source.
	await all(
		`DELETE FROM ${schema}gaps WHERE kind IN ('missing_parent', 'missing_leaf') AND conversation_id IN (
			SELECT conversation_id FROM ${schema}conversations WHERE source_id = ? AND ${isIn("conversation_id")}
		)`,
		key,
		relatives,
	);
	for (const relative of relatives) {
		for (let after: bigint | undefined = 0n; after !== undefined; ) {
			const rows: Row[] = await all(
				`SELECT ${RELATED_COLUMNS} FROM ${schema}updates e WHERE e.conversation_id = ? AND e.sequence > ?
				ORDER BY e.sequence LIMIT ${RECORDS_AT_ONCE}`,
				relative,
				after,
			);
			for (const row of rows) {
				const sequence = bigint(row.sequence);
				const forgotten = readOrUnreadable(() => forgetInUpdate(row, conversationId));
				if (forgotten === undefined) continue;
				if ("unreadable" in forgotten) {
					const message = `Update ${sequence} of conversation ${relative} is damaged; erase that conversation first`;
					throw new ServiceError("data_loss", message, { cause: new Error(forgotten.unreadable) });
				}
				const { record, unpackedSize, checksum } = forgotten.record;
				await all(
					`UPDATE ${schema}updates SET summary = ?, record = ?, unpacked_size = ?, checksum = ?
					WHERE conversation_id = ? AND sequence = ?`,
					forgotten.summary,
					record,
					unpackedSize,
					checksum,
					relative,
					sequence,
				);
			}
			const last = rows.at(-1);
			after = last && bigint(last.sequence);
		}
	}
	for (const column of ["parent_id", "source_id"])
		await all(
			`UPDATE ${schema}heads SET ${column} = NULL WHERE ${isIn("conversation_id")} AND ${column} = ?`,
			relatives,
			key,
		);
	await all(`DELETE FROM ${schema}children WHERE ${isIn("conversation_id")} AND child = ?`, relatives, key);
}

/** Number of records that are in memory together. */
const RECORDS_AT_ONCE = 10;

/** Columns of an update `e` that {@link forgetInUpdate} reads. */
const RELATED_COLUMNS = "e.sequence, e.base_sequence, e.summary, e.record, e.unpacked_size, e.checksum";

/**
 * Removes what an update says of a conversation: that it is the parent, the source of the fork, or a child.
 *
 * @param row with {@link RELATED_COLUMNS}
 * @returns what replaces its record and its encoded summary; undefined when they stay as they are
 * @throws Error when the record or the summary is damaged
 */
function forgetInUpdate(row: Row, conversationId: string) {
	const before = { record: packedColumnsFrom(row, "record"), summary: blob(row.summary) };
	const forget = nullable(bigint, row.base_sequence) === undefined ? forgetInRecord : forgetInDelta;
	const record = forget(unpackRecord(before.record), conversationId);
	const summary = forgetInSummary(before.summary, conversationId);
	if (record === undefined && summary === undefined) return undefined;
	return { record: record === undefined ? before.record : packRecord(record), summary: summary ?? before.summary };
}

/** Removes a conversation from an encoded summary. Returns undefined when it does not name it. */
function forgetInSummary(summary: Uint8Array, conversationId: string): Uint8Array | undefined {
	const found = fromBinary(ConversationSummarySchema, summary);
	const isParent = found.parentConversationId === conversationId;
	const isSource = found.forkedFromConversationId === conversationId;
	if (!isParent && !isSource) return undefined;
	const { parentConversationId, forkedFromConversationId } = ConversationSummarySchema.field;
	if (isParent) clearField(found, parentConversationId);
	if (isSource) clearField(found, forkedFromConversationId);
	return toBinary(ConversationSummarySchema, found);
}
