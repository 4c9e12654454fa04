import { forgetInUpdate, meetingQuery, RELATED_COLUMNS, type RelatedUpdate } from "../erased-updates.ts";
import {
	type Erased,
	type EraseRequest,
	type Erasure,
	idDigest,
	markedTime,
	type UnreadableRelative,
} from "../erasure.ts";
import { eraseDeliveries } from "../forwarding.ts";
import { bigint, nullable, text } from "../values.ts";
import { deriveConversations } from "../views/conversations.ts";
import { lockView } from "../views/follow.ts";
import { forgetUsage, settleUsage } from "../views/usage.ts";
import type { Connections } from "./connections.ts";
import { INSERT_ERASURE, REPLACE_ERASURE } from "./erasures.ts";
import { listConversations } from "./list-conversations.ts";
import { lockConversations } from "./locks.ts";
import { removeRefusedOf } from "./refused-posts.ts";
import { decoded, isConversationId } from "./rows.ts";
import { postgresSession } from "./session.ts";
import { encodeKey, encodeText } from "./stored-text.ts";
import { removeTextsQuery } from "./text-index.ts";
import type { Query, Transaction } from "./transaction.ts";
import { CHANNEL } from "./written-group.ts";

/**
 * Erases a conversation: see `Store.erase`. The view of conversations, by which relatives are found, has followed the logs.
 * `rewrites` says how often entries of the database were rewritten; undefined if
 * none was now.
 */
export async function erase(
	connections: Connections,
	{ conversationId, owner, conditions, erasedAt }: EraseRequest,
): Promise<(Erased & { readonly rewrites?: bigint }) | undefined> {
	if (!isConversationId(conversationId)) return undefined;
	return await connections.transaction(async (transaction) => {
		const session = postgresSession(transaction);
		const [related = []] = await transaction.query(relatedQuery(conversationId));
		const relatedIds = related.map((row) => text(row.conversation_id));
		const [, [found] = [], events = [], owners = []] = await transaction.query(
			lockConversations([conversationId, ...relatedIds]),
			originQuery(conversationId),
			{ text: "SELECT sequence FROM conversation_updates.events WHERE conversation_id = $1", values: [conversationId] },
			{
				text: "SELECT conversation_id, owner FROM conversation_updates.heads WHERE conversation_id = ANY ($1::uuid[])",
				values: [relatedIds],
			},
		);
		const known = found && {
			owner: nullable(decoded, found.owner),
			lifeBeganAt: nullable(bigint, found.life_began_at),
			createdAt: nullable(bigint, found.created_at),
		};
		const isOwn = known !== undefined && (owner === undefined || known.owner === owner);
		await lockView(session, "conversations");
		if (conditions !== undefined) {
			await deriveConversations(session, [conversationId]);
			const query = meetingQuery(conversationId, conditions);
			if (!isOwn || (await listConversations(transaction, query)).length === 0) return undefined;
		}
		const refused = await removeRefusedOf(transaction, conversationId, owner);
		if (!isOwn) return refused === 0 ? undefined : { erasure: undefined, unreadable: [] };
		const relatives = owners
			.filter((row) => nullable(decoded, row.owner) === known.owner)
			.map((row) => text(row.conversation_id));
		const unreadable = await forgetRelations(transaction, conversationId, relatives);
		await settleUsage(session, [conversationId]);
		const createdAt = markedTime(known.lifeBeganAt, known.createdAt, erasedAt);
		await transaction.query(
			...removeQueries(conversationId),
			removeTextsQuery(events.map(({ sequence }) => bigint(sequence))),
		);
		await forgetUsage(session, conversationId);
		await deriveConversations(session, [conversationId, ...relatives]);
		await eraseDeliveries(session, conversationId, erasedAt);
		const rows = await transaction.commit(
			takeSequence({ conversationId, owner: known.owner, createdAt, erasedAt }, connections.notifies),
		);
		const [row] = rows.at(-1) ?? [];
		const sequence = bigint(row?.sequence);
		const erasure = { idDigest: idDigest(conversationId), sequence, owner: known.owner, createdAt, erasedAt };
		return { erasure, unreadable, rewrites: bigint(row?.rewrites) };
	});
}

/**
 * Returns the query for the owner of a conversation and the beginning of its life; no row when nothing is stored but refused
 * posts and their gaps.
 */
function originQuery(conversationId: string): Query {
	return {
		text: `
			SELECT owner, life_began_at, created_at FROM (
				SELECT 1 AS rank, owner, life_began_at, created_at
				FROM conversation_updates.heads WHERE conversation_id = $1
				UNION ALL SELECT 2, owner, (SELECT life_began_at FROM conversation_updates.usage_conversations WHERE id = $1), NULL
				FROM conversation_updates.activities WHERE conversation_id = $1
				UNION ALL SELECT 3, nullif(owner, ''), life_began_at, NULL
				FROM conversation_updates.usage_conversations WHERE id = $1
				UNION ALL SELECT 4, owner, NULL, NULL FROM conversation_updates.pruned WHERE conversation_id = $1
			) remains ORDER BY rank LIMIT 1
		`,
		values: [conversationId],
	};
}

/** Returns the query for the ids of the conversations whose parent or source is a conversation, and of its own parent. */
function relatedQuery(conversationId: string): Query {
	return {
		text: `
			SELECT conversation_id FROM conversation_updates.conversations WHERE parent_id = $1
			UNION SELECT conversation_id FROM conversation_updates.conversations WHERE source_id = $1
			UNION SELECT p.conversation_id FROM conversation_updates.conversations c
			JOIN conversation_updates.conversations p ON p.conversation_id::text = c.parent_id
			WHERE c.conversation_id = $2
			UNION SELECT conversation_id FROM conversation_updates.children WHERE child = $1
		`,
		values: [encodeKey(conversationId), conversationId],
	};
}

/** Tables with rows of a conversation, by its id. */
const TABLES = [
	"updates",
	"events",
	"activities",
	"heads",
	"search_titles",
	"pruned",
	"gaps",
	"children",
	"changed_conversations",
];

function removeQueries(conversationId: string): Query[] {
	return TABLES.map((table) => ({
		text: `DELETE FROM conversation_updates.${table} WHERE conversation_id = $1`,
		values: [conversationId],
	}));
}

/**
 * Returns the query that takes a sequence and inserts the erasure with it. It locks the row of `positions`, so it is the
 * last one.
 */
function takeSequence(
	{ conversationId, owner, createdAt, erasedAt }: Omit<Erasure, "idDigest" | "sequence"> & { conversationId: string },
	notifies: boolean,
): Query {
	return {
		text: `
			WITH p AS (
				UPDATE conversation_updates.positions SET newest_update = newest_update + 1, rewrites = rewrites + 1
				RETURNING newest_update, newest_event, rewrites
			), kept AS (
				${INSERT_ERASURE} SELECT $1, p.newest_update, $2, $3::bigint, $4::bigint FROM p ${REPLACE_ERASURE}
			)
			SELECT p.newest_update AS sequence, p.rewrites,
				CASE WHEN $5::boolean THEN pg_notify('${CHANNEL}', p.newest_update || ' ' || p.newest_event) END
			FROM p
		`,
		values: [idDigest(conversationId), owner === undefined ? null : encodeText(owner), createdAt, erasedAt, notifies],
	};
}

/**
 * Makes other conversations of the same owner forget one as their parent, as their source and as their child, in all of
 * their updates. The caller derives their rows in the views.
 *
 * @returns the updates that cannot be read
 */
async function forgetRelations(
	transaction: Transaction,
	conversationId: string,
	relatives: readonly string[],
): Promise<UnreadableRelative[]> {
	// What a fork misses may be an event of its source.
	await transaction.query({
		text: `
			DELETE FROM conversation_updates.gaps g USING conversation_updates.conversations c
			WHERE c.source_id = $1 AND g.conversation_id = c.conversation_id AND c.conversation_id = ANY ($2::uuid[])
				AND g.kind IN ('missing_parent', 'missing_leaf')
		`,
		values: [encodeKey(conversationId), relatives],
	});
	const unreadable: UnreadableRelative[] = [];
	for (const relative of relatives) {
		let page: readonly RelatedUpdate[];
		let after: bigint | undefined = 0n;
		do {
			page = await forgetInUpdates(transaction, conversationId, relative, after);
			for (const update of page)
				if (update.unreadable !== undefined)
					unreadable.push({ ...update.unreadable, conversationId: relative, sequence: update.sequence });
			after = page.at(-1)?.sequence;
		} while (after !== undefined);
		await transaction.query(
			...["parent_id", "source_id"].map((column) => ({
				text: `UPDATE conversation_updates.heads SET ${column} = NULL WHERE conversation_id = $1 AND ${column} = $2`,
				values: [relative, encodeKey(conversationId)],
			})),
			{
				text: "DELETE FROM conversation_updates.children WHERE conversation_id = $1 AND child = $2",
				values: [relative, encodeKey(conversationId)],
			},
		);
	}
	return unreadable;
}

/** Number of updates whose records are in memory together. */
const UPDATES = 50;

/**
 * Makes the next updates of a conversation forget another one.
 *
 * @param after sequence after which they begin
 * @returns these updates; none when there are no more
 */
async function forgetInUpdates(
	transaction: Transaction,
	conversationId: string,
	relative: string,
	after: bigint,
): Promise<readonly RelatedUpdate[]> {
	const [rows = []] = await transaction.query({
		text: `
			SELECT ${RELATED_COLUMNS} FROM conversation_updates.updates
			WHERE conversation_id = $1 AND sequence > $2 ORDER BY sequence LIMIT ${UPDATES}
		`,
		values: [relative, after],
	});
	const updates = rows.map((row) => forgetInUpdate(row, conversationId));
	const changed = updates.flatMap(({ sequence, forgotten }) => (forgotten ? [{ sequence, ...forgotten }] : []));
	if (changed.length > 0)
		await transaction.query(
			...changed.map(({ sequence, summary, record: { record, unpackedSize, checksum } }) => ({
				text: `
					UPDATE conversation_updates.updates SET summary = $2, record = $3, unpacked_size = $4, checksum = $5
					WHERE conversation_id = $6 AND sequence = $1
				`,
				values: [sequence, summary, record, unpackedSize, checksum, relative],
			})),
		);
	return updates;
}
