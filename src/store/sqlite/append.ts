import type { DatabaseSync } from "node:sqlite";
import { decide } from "../ordering.ts";
import type { Appended, NewUpdate, RecordColumns } from "../store.ts";
import { storeRecord } from "./records.ts";
import { markOf, repetitionFinder } from "./repetitions.ts";
import { bigint, nullable, text, uuidBytes } from "./values.ts";

const NO_DIGEST = new Uint8Array();

/** Columns of a conversation that deciding about its next update needs. */
interface Known {
	readonly id: bigint;
	readonly sequence: bigint;
	readonly status: string;
	readonly updatedAt: bigint | undefined;
	readonly sameTitle: boolean;
	readonly sameTags: boolean;
	readonly hasTags: boolean;
}

/**
 * Returns a function that appends one update inside a transaction that the caller holds. `nextSequence` is called
 * only when the update is to be written. The connection reads integers as bigints.
 */
export function appender(database: DatabaseSync): (update: NewUpdate, nextSequence: () => bigint) => Appended {
	const find = database.prepare(`
		SELECT id, sequence, status, updated_at, title IS ?, tags = ?, tags <> '{}'
		FROM conversations WHERE conversation_id = ?
	`);
	find.setReturnArrays(true);
	const findFirst = repetitionFinder(database);
	const insertUpdate = database.prepare("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
	const insertConversation = database.prepare(`
		INSERT INTO conversations (
			sequence, status, agent_kind, model, parent_id, created_at, updated_at, title, tags, summary, conversation_id
		) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	`);
	const updateConversation = database.prepare(`
		UPDATE conversations SET sequence = ?, status = ?, agent_kind = ?, model = ?, parent_id = ?, created_at = ?,
			updated_at = ?, title = ?, tags = ?, summary = ?
		WHERE id = ?
	`);
	const moveTags = database.prepare("UPDATE tags SET sequence = ? WHERE conversation = ?");
	const removeTags = database.prepare("DELETE FROM tags WHERE conversation = ?");
	const insertTag = database.prepare("INSERT INTO tags VALUES (?, ?, ?, ?)");
	const removeTitle = database.prepare("DELETE FROM titles WHERE rowid = ?");
	const insertTitle = database.prepare("INSERT INTO titles (rowid, title) VALUES (?, ?)");

	return function append(update, nextSequence) {
		const { columns } = update;
		const id = uuidBytes(update.conversationId);
		if (id === undefined) throw new TypeError("the conversation id is not a lower-case UUID with dashes");
		const tags = canonicalTags(columns.tags);
		const known = readKnown(find.get(columns.title ?? null, tags, id));
		const mark = markOf(update);
		const first = known && findFirst(known.id, mark, update);
		if (first !== undefined) return first;
		const { current, change } = decide(known, columns);
		const sequence = nextSequence();
		const shared = [
			sequence,
			columns.status,
			columns.agentKind,
			columns.model,
			columns.parentId ?? null,
			columns.createdAt ?? null,
			columns.updatedAt ?? null,
			columns.title ?? null,
			tags,
			update.summary,
		];
		let conversation = known?.id;
		if (conversation === undefined) conversation = bigint(insertConversation.run(...shared, id).lastInsertRowid);
		else if (current) updateConversation.run(...shared, conversation);
		const { record, unpackedSize } = storeRecord(update.record);
		insertUpdate.run(
			sequence,
			conversation,
			change,
			current ? 1 : 0,
			known?.sequence ?? null,
			update.receivedAt,
			mark,
			update.digest ?? NO_DIGEST,
			unpackedSize,
			record,
			columns.updatedAt ?? null,
			update.seal,
		);
		if (current) {
			writeTags(conversation, sequence, columns, known);
			writeTitle(conversation, columns.title, known);
		}
		return { sequence, repeated: false, change, current };
	};

	function writeTags(conversation: bigint, sequence: bigint, columns: RecordColumns, known: Known | undefined): void {
		if (known?.sameTags === true) {
			if (known.hasTags) moveTags.run(sequence, conversation);
			return;
		}
		if (known?.hasTags === true) removeTags.run(conversation);
		for (const [key, value] of Object.entries(columns.tags)) insertTag.run(conversation, key, value, sequence);
	}

	function writeTitle(conversation: bigint, title: string | undefined, known: Known | undefined): void {
		if (known?.sameTitle === true) return;
		if (known !== undefined) removeTitle.run(conversation);
		if (title !== undefined) insertTitle.run(conversation, title);
	}
}

/** Tags as JSON text with sorted keys, so that equal tags are equal texts. */
function canonicalTags(tags: Readonly<Record<string, string>>): string {
	const keys = Object.keys(tags);
	return keys.length === 0 ? "{}" : JSON.stringify(tags, keys.sort());
}

function readKnown(row: unknown): Known | undefined {
	if (!Array.isArray(row)) return undefined;
	const [id, sequence, status, updatedAt, sameTitle, sameTags, hasTags] = row;
	return {
		id: bigint(id),
		sequence: bigint(sequence),
		status: text(status),
		updatedAt: nullable(bigint, updatedAt),
		sameTitle: sameTitle === 1n,
		sameTags: sameTags === 1n,
		hasTags: hasTags === 1n,
	};
}
