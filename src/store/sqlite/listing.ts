import type { DatabaseSync } from "node:sqlite";
import { decodeColumns, type ListColumns } from "../encoded-update.ts";
import { transaction } from "./database.ts";
import { bigint, blob, nullable, text } from "./values.ts";

/** Conversations that one transaction brings up to date, so that appends need not wait long. */
const listedAtOnce = 512;

/**
 * What lists read: `conversations` with its indexes, `tags` and `titles`.
 *
 * Nearly every index holds the sequence of a conversation's current update, so that each update would move it in all of
 * them; that takes two fifths of the writing thread's time. So they follow behind the updates: when a list is asked for,
 * and from time to time. A conversation that was updated often in between is moved once.
 */
export class Listing {
	readonly #database: DatabaseSync;
	readonly #list: (conversation: bigint) => void;
	readonly #mark;
	/** Conversations that are not up to date, in order of the first update that is missing, with its sequence. */
	readonly #behind = new Map<bigint, bigint>();
	#newest: bigint;

	/** Goes on where the writing process before ended, which may have been at any moment. */
	constructor(database: DatabaseSync) {
		this.#database = database;
		this.#list = lister(database);
		this.#mark = database.prepare("UPDATE store_state SET listed_through = ?");
		this.#newest = bigint(database.prepare("SELECT listed_through FROM store_state").get()?.listed_through);
		const missing = database.prepare("SELECT sequence, conversation FROM updates WHERE sequence > ? ORDER BY sequence");
		for (const { sequence, conversation } of missing.iterate(this.#newest))
			this.committed(bigint(conversation), bigint(sequence));
		this.complete();
	}

	/** To be told of each committed update, in order of sequence. */
	committed(conversation: bigint, sequence: bigint): void {
		this.#newest = sequence;
		if (!this.#behind.has(conversation)) this.#behind.set(conversation, sequence);
	}

	/**
	 * Brings some conversations up to date, longest behind first, in a transaction of its own.
	 *
	 * @returns the sequence through which lists know every update
	 */
	catchUp(): bigint {
		if (this.#behind.size === 0) return this.#newest;
		const [now, next] = this.#firstBehind();
		const through = next === undefined ? this.#newest : next - 1n;
		transaction(this.#database, "BEGIN IMMEDIATE", () => {
			for (const conversation of now) this.#list(conversation);
			this.#mark.run(through);
		});
		for (const conversation of now) this.#behind.delete(conversation);
		return through;
	}

	/** Brings all conversations up to date. */
	complete(): void {
		while (this.#behind.size > 0) this.catchUp();
	}

	/** The conversations whose turn it is, and the sequence from which the others are missing updates. */
	#firstBehind(): [now: bigint[], next: bigint | undefined] {
		const now: bigint[] = [];
		for (const [conversation, sequence] of this.#behind) {
			if (now.length === listedAtOnce) return [now, sequence];
			now.push(conversation);
		}
		return [now, undefined];
	}
}

/** What is listed of a conversation now, compared with what is to be. */
interface Listed {
	readonly sameTitle: boolean;
	readonly sameTags: boolean;
	readonly hasTags: boolean;
}

/** Returns a function that lists a conversation by its current update; it does nothing for one that was removed. */
function lister(database: DatabaseSync): (conversation: bigint) => void {
	const readHead = database.prepare(
		`
		SELECT h.conversation_id, h.sequence, h.status, h.updated_at, u.columns, u.summary
		FROM heads h JOIN updates u ON u.sequence = h.sequence WHERE h.id = ?
	`,
		{ returnArrays: true },
	);
	const readListed = database.prepare("SELECT title IS ?, tags = ?, tags <> '{}' FROM conversations WHERE id = ?", {
		returnArrays: true,
	});
	const insert = database.prepare(`
		INSERT INTO conversations (
			sequence, status, agent_kind, model, parent_id, created_at, updated_at, title, tags, summary, id, conversation_id
		) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	`);
	const update = database.prepare(`
		UPDATE conversations SET sequence = ?, status = ?, agent_kind = ?, model = ?, parent_id = ?, created_at = ?,
			updated_at = ?, title = ?, tags = ?, summary = ?
		WHERE id = ?
	`);
	const moveTags = database.prepare("UPDATE tags SET sequence = ? WHERE conversation = ?");
	const removeTags = database.prepare("DELETE FROM tags WHERE conversation = ?");
	const insertTag = database.prepare("INSERT INTO tags VALUES (?, ?, ?, ?)");
	const removeTitle = database.prepare("DELETE FROM titles WHERE rowid = ?");
	const insertTitle = database.prepare("INSERT INTO titles (rowid, title) VALUES (?, ?)");

	return (conversation) => {
		const row: unknown = readHead.get(conversation);
		if (!Array.isArray(row)) return;
		const [id, sequence, status, updatedAt, columnBytes, summary] = row;
		const columns = decodeColumns(blob(columnBytes));
		const tags = canonicalTags(columns.tags);
		const values = [
			bigint(sequence),
			text(status),
			columns.agentKind,
			columns.model,
			columns.parentId ?? null,
			columns.createdAt ?? null,
			nullable(bigint, updatedAt) ?? null,
			columns.title ?? null,
			tags,
			blob(summary),
			conversation,
		];
		const listed = listedOf(readListed.get(columns.title ?? null, tags, conversation));
		if (listed === undefined) insert.run(...values, blob(id));
		else update.run(...values);
		writeTags(conversation, bigint(sequence), columns, listed);
		writeTitle(conversation, columns.title, listed);
	};

	function writeTags(conversation: bigint, sequence: bigint, columns: ListColumns, listed: Listed | undefined): void {
		if (listed?.sameTags === true) {
			if (listed.hasTags) moveTags.run(sequence, conversation);
			return;
		}
		if (listed?.hasTags === true) removeTags.run(conversation);
		for (const [key, value] of Object.entries(columns.tags)) insertTag.run(conversation, key, value, sequence);
	}

	function writeTitle(conversation: bigint, title: string | undefined, listed: Listed | undefined): void {
		if (listed?.sameTitle === true) return;
		if (listed !== undefined) removeTitle.run(conversation);
		if (title !== undefined) insertTitle.run(conversation, title);
	}
}

/** Tags as JSON text with sorted keys, so that equal tags are equal texts. */
function canonicalTags(tags: Readonly<Record<string, string>>): string {
	const keys = Object.keys(tags);
	return keys.length === 0 ? "{}" : JSON.stringify(tags, keys.sort());
}

function listedOf(row: unknown): Listed | undefined {
	if (!Array.isArray(row)) return undefined;
	const [sameTitle, sameTags, hasTags] = row;
	return { sameTitle: sameTitle === 1n, sameTags: sameTags === 1n, hasTags: hasTags === 1n };
}
