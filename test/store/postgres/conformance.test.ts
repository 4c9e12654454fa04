import { afterAll, beforeAll, describe } from "vitest";
import type { IsSameRecord, Store } from "../../../src/store/store.ts";
import { storeConformance } from "../conformance.ts";
import { Databases, openStore } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

describe("PostgreSQL store", () => {
	const opened = new WeakMap<Store, { url: string; isSame: IsSameRecord }>();
	const openAt = async (url: string, isSame: IsSameRecord) => {
		const store = await openStore(url, { isSame });
		opened.set(store, { url, isSame });
		return store;
	};
	storeConformance({
		open: async (isSame) => openAt(await databases.create(), isSame),
		async reopen(store) {
			await store.close();
			const { url, isSame } = opened.get(store) ?? {};
			if (url === undefined || isSame === undefined) throw new Error("the store was not opened here");
			return openAt(url, isSame);
		},
	});
});
