import { afterAll, beforeAll, describe } from "vitest";
import type { IsSameRecord } from "../../../src/store/duplicates.ts";
import type { Store } from "../../../src/store/store.ts";
import { storeConformance } from "../conformance.ts";
import { Databases, openStore } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

describe("PostgreSQL store", () => {
	const opened = new WeakMap<Store, { url: string; isSameRecord: IsSameRecord }>();
	const openAt = async (url: string, isSameRecord: IsSameRecord) => {
		const store = await openStore(url, { isSameRecord });
		opened.set(store, { url, isSameRecord });
		return store;
	};
	storeConformance({
		open: async (isSameRecord) => openAt(await databases.createMigrated(), isSameRecord),
		async reopen(store) {
			await store.close();
			const { url, isSameRecord } = opened.get(store) ?? {};
			if (url === undefined || isSameRecord === undefined) throw new Error("the store was not opened here");
			return openAt(url, isSameRecord);
		},
	});
});
