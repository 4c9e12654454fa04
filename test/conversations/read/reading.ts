import type { KeyObject } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import type { JsonObject } from "@bufbuild/protobuf";
import { UpdateParser } from "../../../src/conversations/ingest/update-parser.ts";
import { GetConversation } from "../../../src/conversations/read/get.ts";
import { ListConversations } from "../../../src/conversations/read/list.ts";
import { PageTokens } from "../../../src/conversations/read/page-token.ts";
import type { OnUnreadable } from "../../../src/conversations/read/record-opener.ts";
import { UpdateViews } from "../../../src/conversations/read/update-view.ts";
import { ListConversationUpdates } from "../../../src/conversations/read/updates.ts";
import { ServiceError } from "../../../src/errors.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import type { Appended, Store } from "../../../src/store/store.ts";
import { record } from "../../support/fixtures.ts";
import { TempFolder } from "../../support/temp.ts";

export const format = new RecordFormat();

/** The read handlers over a SQLite file of their own. */
export class Reading implements AsyncDisposable {
	readonly store: Store;
	readonly vault: RecordVault;
	readonly views: UpdateViews;
	readonly get: GetConversation;
	readonly list: ListConversations;
	readonly updates: ListConversationUpdates;
	readonly #folder: TempFolder;
	readonly #parser: UpdateParser;
	/** Records that could not be read. */
	readonly unreadable: { readonly conversationId: string; readonly sequence: bigint }[] = [];

	private constructor(folder: TempFolder, store: Store, keys: readonly KeyObject[]) {
		const vault = new RecordVault(format, keys);
		const tokens = new PageTokens([Buffer.alloc(32, 1)]);
		this.#folder = folder;
		this.store = store;
		this.vault = vault;
		this.#parser = new UpdateParser(format, vault);
		const onUnreadable: OnUnreadable = ({ conversationId, sequence }) =>
			this.unreadable.push({ conversationId, sequence });
		this.views = new UpdateViews(store, vault, onUnreadable);
		this.get = new GetConversation(store, format, vault, onUnreadable);
		this.list = new ListConversations(store, vault, tokens, onUnreadable);
		this.updates = new ListConversationUpdates(store, this.views, tokens);
	}

	/** @param keys encryption keys; with none, secrets are stored redacted */
	static async open(keys: readonly KeyObject[] = []): Promise<Reading> {
		const folder = new TempFolder();
		const store = await openSqliteStore(folder.file("conversations.db"), { error() {} });
		return new Reading(folder, store, keys);
	}

	/** Keeps a record with the required members and `members` over them. */
	keep(members: JsonObject): Promise<Appended> {
		return this.store.append(this.#parser.fromRecord(format.fromJson(record(members))));
	}

	/** Changes what is stored of an update to bytes that are none of ours. */
	damage(sequence: bigint, column: "record" | "summary" = "record"): void {
		const database = new DatabaseSync(this.#folder.file("conversations.db"), { timeout: 5_000 });
		database.prepare(`UPDATE updates SET ${column} = x'ff' WHERE sequence = ?`).run(sequence);
		database.close();
	}

	/** Removes all history but the newest `count` updates of each conversation. */
	async pruneTo(count: number): Promise<void> {
		while ((await this.store.prune({ updatesPerConversation: count, limit: 1000 })) > 0);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.store.close();
		this.#folder[Symbol.dispose]();
	}
}

/** What an action is refused with. */
export async function refusal(action: Promise<unknown>): Promise<{ kind: string; message: string }> {
	try {
		await action;
	} catch (error) {
		if (error instanceof ServiceError) return { kind: error.kind, message: error.message };
		throw error;
	}
	throw new Error("nothing was refused");
}
