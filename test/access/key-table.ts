import { type AccessKeyCalls, AccessKeys, type AccessKeysOptions } from "../../src/access/access-keys.ts";
import type { AuditEntry } from "../../src/store/access.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { TempFolder } from "../support/temp.ts";

/** A line of the log about keys: its event and its values. */
export type KeyLine = readonly unknown[];

/** The table of access keys of a SQLite store, and access keys that follow it. */
export class KeyTable implements AsyncDisposable {
	readonly lines: KeyLine[] = [];
	readonly log = {
		emit: (...line: KeyLine) => void this.lines.push(line),
		workFailed: (...values: unknown[]) => void this.lines.push(["failed", ...values]),
	};
	readonly table: AccessKeyCalls;
	/** Returns the entries of the audit, the newest first. */
	readonly audit: () => Promise<AuditEntry[]>;
	readonly folder: TempFolder;
	readonly #resources: AsyncDisposableStack;

	private constructor(folder: TempFolder, store: Store, resources: AsyncDisposableStack) {
		this.folder = folder;
		this.table = store;
		this.audit = () => store.tables.read.listAudit({ owner: undefined, before: undefined, limit: 100 });
		this.#resources = resources;
	}

	static async open(): Promise<KeyTable> {
		const resources = new AsyncDisposableStack();
		const folder = resources.use(new TempFolder());
		const store = await openSqliteStore(folder.file("conversations.db"), { error: () => undefined });
		resources.use(store);
		return new KeyTable(folder, store, resources);
	}

	/** Opens access keys that are disposed of with the table, or before. */
	async opened(options: Partial<AccessKeysOptions> = {}): Promise<AccessKeys> {
		return this.#resources.use(await AccessKeys.open(this.table, { configured: [], log: this.log, ...options }));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#resources.disposeAsync();
	}
}
