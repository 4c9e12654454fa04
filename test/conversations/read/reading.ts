import type { KeyObject } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { fromBinary, type JsonObject } from "@bufbuild/protobuf";
import { expect } from "vitest";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import type { Reads } from "../../../src/conversations/conversation-reads.ts";
import { type EventViews, eventViews, listEvents } from "../../../src/conversations/read/events.ts";
import { listConversations } from "../../../src/conversations/read/list.ts";
import type { OnUnreadable } from "../../../src/conversations/read/records.ts";
import {
	type FoundConversation,
	type GetRequest,
	getEncoded,
	getJson,
} from "../../../src/conversations/read/records.ts";
import { searchConversations } from "../../../src/conversations/read/search.ts";
import { listUpdates, UpdateViews } from "../../../src/conversations/read/updates.ts";
import { ServiceError } from "../../../src/errors.ts";
import { EventFormat } from "../../../src/events/event-format.ts";
import { UpdateParser } from "../../../src/intake/record-intake.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import type { AppendedEvents, AppendedUpdate, NewEvents } from "../../../src/store/entries.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../../src/store/store.ts";
import { record } from "../../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../../support/lock-timeout.ts";
import { TempFolder } from "../../support/temp.ts";

export const format = new RecordFormat();

/** The read handlers with a SQLite store of their own. */
export class Reading implements AsyncDisposable {
	readonly store: Store;
	readonly vault: RecordVault;
	readonly views: UpdateViews;
	readonly get: Reads["get"];
	readonly list: Reads["list"];
	readonly updates: Reads["updates"];
	readonly search: Reads["search"];
	readonly eventViews: EventViews;
	readonly events: Reads["events"];
	readonly #folder: TempFolder;
	readonly #parser: UpdateParser;
	readonly #eventFormat: EventFormat;
	/** Records that were reported as unreadable. */
	readonly unreadable: { readonly conversationId: string; readonly sequence: bigint }[] = [];
	/** Sequences of events that were reported as unreadable. */
	readonly unreadableEvents: bigint[] = [];

	private constructor(folder: TempFolder, store: Store, keys: readonly KeyObject[]) {
		const vault = new RecordVault(format, keys);
		this.#folder = folder;
		this.store = store;
		this.vault = vault;
		this.#parser = new UpdateParser(format, vault);
		const onUnreadable: OnUnreadable = ({ conversationId, sequence }) =>
			this.unreadable.push({ conversationId, sequence });
		const opening = { format, vault, onUnreadable };
		this.views = new UpdateViews(store, opening);
		this.get = {
			getEncoded: (request) => getEncoded(store, opening, request),
			getJson: (request) => getJson(store, opening, request),
		};
		this.list = { list: (request) => listConversations(store, opening, request) };
		this.updates = { list: (request) => listUpdates(store, this.views, request) };
		this.#eventFormat = new EventFormat(format, keys, "UTC");
		this.eventViews = eventViews(this.#eventFormat, ({ sequence }) => this.unreadableEvents.push(sequence));
		this.events = {
			list: (request) => listEvents(store, request, this.eventViews.toEntry),
			listTexts: (request) => listEvents(store, request, this.eventViews.toText),
		};
		const searched = { store, format: this.#eventFormat, onUnreadable };
		this.search = { search: (request, signal) => searchConversations(searched, request, signal) };
	}

	/** Returns the record that GetConversation returns, decoded. */
	async getDecoded(request: GetRequest): Promise<FoundConversation<ConversationInfo>> {
		const found = await this.get.getEncoded(request);
		return { ...found, conversation: fromBinary(ConversationInfoSchema, found.conversation) };
	}

	/** @param keys encryption keys; with none, secrets are stored redacted */
	static async open(keys: readonly KeyObject[] = []): Promise<Reading> {
		const folder = new TempFolder();
		const store = await openSqliteStore(folder.file("conversations.db"), { error() {} });
		return new Reading(folder, store, keys);
	}

	/** Stores a record that has the required members, overridden by `members`. */
	keep(members: JsonObject): Promise<AppendedUpdate> {
		return this.store.append(this.#parser.fromRecord(format.fromJson(record(members))));
	}

	/** Stores the first record of a conversation as one that events made, and returns its sequence. */
	async keepLive(members: JsonObject): Promise<bigint | undefined> {
		const {
			conversationId,
			receivedAt,
			summary,
			facts,
			record: protectedRecord,
		} = this.#parser.fromRecord(format.fromJson(record(members)));
		const effect = { expects: 0n, next: 1n, memberTimes: "{}", version: { summary, facts, record: protectedRecord } };
		return (await this.#append({ conversationId, receivedAt, events: [], effect })).updateSequence;
	}

	/** Stores a batch of events and returns the sequence of the newest one. */
	async keepEvents(conversationId: string, ...events: JsonObject[]): Promise<bigint> {
		const { batch } = this.#eventFormat.parse(conversationId, Buffer.from(JSON.stringify(events)));
		return (await this.#append(batch)).newest;
	}

	async #append(batch: NewEvents): Promise<AppendedEvents> {
		const appended = await this.store.appendEvents(batch);
		if (appended === undefined) throw new Error("the record state is another one");
		return appended;
	}

	/** Overwrites the stored record or summary of an update with a byte that cannot be decoded. */
	damage(sequence: bigint, column: "record" | "summary" = "record"): void {
		this.#change(`UPDATE updates SET ${column} = x'ff' WHERE sequence = ?`, sequence);
	}

	/** Overwrites the stored text of an event with a byte that cannot be decoded. */
	damageEvent(sequence: bigint): void {
		this.#change("UPDATE events SET text = x'ff' WHERE sequence = ?", sequence);
	}

	#change(statement: string, sequence: bigint): void {
		const database = new DatabaseSync(this.#folder.file("conversations.db"), LOCK_TIMEOUT);
		database.prepare(statement).run(sequence);
		database.close();
	}

	/** Prunes the `count` oldest events. */
	async pruneEvents(count: number): Promise<void> {
		if ((await this.store.pruneEvents(2n ** 60n, count)) !== count) throw new Error("there are not so many events");
	}

	/** Prunes all but the newest `count` updates of each conversation. */
	async pruneTo(count: number): Promise<void> {
		while ((await this.store.prune({ updatesPerConversation: count, limit: 1000 })) > 0);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.store.close();
		this.#folder[Symbol.dispose]();
	}
}

/** Returns an event that has the usual members, overridden by `members`. */
export function event(id: string, members: JsonObject = {}): JsonObject {
	return { id, timestamp: "2026-11-21T08:55:31", source: "agent", kind: "MessageEvent", parent_id: null, ...members };
}

/** Returns all pages of a list in order. */
export async function allPages<Page extends { readonly nextPageToken: string }>(
	list: (pageToken: string) => Promise<Page>,
): Promise<Page[]> {
	const all: Page[] = [];
	do all.push(await list(all.at(-1)?.nextPageToken ?? ""));
	while (all.at(-1)?.nextPageToken !== "");
	return all;
}

/** Asserts that pages are full, except for the last one, and together have these sequences. */
export function expectPages(
	found: readonly (readonly { readonly sequence: bigint }[])[],
	pageSize: number,
	sequences: readonly bigint[],
): void {
	expect(found.flat().map(({ sequence }) => sequence)).toEqual(sequences);
	expect(found.map((page) => page.length)).toEqual(
		found.map((_, index) => Math.min(pageSize, sequences.length - index * pageSize)),
	);
}

/** Returns the kind and message of the ServiceError with which an action fails. */
export async function refusal(action: Promise<unknown>): Promise<{ kind: string; message: string }> {
	try {
		await action;
	} catch (error) {
		if (error instanceof ServiceError) return { kind: error.kind, message: error.message };
		throw error;
	}
	throw new Error("nothing was refused");
}
