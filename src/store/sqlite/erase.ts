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
import { bigint, nullable, type Row, text } from "../values.ts";
import { findActivity } from "./activities.ts";
import { insertErasure } from "./erasures.ts";
import { listConversations } from "./list-conversations.ts";
import { readRange, skipSequences } from "./log.ts";
import { mustPurge } from "./purge.ts";
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
	if (known === undefined || (owner !== undefined && known.owner !== owner)) return undefined;
	if (conditions !== undefined && listConversations(statements, meetingQuery(conversationId, conditions)).length === 0)
		return undefined;
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
	for (const table of ["activities", "pruned", "gaps", "refused_posts"])
		run(`DELETE FROM ${table} WHERE conversation_id = ?`, conversationId);
	run(
		"UPDATE usage_conversations SET conversation_id = ?, digest = 0, ledger = '' WHERE conversation_id = ?",
		randomUUID(),
		conversationId,
	);
	const unreadable = forgetRelations(statements, conversationId, conversation?.row.parent_id ?? null);
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
			UNION ALL SELECT owner FROM refused_posts WHERE conversation_id = :id
			UNION ALL SELECT NULL FROM gaps WHERE conversation_id = :id
			LIMIT 1
		`)
		.get({ id: conversationId });
	return row && { owner: nullable(text, row.owner) };
}

/**
 * Makes other conversations forget one as their parent, as their source and as their child, in all of their updates.
 *
 * @param parent id of its parent
 * @returns the updates that cannot be read
 */
function forgetRelations(statements: Statements, conversationId: string, parent: Row[string]): UnreadableRelative[] {
	// What a fork misses may be an event of its source.
	const forks = statements.prepare("SELECT conversation_id FROM conversations WHERE source_id = ?").all(conversationId);
	for (const fork of forks) {
		const id = text(fork.conversation_id);
		statements
			.prepare("DELETE FROM gaps WHERE conversation_id = ? AND kind IN ('missing_parent', 'missing_leaf')")
			.run(id);
		refreshStanding(statements, id);
	}
	const related = statements
		.prepare(`
			SELECT id, conversation_id FROM conversations WHERE parent_id = :id
			UNION SELECT id, conversation_id FROM conversations WHERE source_id = :id
			UNION SELECT id, conversation_id FROM conversations WHERE conversation_id = :parent
		`)
		.all({ id: conversationId, parent: nullable(text, parent) ?? null });
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
