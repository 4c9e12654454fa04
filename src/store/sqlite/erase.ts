import { forgetInUpdate, meetingQuery, RELATED_COLUMNS } from "../erased-updates.ts";
import {
	type Erased,
	type EraseRequest,
	type Erasure,
	idDigest,
	markedTime,
	type UnreadableRelative,
} from "../erasure.ts";
import type { ConversationOrigin } from "../owners.ts";
import { bigint, nullable, text } from "../values.ts";
import { findActivity } from "./activities.ts";
import { insertErasure } from "./erasures.ts";
import { findHead } from "./heads.ts";
import { listConversations } from "./list-conversations.ts";
import { readRange, skipSequences } from "./log.ts";
import { mustPurge } from "./purge.ts";
import { removeRefusedOf } from "./refused-posts.ts";
import { isDamage } from "./result-codes.ts";
import type { Statements } from "./statements.ts";
import { removeEventText, removeTitle } from "./text-index.ts";

/** What {@link erase} did. */
export interface ErasedWithRelatives extends Erased {
	/** Conversations that forgot the erased one. */
	readonly relatives: readonly string[];
}

/**
 * Erases a conversation: see `Store.erase`. The caller has begun a transaction in which the view of conversations has
 * followed the logs, derives the rows of the conversation and of its relatives, and forgets whose its usage was.
 *
 * @param damaged updates of relatives that stay as they are: see {@link findDamaged}
 */
export function erase(
	statements: Statements,
	{ conversationId, owner, conditions, erasedAt }: EraseRequest,
	damaged: DamagedUpdates = new Map(),
): ErasedWithRelatives | undefined {
	const conversation = findHead(statements, conversationId);
	const activity = findActivity(statements, conversationId);
	const known = conversation?.origin ?? activity?.origin ?? findRemains(statements, conversationId);
	const isOwn = known !== undefined && (owner === undefined || known.owner === owner);
	if (conditions !== undefined)
		if (!isOwn || listConversations(statements, meetingQuery(conversationId, conditions)).length === 0)
			return undefined;
	const refused = removeRefusedOf(statements, conversationId, owner);
	if (refused > 0) mustPurge(statements);
	if (!isOwn) return refused === 0 ? undefined : { erasure: undefined, unreadable: [], relatives: [] };
	const usage = statements
		.prepare("SELECT life_began_at FROM usage_conversations WHERE conversation_id = ?")
		.get(conversationId);
	const lifeBeganAt = conversation?.state.lifeBeganAt ?? nullable(bigint, usage?.life_began_at ?? null);
	// The sequences of the erased entries must not be used again.
	skipSequences(statements, "events", 0n);
	skipSequences(statements, "updates", 1n);
	const run = (sql: string, ...values: (bigint | string)[]) => statements.prepare(sql).run(...values);
	if (activity !== undefined) {
		const events = statements.prepare("SELECT sequence FROM events WHERE activity = ?").all(activity.id);
		run("DELETE FROM events WHERE activity = ?", activity.id);
		for (const { sequence } of events) {
			removeEventText(statements, bigint(sequence));
			if (known.owner !== undefined)
				run("DELETE FROM events_of_owners WHERE owner = ? AND sequence = ?", known.owner, bigint(sequence));
		}
	}
	if (conversation !== undefined) {
		const { id } = conversation;
		if (known.owner !== undefined)
			run(
				"DELETE FROM updates_of_owners WHERE owner = ? AND sequence IN (SELECT sequence FROM updates WHERE conversation = ?)",
				known.owner,
				id,
			);
		run("DELETE FROM updates WHERE conversation = ?", id);
		removeTitle(statements, id);
		run("DELETE FROM heads WHERE id = ?", id);
	}
	for (const table of ["activities", "pruned", "gaps", "children", "changed_conversations"])
		run(`DELETE FROM ${table} WHERE conversation_id = ?`, conversationId);
	const of = { conversationId, owner: known.owner };
	const related = relatives(statements, of);
	const unreadable = forgetRelations(statements, of, related, damaged);
	mustPurge(statements);
	const erasure: Erasure = {
		idDigest: idDigest(conversationId),
		sequence: readRange(statements, "updates", {}).newest,
		owner: known.owner,
		createdAt: markedTime(lifeBeganAt, conversation?.state.createdAt, erasedAt),
		erasedAt,
	};
	insertErasure(statements, erasure);
	return { erasure, unreadable, relatives: related.map((relative) => relative.conversationId) };
}

/**
 * Returns the owner of a conversation of which neither records nor events are stored, but something else; undefined when
 * nothing is.
 */
function findRemains(statements: Statements, conversationId: string): Pick<ConversationOrigin, "owner"> | undefined {
	const row = statements
		.prepare(`
			SELECT nullif(owner, '') AS owner FROM usage_conversations WHERE conversation_id = :id
			UNION ALL SELECT owner FROM pruned WHERE conversation_id = :id
			LIMIT 1
		`)
		.get({ id: conversationId });
	return row && { owner: nullable(text, row.owner) };
}

/** An erased conversation. */
interface ErasedConversation {
	readonly conversationId: string;
	readonly owner: string | undefined;
}

/** A conversation that names an erased one, or is named by it. */
interface Relative {
	/** Id of its head. */
	readonly id: bigint;
	readonly conversationId: string;
}

/** Why updates cannot be read, by sequence: pages of the database are damaged. */
export type DamagedUpdates = ReadonlyMap<bigint, string>;

const FIND_RELATED = `SELECT ${RELATED_COLUMNS} FROM updates WHERE sequence = ?`;

/**
 * Returns the updates of relatives of a conversation that are on damaged pages. The caller has begun no transaction: SQLite
 * writes nothing more in one that has met a damaged page.
 */
export function findDamaged(statements: Statements, conversationId: string): DamagedUpdates {
	const conversation = findHead(statements, conversationId);
	const owner = conversation?.origin.owner ?? findActivity(statements, conversationId)?.origin.owner;
	const damaged = new Map<bigint, string>();
	for (const { id } of relatives(statements, { conversationId, owner }))
		for (const sequence of updatesOf(statements, id))
			try {
				statements.prepare(FIND_RELATED).get(sequence);
			} catch (error) {
				if (!isDamage(error)) throw error;
				damaged.set(sequence, error.message);
			}
	return damaged;
}

/** Returns the conversations of the same owner that are children, forks or the parent of a conversation. */
function relatives(statements: Statements, { conversationId, owner }: ErasedConversation): Relative[] {
	return statements
		.prepare(`
			SELECT id, conversation_id FROM conversations WHERE parent_id = :id AND owner IS :owner
			UNION SELECT id, conversation_id FROM conversations WHERE source_id = :id AND owner IS :owner
			UNION SELECT p.id, p.conversation_id FROM conversations c CROSS JOIN conversations p
				ON p.conversation_id = c.parent_id AND p.owner IS :owner WHERE c.conversation_id = :id
			UNION SELECT p.id, p.conversation_id FROM children k CROSS JOIN conversations p
				ON p.conversation_id = k.conversation_id AND p.owner IS :owner WHERE k.child = :id
		`)
		.all({ id: conversationId, owner: owner ?? null })
		.map((row) => ({ id: bigint(row.id), conversationId: text(row.conversation_id) }));
}

/** Returns the sequences of the updates of a conversation. */
function updatesOf(statements: Statements, conversation: bigint): bigint[] {
	return statements
		.prepare("SELECT sequence FROM updates INDEXED BY updates_by_conversation WHERE conversation = ?")
		.all(conversation)
		.map(({ sequence }) => bigint(sequence));
}

/**
 * Makes the other conversations of its owner forget one as their parent, as their source and as their child, in all of
 * their updates.
 *
 * @param damaged updates that stay as they are
 * @returns the updates that cannot be read
 */
function forgetRelations(
	statements: Statements,
	{ conversationId, owner }: ErasedConversation,
	related: readonly Relative[],
	damaged: DamagedUpdates,
): UnreadableRelative[] {
	// What a fork misses may be an event of its source.
	const forks = statements
		.prepare("SELECT conversation_id FROM conversations WHERE source_id = ? AND owner IS ?")
		.all(conversationId, owner ?? null);
	for (const fork of forks)
		statements
			.prepare("DELETE FROM gaps WHERE conversation_id = ? AND kind IN ('missing_parent', 'missing_leaf')")
			.run(text(fork.conversation_id));
	const find = statements.prepare(FIND_RELATED);
	const update = statements.prepare(
		"UPDATE updates SET summary = ?, record = ?, unpacked_size = ?, checksum = ? WHERE sequence = ?",
	);
	const unreadable: UnreadableRelative[] = [];
	for (const { id, ...relative } of related) {
		// One record after the other, because all of a conversation's may be large together.
		for (const sequence of updatesOf(statements, id)) {
			const at = { ...relative, sequence };
			const reason = damaged.get(at.sequence);
			if (reason !== undefined) {
				unreadable.push({ ...at, unreadable: reason });
				continue;
			}
			const row = find.get(at.sequence);
			if (row === undefined) continue;
			const { forgotten, ...found } = forgetInUpdate(row, conversationId);
			if (found.unreadable !== undefined) unreadable.push({ ...found.unreadable, ...at });
			if (forgotten === undefined) continue;
			const { record, unpackedSize, checksum } = forgotten.record;
			update.run(forgotten.summary, record, unpackedSize, checksum, sequence);
		}
		for (const column of ["parent_id", "source_id"])
			statements.prepare(`UPDATE heads SET ${column} = NULL WHERE id = ? AND ${column} = ?`).run(id, conversationId);
		const { conversationId: parent } = relative;
		statements.prepare("DELETE FROM children WHERE conversation_id = ? AND child = ?").run(parent, conversationId);
	}
	return unreadable;
}
