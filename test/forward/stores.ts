import { afterAll, beforeAll, vi } from "vitest";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { Databases, openStore } from "../store/postgres/databases.ts";
import { TempFolder } from "../support/temp.ts";

/** Makes databases of both engines for the tests of a file. Each `make` returns what opens one. */
export function stores(): readonly { readonly engine: string; readonly make: () => Promise<() => Promise<Store>> }[] {
	let databases: Databases;
	let folder: TempFolder;
	let made = 0;
	beforeAll(async () => {
		databases = await Databases.start();
		folder = new TempFolder();
	});
	afterAll(async () => {
		await databases[Symbol.asyncDispose]();
		folder[Symbol.dispose]();
	});
	return [
		{
			engine: "SQLite",
			make: async () => {
				const path = folder.file(`${++made}.db`);
				return () => openSqliteStore(path, { error: () => undefined });
			},
		},
		{
			engine: "PostgreSQL",
			make: async () => {
				const url = await databases.createMigrated();
				return () => openStore(url);
			},
		},
	];
}

/** Waits until a check passes. */
export async function eventually(check: () => void | Promise<void>, interval = 50): Promise<void> {
	await vi.waitFor(check, { timeout: 60_000, interval });
}
