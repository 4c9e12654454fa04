import { copyFileSync, linkSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { backupDatabase, restoreDatabase } from "../../src/store/sqlite/backup.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

let folder: TempFolder;
let path: string;
beforeEach(() => {
	folder = new TempFolder();
	path = folder.file("conversations.db");
});
afterEach(() => folder[Symbol.dispose]());

/** Opens the store. Returns the stored sequences, and that of a new update. */
async function openAndAppend(database: string) {
	await using store = await openSqliteStore(database, { error() {} });
	const stored = (await store.updates.list({ after: 0n, limit: 100, withRecords: false })).map(
		({ sequence }) => sequence,
	);
	return { stored, next: (await append(store, sample())).sequence };
}

test("a start after a crash has what was stored, and goes on with the next sequence", async () => {
	const crashed = folder.file("crashed.db");
	{
		await using store = await openSqliteStore(path, { error() {} });
		for (let n = 0; n < 3; n++) await append(store, sample());
		for (const end of ["", "-wal", "-shm"]) copyFileSync(`${path}${end}`, `${crashed}${end}`);
	}
	expect(await openAndAppend(crashed)).toEqual({ stored: [1n, 2n, 3n], next: 4n });
	expect(await openAndAppend(crashed)).toEqual({ stored: [1n, 2n, 3n, 4n], next: 5n });
});

const refusal = (reason: string) => ({
	kind: "unavailable",
	message: "the store's database cannot be opened",
	cause: new Error(reason),
});

describe("a database file", () => {
	test("that was emptied is refused until it is removed or restored", async () => {
		await openAndAppend(path);
		const backup = folder.file("backup.db");
		await backupDatabase(path, backup, () => undefined);
		truncateSync(path, 0);
		await expect(openAndAppend(path)).rejects.toMatchObject(
			refusal(`${path} is empty, but it held a database: restore a backup, or remove the file to begin without data`),
		);
		await restoreDatabase(path, backup, () => undefined);
		expect(await openAndAppend(path)).toMatchObject({ stored: [1n] });
		rmSync(path);
		expect(await openAndAppend(path)).toMatchObject({ stored: [] });
	});

	test("that is new and empty is used", async () => {
		writeFileSync(path, "");
		expect(await openAndAppend(path)).toMatchObject({ stored: [], next: 1n });
	});

	test("with a second name is refused by both names", async () => {
		await openAndAppend(path);
		const other = folder.file("other.db");
		linkSync(path, other);
		for (const name of [path, other])
			await expect(openAndAppend(name)).rejects.toMatchObject(refusal(`${name} has 2 hard links; remove all but one`));
		rmSync(other);
		expect(await openAndAppend(path)).toMatchObject({ stored: [1n] });
	});
});
