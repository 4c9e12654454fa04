import type { IsSameRecord } from "../../src/store/duplicates.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import type { StoreHarness } from "./conformance.ts";
import { type Databases, openStore } from "./postgres/databases.ts";

/**
 * Opens stores, and opens them again where they were.
 *
 * @param place returns the place of a new store
 */
function harnessOf(
	place: () => Promise<string> | string,
	openAt: (place: string, isSameRecord: IsSameRecord) => Promise<Store>,
): StoreHarness {
	const opened = new WeakMap<Store, () => Promise<Store>>();
	const open = async (at: string, isSameRecord: IsSameRecord): Promise<Store> => {
		const store = await openAt(at, isSameRecord);
		opened.set(store, () => open(at, isSameRecord));
		return store;
	};
	return {
		open: async (isSameRecord) => await open(await place(), isSameRecord),
		async reopen(store) {
			await store.close();
			const again = opened.get(store);
			if (again === undefined) throw new Error("the store was not opened here");
			return await again();
		},
	};
}

/** Stores in files of SQLite, each at a new path. */
export function sqliteHarness(newPath: () => string): StoreHarness {
	return harnessOf(newPath, (path, isSameRecord) =>
		openSqliteStore(path, { error: () => undefined }, { isSameRecord }),
	);
}

/** Stores in databases of a PostgreSQL server. */
export function postgresHarness(databases: () => Databases): StoreHarness {
	return harnessOf(
		() => databases().createMigrated(),
		(url, isSameRecord) => openStore(url, { isSameRecord }),
	);
}
