import {
	copyFileSync,
	linkSync,
	mkdirSync,
	readFileSync,
	renameSync,
	rmSync,
	symlinkSync,
	writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { TempFolder } from "../support/temp.ts";
import { append, type Sample, sample } from "./samples.ts";

const REFUSED = {
	name: "ServiceError",
	kind: "unavailable",
	message: "the store's database was moved, deleted or replaced",
};

let folder: TempFolder;
let path: string;
let store: Store;
let lines: object[];
beforeEach(async () => {
	folder = new TempFolder();
	lines = [];
	mkdirSync(folder.file("data"));
	path = folder.file(join("data", "conversations.db"));
	store = await openSqliteStore(path, { error: (fields) => lines.push(fields) });
});
afterEach(async () => {
	await store.close();
	folder[Symbol.dispose]();
});

async function sequences(from: Store): Promise<bigint[]> {
	return (await from.updates.list({ after: 0n, limit: 1_000_000, withRecords: false })).map(({ sequence }) => sequence);
}

async function expectRefused(cause: string, duplicate: Sample): Promise<void> {
	lines = [];
	await expect(store.check()).rejects.toMatchObject(REFUSED);
	await expect(append(store, sample())).rejects.toMatchObject(REFUSED);
	await expect(append(store, duplicate)).rejects.toMatchObject(REFUSED);
	const error = { ...REFUSED, cause: new Error(`${cause} (SQLite result code 1032)`) };
	expect(lines).toMatchObject([
		{ err: error, operation: "check" },
		{ err: error, operation: "append" },
		{ err: error, operation: "append" },
	]);
	// Acknowledged updates can still be read.
	expect(await sequences(store)).toEqual([1n]);
}

describe("a store whose files are not in their place", () => {
	test.each(["conversations.db", "conversations.db-wal", "conversations.db-shm"])(
		"acknowledges nothing while %s is missing, and works again when it is back",
		async (name) => {
			const file = folder.file(join("data", name));
			const update = sample();
			await append(store, update);
			renameSync(file, folder.file("away"));
			await expectRefused(`${file} was deleted or moved while the database was open`, update);
			renameSync(folder.file("away"), file);
			await store.check();
			expect(await append(store, update)).toMatchObject({ sequence: 1n, duplicate: true });
			expect(await append(store, sample())).toMatchObject({ sequence: 2n });
		},
	);

	test.each(["", "-wal", "-shm"])("acknowledges nothing while another file replaces <path>%s", async (end) => {
		const file = `${path}${end}`;
		const update = sample();
		await append(store, update);
		const copy = readFileSync(file);
		linkSync(file, folder.file("own"));
		rmSync(file);
		writeFileSync(file, copy);
		await expectRefused(`${file} was replaced by another file while it was open`, update);
		renameSync(folder.file("own"), file);
		await store.check();
		expect(await append(store, sample())).toMatchObject({ sequence: 2n });
	});

	test.each(["-wal", "-shm"])("has all acknowledged updates in <path> when <path>%s is deleted", async (end) => {
		for (let n = 0; n < 5; n++) await append(store, sample());
		rmSync(`${path}${end}`);
		await expect(store.check()).rejects.toMatchObject(REFUSED);
		const copy = folder.file("copy.db");
		copyFileSync(path, copy);
		await using again = await openSqliteStore(copy, { error() {} });
		expect(await sequences(again)).toEqual([1n, 2n, 3n, 4n, 5n]);
	});

	test("loses no acknowledged update while the database file is moved away and back under load", async () => {
		const away = folder.file(join("data", "away.db"));
		const acknowledged: bigint[] = [];
		let refused = 0;
		let stop = false;
		const writers = Array.from({ length: 4 }, async () => {
			while (!stop)
				await append(store, sample()).then(
					({ sequence }) => acknowledged.push(sequence),
					() => {
						refused += 1;
					},
				);
		});
		// A failed expectation ends the writers, too.
		using writing = new DisposableStack();
		writing.defer(() => {
			stop = true;
		});
		for (let move = 1; move <= 5; move++) {
			await expect.poll(() => acknowledged.length).toBeGreaterThan(move * 20);
			renameSync(path, away);
			await expect(store.check()).rejects.toMatchObject(REFUSED);
			const before = refused;
			await expect.poll(() => refused).toBeGreaterThan(before + 8);
			const known = [...acknowledged];
			// The files as a start would find them if the database file were moved back now.
			const copy = folder.file(`copy-${move}.db`);
			copyFileSync(away, copy);
			copyFileSync(`${path}-wal`, `${copy}-wal`);
			await using again = await openSqliteStore(copy, { error() {} });
			expect(await sequences(again)).toEqual(expect.arrayContaining(known));
			renameSync(away, path);
			await store.check();
		}
		stop = true;
		await Promise.all(writers);
		expect(await sequences(store)).toEqual(expect.arrayContaining(acknowledged));
	});
});

describe("a store whose path is a symbolic link", () => {
	let link: string;
	beforeEach(async () => {
		link = folder.file("link.db");
		symlinkSync(path, link);
		await append(store, sample());
		await store.close();
		store = await openSqliteStore(link, { error: (fields) => lines.push(fields) });
	});

	test("refuses appends while one of its files or the link is moved, and works otherwise", async () => {
		const update = sample();
		expect(await append(store, update)).toMatchObject({ sequence: 2n });
		for (const file of [link, path, `${path}-wal`, `${path}-shm`]) {
			renameSync(file, folder.file("away"));
			await expect(store.check()).rejects.toMatchObject(REFUSED);
			await expect(append(store, sample())).rejects.toMatchObject(REFUSED);
			renameSync(folder.file("away"), file);
			await store.check();
			expect(await append(store, update)).toMatchObject({ sequence: 2n, duplicate: true });
		}
	});

	test("refuses appends when the link leads to another file, although its own file is in its place", async () => {
		rmSync(link);
		symlinkSync(folder.file("other.db"), link);
		writeFileSync(folder.file("other.db"), "");
		await expect(store.check()).rejects.toMatchObject(REFUSED);
		await expect(append(store, sample())).rejects.toMatchObject(REFUSED);
	});

	test("keeps another store from opening the file by its own name", async () => {
		const refused = { kind: "unavailable", message: "the store is locked by another process" };
		await expect(openSqliteStore(path, { error() {} }, { lockTimeout: 50 })).rejects.toMatchObject(refused);
	});
});
