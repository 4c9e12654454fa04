import { randomUUID } from "node:crypto";
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
import { listConversations } from "./list-conversations.ts";
import { readRange, skipSequences } from "./log.ts";
import { mustPurge } from "./purge.ts";
import { removeRefusedOf } from "./refused-posts.ts";
import type { Statements } from "./statements.ts";
import { removeEventText, removeTitle } from "./text-index.ts";
import { findConversation, refreshStanding } from "./update-writer.ts";
import { findUsage } from "./usage.ts";

/** Erases a conversation: see `Store.erase`. The caller has begun a transaction. */
export function erase(
	statements: Statements,
	{ conversationId, owner, conditions, erasedAt }: EraseRequest,
): Erased | undefined {
	const conversation = findConversation(statements, conversationId);
	const activity = findActivity(statements, conversationId);
	const known = conversation?.origin ?? activity?.origin ?? findRemains(statements, conversationId);
	const isOwn = known !== undefined && (owner === undefined || known.owner === owner);
	if (conditions !== undefined)
		if (!isOwn || listConversations(statements, meetingQuery(conversationId, conditions)).length === 0)
			return undefined;
	const refused = removeRefusedOf(statements, conversationId, owner);
	if (refused > 0) mustPurge(statements);
	if (!isOwn) return refused === 0 ? undefined : { erasure: undefined, unreadable: [] };
	const life = conversation?.state ?? findUsage(statements, conversationId);
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
		run("DELETE FROM tags WHERE conversation = ?", id);
		run("DELETE FROM titles WHERE rowid = ?", id);
		removeTitle(statements, id);
		run("DELETE FROM conversations WHERE id = ?", id);
	}
	for (const table of ["activities", "pruned", "gaps"])
		run(`DELETE FROM ${table} WHERE conversation_id = ?`, conversationId);
	run(
		"UPDATE usage_conversations SET conversation_id = ?, digest = 0, ledger = '' WHERE conversation_id = ?",
		randomUUID(),
		conversationId,
	);
	const parent = conversation === undefined ? undefined : nullable(text, conversation.row.parent_id);
	const unreadable = forgetRelations(statements, { conversationId, owner: known.owner, parent });
	mustPurge(statements);
	const erasure: Erasure = {
		idDigest: idDigest(conversationId),
		sequence: readRange(statements, "updates", {}).newest,
		owner: known.owner,
		createdAt: markedTime(life?.lifeBeganAt, conversation?.state?.createdAt, erasedAt),
		erasedAt,
	};
	insertErasure(statements, erasure);
	return { erasure, unreadable };
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
	/** Id of its parent. */
	readonly parent: string | undefined;
}

/**
 * Makes the other conversations of its owner forget one as their parent, as their source and as their child, in all of
 * their updates.
 *
 * @returns the updates that cannot be read
 */
function forgetRelations(
	statements: Statements,
	{ conversationId, ...conversation }: ErasedConversation,
): UnreadableRelative[] {
	const [owner, parent] = [conversation.owner ?? null, conversation.parent ?? null];
	// What a fork misses may be an event of its source.
	const forks = statements
		.prepare("SELECT conversation_id FROM conversations WHERE source_id = ? AND owner IS ?")
		.all(conversationId, owner);
	for (const fork of forks) {
		const id = text(fork.conversation_id);
		statements
			.prepare("DELETE FROM gaps WHERE conversation_id = ? AND kind IN ('missing_parent', 'missing_leaf')")
			.run(id);
		refreshStanding(statements, id);
	}
	const related = statements
		.prepare(`
			SELECT id, conversation_id FROM conversations WHERE parent_id = :id AND owner IS :owner
			UNION SELECT id, conversation_id FROM conversations WHERE source_id = :id AND owner IS :owner
			UNION SELECT id, conversation_id FROM conversations WHERE conversation_id = :parent AND owner IS :owner
		`)
		.all({ id: conversationId, parent, owner });
	const list = statements.prepare(
		"SELECT sequence FROM updates INDEXED BY updates_by_conversation WHERE conversation = ?",
	);
	const find = statements.prepare(`SELECT ${RELATED_COLUMNS} FROM updates WHERE sequence = ?`);
	const update = statements.prepare(
		"UPDATE updates SET summary = ?, record = ?, unpacked_size = ?, checksum = ? WHERE sequence = ?",
	);
	const unreadable: UnreadableRelative[] = [];
	for (const { id, conversation_id } of related) {
		// One record after the other, because all of a conversation's may be large together.
		for (const { sequence } of list.all(bigint(id))) {
			const row = find.get(bigint(sequence));
			if (row === undefined) continue;
			const { forgotten, ...found } = forgetInUpdate(row, conversationId);
			if (found.unreadable !== undefined)
				unreadable.push({ ...found.unreadable, conversationId: text(conversation_id), sequence: found.sequence });
			if (forgotten === undefined) continue;
			const { record, unpackedSize, checksum } = forgotten.record;
			update.run(forgotten.summary, record, unpackedSize, checksum, bigint(sequence));
		}
		for (const column of ["parent_id", "source_id"])
			statements
				.prepare(`UPDATE conversations SET ${column} = NULL WHERE id = ? AND ${column} = ?`)
				.run(bigint(id), conversationId);
	}
	return unreadable;
}
