import { copyFileSync, linkSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { backupDatabase, restoreDatabase } from "../../src/store/sqlite/backup.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

const SKIPPED = 10n ** 9n;

let folder: TempFolder;
let path: string;
beforeEach(() => {
	folder = new TempFolder();
	path = folder.file("conversations.db");
});
afterEach(() => folder[Symbol.dispose]());

/** Opens the store. Returns whether it reported an unclean stop, the stored sequences, and that of a new update. */
async function openAndAppend(database: string) {
	let isUnclean = false;
	const onUncleanStop = () => {
		isUnclean = true;
	};
	await using store = await openSqliteStore(database, { error() {} }, { onUncleanStop });
	const stored = (await store.updates.list({ after: 0n, limit: 100, withRecords: false })).map(
		({ sequence }) => sequence,
	);
	return { isUnclean, stored, next: (await append(store, sample())).sequence };
}

/** Appends updates and returns the path of the files as a crash would leave them. */
async function crashAfter(updates: number): Promise<string> {
	const crashed = folder.file("crashed.db");
	await using store = await openSqliteStore(path, { error() {} });
	for (let n = 0; n < updates; n++) await append(store, sample());
	for (const end of ["", "-wal", "-shm"]) copyFileSync(`${path}${end}`, `${crashed}${end}`);
	return crashed;
}

describe("a start", () => {
	test("skips nothing after a clean stop", async () => {
		expect(await openAndAppend(path)).toEqual({ isUnclean: false, stored: [], next: 1n });
		expect(await openAndAppend(path)).toEqual({ isUnclean: false, stored: [1n], next: 2n });
	});

	test("skips sequences once after a crash, and says so", async () => {
		const crashed = await crashAfter(3);
		expect(await openAndAppend(crashed)).toEqual({ isUnclean: true, stored: [1n, 2n, 3n], next: SKIPPED + 4n });
		expect(await openAndAppend(crashed)).toEqual({
			isUnclean: false,
			stored: [1n, 2n, 3n, SKIPPED + 4n],
			next: SKIPPED + 5n,
		});
	});

	test("gives no sequence twice when the disk has lost the last commits, or the whole log", async () => {
		const crashed = await crashAfter(5);
		truncateSync(`${crashed}-wal`, readFileSync(`${crashed}-wal`).length - 100);
		const cut = await openAndAppend(crashed);
		expect(cut).toEqual({ isUnclean: true, stored: [1n, 2n, 3n, 4n], next: SKIPPED + 5n });
		const again = await crashAfter(2);
		for (const end of ["-wal", "-shm"]) rmSync(`${again}${end}`);
		const lost = await openAndAppend(again);
		expect(lost).toMatchObject({ isUnclean: true });
		expect(lost.next).toBeGreaterThan(SKIPPED);
	});

	test("skips nothing in a restored backup of a running service", async () => {
		const backup = folder.file("backup.db");
		{
			await using store = await openSqliteStore(path, { error() {} });
			await append(store, sample());
			await backupDatabase(path, backup, () => undefined);
		}
		const restored = folder.file("restored.db");
		await restoreDatabase(restored, backup, () => undefined);
		expect(await openAndAppend(restored)).toEqual({ isUnclean: false, stored: [1n], next: 2n });
	});
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
