import type { KeyObject } from "node:crypto";
import { type EventIngest, type EventIntake, eventIngestOf } from "../../../src/conversations/ingest/event-ingest.ts";
import { type Ingest, ingestOf } from "../../../src/conversations/ingest/ingest.ts";
import { EventFormat } from "../../../src/events/event-format.ts";
import { recordIntake, UpdateParser } from "../../../src/intake/record-intake.ts";
import { stringifyExactJson } from "../../../src/record/json/exact-json.ts";
import type { ExactJson, ExactJsonObject } from "../../../src/record/json/json-value.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import type { IsSameRecord } from "../../../src/store/duplicates.ts";
import type { StoredUpdate } from "../../../src/store/entries.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../../src/store/store.ts";
import type { EventLog } from "../../../src/telemetry/log.ts";
import { TempFolder } from "../../support/temp.ts";

const format = new RecordFormat();

/** Signal of a request that is not cancelled. */
const WAITING = { aborted: false };
export const POSTER = { sender: "agent", owner: undefined };

type OpenStore = (file: string, options: { readonly isSameRecord: IsSameRecord }) => Promise<Store>;

/** Ingests records and events into a real store on one thread, and collects what is logged. */
export class LiveService implements AsyncDisposable {
	readonly store: Store;
	readonly ingest: Ingest;
	readonly events: EventIngest;
	readonly logged: unknown[] = [];
	/** What the indexer of search was given. */
	readonly indexed: unknown[] = [];
	readonly #vault: RecordVault;
	readonly #parser: UpdateParser;
	readonly #folder: TempFolder;

	private constructor(
		store: Store,
		keys: readonly KeyObject[],
		folder: TempFolder,
		wrap: (store: Store) => Store,
		timeZone: string,
	) {
		const vault = new RecordVault(format, keys);
		this.store = store;
		this.#vault = vault;
		this.#folder = folder;
		const eventFormat = new EventFormat(format, keys, timeZone);
		const here = recordIntake(format, vault, eventFormat);
		const intake: EventIntake = {
			eventsFromJson: async (body) => here.eventsFromJson(body),
			eventsFromRequest: async (request) => here.eventsFromRequest(request),
			applyEvents: async (request) => here.applyEvents(request),
		};
		const indexer = { add: (...added: unknown[]) => void this.indexed.push(added) };
		const parser = new UpdateParser(format, vault);
		this.#parser = parser;
		const log: EventLog = {
			emit: (_, { reasons = {}, locs = [] } = {}, error) => {
				if (error instanceof Error) this.logged.push(error.message);
				else this.logged.push(locs, reasons);
			},
		};
		this.events = eventIngestOf(wrap(store), intake, log, { indexer });
		this.ingest = ingestOf(
			store,
			{
				fromJson: async (body) => parser.fromJson(body),
				fromRequest: async (request) => parser.fromRequest(request),
				fromFetched: async (record) => parser.fromFetched(record),
			},
			this.events,
		);
	}

	/**
	 * @param keys encryption keys; with none, secrets are stored redacted
	 * @param wrap wraps the store for the ingest of events
	 * @param openStore opens a store; by default one of SQLite in a new file
	 * @param timeZone that of times of events without one
	 */
	static async open(
		keys: readonly KeyObject[] = [],
		wrap: (store: Store) => Store = (store) => store,
		openStore: OpenStore = (file, options) => openSqliteStore(file, console, options),
		timeZone = "UTC",
	): Promise<LiveService> {
		const vault = new RecordVault(format, keys);
		const folder = new TempFolder();
		const store = await openStore(folder.file("live.db"), { isSameRecord: async (a, b) => vault.isSame(a, b) });
		return new LiveService(store, keys, folder, wrap, timeZone);
	}

	/** Posts a record as JSON or text. */
	async post(record: ExactJsonObject | string): Promise<void> {
		await this.ingest.json(
			Buffer.from(typeof record === "string" ? record : stringifyExactJson(record)),
			POSTER,
			WAITING,
		);
	}

	/** Stores a posted record without applying stored events to it. */
	async postUnsettled(record: ExactJsonObject): Promise<void> {
		await this.store.append(this.#parser.fromJson(Buffer.from(stringifyExactJson(record))));
	}

	/** Posts a batch of events as JSON or text. */
	async batch(conversationId: string, events: readonly ExactJsonObject[] | string) {
		return await this.events.json(
			conversationId,
			Buffer.from(typeof events === "string" ? events : stringifyExactJson(events)),
			POSTER,
			WAITING,
		);
	}

	/** Returns the current record with its secrets in plaintext; undefined when there is none. */
	async record(conversationId: string): Promise<ExactJsonObject | undefined> {
		const update = await this.store.get(conversationId);
		return update && this.shown(update);
	}

	/** Returns a record as it is read after it was posted. */
	asStored(json: ExactJson): ExactJsonObject {
		return format.toJson(this.#vault.open(this.#vault.protect(format.fromJson(json)).bytes, "plaintext"));
	}

	/** Returns all updates, oldest first. */
	async updates(): Promise<StoredUpdate[]> {
		return await this.store.updates.list({ after: 0n, limit: 1000, withRecords: true });
	}

	/** Returns the record of an update with its secrets in plaintext. */
	shown({ record }: StoredUpdate): ExactJsonObject {
		if (record === undefined || "unreadable" in record) throw new TypeError("the record cannot be read");
		return format.toJson(this.#vault.open(record.bytes, "plaintext"));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.store.close();
		this.#folder[Symbol.dispose]();
	}
}
