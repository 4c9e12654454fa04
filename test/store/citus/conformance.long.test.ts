import { describe } from "vitest";
import type { IsSameRecord } from "../../../src/store/duplicates.ts";
import type { Store } from "../../../src/store/store.ts";
import { allTables } from "../../../src/store/tables.ts";
import { type StoreHarness, storeConformance, storeLaws } from "../conformance.ts";
import { openStore, sqlOn } from "../postgres/databases.ts";
import { describeOnCitus } from "./on-citus.ts";

/** Makes a database as a new one is, in a twentieth of the time that a new one takes. */
const EMPTY = allTables("postgres").flatMap(({ name, rows }) => [
	`DELETE FROM conversation_updates.${name}`,
	...(rows === undefined ? [] : [`INSERT INTO conversation_updates.${name} ${rows}`]),
]);

await describeOnCitus("PostgreSQL store on Citus", (cluster) => {
	const opened = new WeakMap<Store, { url: string; isSameRecord: IsSameRecord }>();
	/** Databases whose stores are closed. */
	const free: string[] = [];
	const openAt = async (url: string, isSameRecord: IsSameRecord): Promise<Store> => {
		const store = await openStore(url, { isSameRecord });
		const close = async () => {
			await store.close();
			if (!free.includes(url)) free.push(url);
		};
		const returning = { ...store, close, [Symbol.asyncDispose]: close };
		opened.set(returning, { url, isSameRecord });
		return returning;
	};
	const harness: StoreHarness = {
		reportsRoots: false,
		async open(isSameRecord) {
			const url = free.pop();
			if (url === undefined) {
				const created = await cluster().createDatabase();
				await (await openStore(created, { distribute: true })).close();
				return openAt(created, isSameRecord);
			}
			await sqlOn(url, EMPTY.join(";"));
			return openAt(url, isSameRecord);
		},
		async reopen(store) {
			await store.close();
			const { url, isSameRecord } = opened.get(store) ?? {};
			if (url === undefined || isSameRecord === undefined) throw new Error("the store was not opened here");
			free.splice(free.indexOf(url), 1);
			return openAt(url, isSameRecord);
		},
	};
	describe("with an empty store", () => storeConformance(harness));
	storeLaws(harness, 2);
});
