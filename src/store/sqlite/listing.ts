import type { DatabaseSync } from "node:sqlite";
import { decodeColumns, type ListColumns } from "../encoded-update.ts";
import { transaction } from "./database.ts";
import { bigint, blob, nullable, text } from "./values.ts";

/** Conversations behind from which on they are brought up to date at once: appends wait while that is done. */
const mostBehind = 2_048;

/**
 * What lists read: `conversations` with its indexes, `tags` and `titles`.
 *
 * Nearly every index holds the sequence of a conversation's current update, so that each update would move it in all of
 * them; that takes two fifths of the writing thread's time. So they follow behind the updates: when a list is asked for,
 * and from time to time. A conversation that was updated often in between is moved once.
 *
 * They follow all together, so that a list is always what it was right after some update: who reads one and then the
 * updates after the newest that it shows misses none.
 */
export class Listing {
	readonly #database: DatabaseSync;
	readonly #list: (conversation: bigint) => void;
	readonly #mark;
	readonly #after;
	/** Conversations that are not up to date. */
	readonly #behind = new Set<bigint>();
	/** Of every update through this one, the conversation is up to date or in `#behind`. */
	#known: bigint;

	/** Finds what is behind; the process that wrote before may have ended at any moment. */
	constructor(database: DatabaseSync) {
		this.#database = database;
		this.#list = lister(database);
		this.#mark = database.prepare("UPDATE store_state SET listed_through = ?");
		this.#after = database.prepare("SELECT sequence, conversation FROM updates WHERE sequence > ? ORDER BY sequence");
		this.#known = bigint(database.prepare("SELECT listed_through FROM store_state").get()?.listed_through);
		this.#findBehind();
	}

	/** To be told of each committed update, in order of sequence. */
	committed(conversation: bigint, sequence: bigint): void {
		// Another process wrote as well: as one does that is stopping while its successor starts.
		if (sequence > this.#known + 1n) this.#findBehind();
		this.#known = sequence;
		this.#behind.add(conversation);
	}

	/** Whether so many conversations are behind that they should not become more. */
	get isFarBehind(): boolean {
		return this.#behind.size >= mostBehind;
	}

	/** Brings all conversations up to date, in a transaction of its own. */
	catchUp(): void {
		if (this.#behind.size === 0) return;
		transaction(this.#database, "BEGIN IMMEDIATE", () => {
			for (const conversation of this.#behind) this.#list(conversation);
			this.#mark.run(this.#known);
		});
		this.#behind.clear();
	}

	#findBehind(): void {
		for (const { sequence, conversation } of this.#after.iterate(this.#known)) {
			this.#known = bigint(sequence);
			this.#behind.add(bigint(conversation));
		}
	}
}

/** What is listed of a conversation now, compared with what is to be. */
interface Listed {
	readonly sameTitle: boolean;
	readonly sameTags: boolean;
	readonly hasTags: boolean;
}

/**
 * Returns a function that lists a conversation by its current update. It does nothing for one that is up to date, whose
 * update may be of a version of the schema that did not keep what is listed, or that was removed.
 */
function lister(database: DatabaseSync): (conversation: bigint) => void {
	const readHead = database.prepare(
		`
		SELECT h.conversation_id, h.sequence, h.status, h.updated_at, u.columns, u.summary
		FROM heads h JOIN updates u ON u.sequence = h.sequence LEFT JOIN conversations c ON c.id = h.id
		WHERE h.id = ? AND c.sequence IS NOT h.sequence
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
