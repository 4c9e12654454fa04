import { randomBytes } from "node:crypto";
import { copyFile, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { encodeUpdate } from "../../src/store/encoded-update.ts";
import { appender } from "../../src/store/sqlite/append.ts";
import { Listing } from "../../src/store/sqlite/listing.ts";
import { migrate } from "../../src/store/sqlite/migrations.ts";
import { remover } from "../../src/store/sqlite/remove.ts";
import { openSqliteStore, type SqliteOptions } from "../../src/store/sqlite/sqlite.ts";
import type { Store, StoredConversation } from "../../src/store/store.ts";
import type { LinkLog } from "../../src/threads/link.ts";
import { storeConformance } from "./conformance.ts";
import { append, listed, pages, sample, start, stored } from "./samples.ts";

let folder: string;
let files = 0;
beforeAll(async () => {
	folder = await mkdtemp(join(tmpdir(), "store-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function newPath(): string {
	files += 1;
	return join(folder, `${files}`, "deep", "conversations.db");
}

/** What is on disk when the process that has a database open is killed. */
async function crashedCopy(path: string): Promise<string> {
	const crashed = `${path}.crashed`;
	await copyFile(path, crashed);
	await copyFile(`${path}-wal`, `${crashed}-wal`);
	return crashed;
}

/** Keeps stores from bringing their lists up to date by themselves, however slow the test is. */
function onlyWhenAsked(): void {
	vi.useFakeTimers({ toFake: ["setTimeout"] });
	onTestFinished(() => {
		vi.useRealTimers();
	});
}

/** Two byte strings with the same CRC-32. */
function sameChecksum(): [Buffer, Buffer] {
	const known = new Map<number, Buffer>();
	for (;;) {
		const bytes = randomBytes(8);
		const checksum = crc32(bytes);
		const other = known.get(checksum);
		if (other !== undefined) return [other, bytes];
		known.set(checksum, bytes);
	}
}

/** A log that keeps what it is told. */
function recorded(): { log: LinkLog; lines: unknown[] } {
	const lines: unknown[] = [];
	const keep = (fields: unknown, message?: unknown) => lines.push([fields, message]);
	return { log: { error: keep, warn: keep, info: keep }, lines };
}

const silent = recorded().log;
const open = (path: string, options?: SqliteOptions) => openSqliteStore(path, silent, options);

describe("SQLite store", () => {
	const paths = new WeakMap<Store, string>();
	const openAt = async (path: string) => {
		const store = await open(path);
		paths.set(store, path);
		return store;
	};
	storeConformance({
		open: () => openAt(newPath()),
		async reopen(store) {
			await store.close();
			return openAt(paths.get(store) ?? newPath());
		},
	});

	it("leaves one file, with an empty write-ahead log, when it is closed", async () => {
		const path = newPath();
		const store = await open(path);
		await append(store, sample());
		await store.close();
		expect(await readdir(join(path, ".."))).toEqual(["conversations.db"]);
	});

	it("holds every acknowledged update when the process ends without closing", async () => {
		const path = newPath();
		const store = await open(path);
		const update = sample();
		const outcome = await append(store, update);
		const crashed = await crashedCopy(path);
		const again = await open(crashed);
		expect(await again.get(update.conversationId)).toEqual(stored(update, outcome));
		expect(await pages(again, {}, 10, true)).toEqual([[listed(update, outcome, true)]]);
		expect(await append(again, update)).toEqual({ ...outcome, repeated: true });
		await again.close();
		await store.close();
	});

	it("keeps records that differ although their checksums are the same", async () => {
		const store = await open(newPath());
		const { conversationId } = sample();
		const updates = sameChecksum().map((record) =>
			sample({ conversationId, record, digest: undefined, columns: { updatedAt: start } }),
		);
		const outcomes = [];
		for (const update of [...updates, ...updates]) outcomes.push(await append(store, update));
		expect(outcomes.map(({ sequence, repeated }) => ({ sequence, repeated }))).toEqual([
			{ sequence: 1n, repeated: false },
			{ sequence: 2n, repeated: false },
			{ sequence: 1n, repeated: true },
			{ sequence: 2n, repeated: true },
		]);
		await store.close();
	});

	it("keeps the write-ahead log short while it is appended to without a pause", async () => {
		const path = newPath();
		const store = await open(path);
		const records = Array.from({ length: 8 }, () => randomBytes(2 ** 20));
		let longest = 0;
		for (let round = 0; round < 80; round++) {
			await Promise.all(records.map((record) => append(store, sample({ record: Buffer.from(record) }))));
			longest = Math.max(longest, (await stat(`${path}-wal`)).size);
		}
		expect(longest).toBeGreaterThan(128 * 2 ** 20);
		expect(longest).toBeLessThan(400 * 2 ** 20);
		expect((await store.range()).newest).toBe(640n);
		await store.close();
	}, 60_000);

	it("fails while another process holds the lock, says so, and works again afterwards", async () => {
		const path = newPath();
		const { log, lines } = recorded();
		const store = await openSqliteStore(path, log, { lockTimeout: 20 });
		const other = new DatabaseSync(path);
		other.exec("BEGIN IMMEDIATE");
		const update = sample();
		const failure = {
			name: "ServiceError",
			kind: "unavailable",
			message: "the store is locked by another process",
			cause: new Error("database is locked (SQLite result code 5)"),
		};
		const outcomes = await Promise.allSettled([append(store, update), append(store, sample())]);
		expect(outcomes).toMatchObject([
			{ status: "rejected", reason: failure },
			{ status: "rejected", reason: failure },
		]);
		expect(lines).toMatchObject([[{ err: failure, operation: "append", count: 2 }, "the store failed"]]);
		await expect(store.check()).rejects.toMatchObject(failure);
		expect(await store.get(update.conversationId)).toBeUndefined();
		other.exec("ROLLBACK");
		other.close();
		await store.check();
		const outcome = await append(store, update);
		expect(await store.listUpdates({ after: 0n, limit: 10, withRecords: true })).toEqual([stored(update, outcome)]);
		await store.close();
	});

	it("gives no list that lacks an acknowledged update: it fails while the list cannot be brought up to date", async () => {
		onlyWhenAsked();
		const path = newPath();
		const store = await openSqliteStore(path, silent, { lockTimeout: 20 });
		const update = sample();
		const outcome = await append(store, update);
		const other = new DatabaseSync(path);
		other.exec("BEGIN IMMEDIATE");
		const all = { filter: {}, limit: 10, withRecords: false };
		const failure = { kind: "unavailable", message: "the store is locked by another process" };
		await expect(store.listConversations(all)).rejects.toMatchObject(failure);
		other.exec("ROLLBACK");
		expect(await store.listConversations(all)).toEqual([listed(update, outcome)]);
		other.exec("BEGIN IMMEDIATE");
		expect(await store.listConversations(all)).toEqual([listed(update, outcome)]);
		other.exec("ROLLBACK");
		other.close();
		await store.close();
	});

	it("opens a database that is locked while its list is behind", async () => {
		onlyWhenAsked();
		const path = newPath();
		const store = await open(path);
		const update = sample();
		const outcome = await append(store, update);
		const crashed = await crashedCopy(path);
		const other = new DatabaseSync(crashed);
		other.exec("BEGIN IMMEDIATE");
		const again = await openSqliteStore(crashed, silent, { lockTimeout: 20 });
		expect(await again.get(update.conversationId)).toEqual(stored(update, outcome));
		await expect(pages(again, {}, 10)).rejects.toMatchObject({ message: "the store is locked by another process" });
		other.exec("ROLLBACK");
		other.close();
		expect(await pages(again, {}, 10)).toEqual([[listed(update, outcome)]]);
		await again.close();
		await store.close();
	});

	it("lists what another process appended before both ended without closing", async () => {
		const path = newPath();
		const stores = [await open(path), await open(path)];
		const updates = [sample(), sample(), sample()];
		const expected: StoredConversation[] = [];
		for (const [n, update] of updates.entries()) {
			const store = stores[n % 2];
			if (store === undefined) throw new Error("there are two stores");
			expected.unshift(listed(update, await append(store, update)));
		}
		expect((await pages(stores[0] ?? (await open(path)), {}, 10)).flat()).toEqual(expected);
		const crashed = await crashedCopy(path);
		const again = await open(crashed);
		expect((await pages(again, {}, 10)).flat()).toEqual(expected);
		for (const store of [again, ...stores]) await store.close();
	});

	it("brings lists up to date by itself, after a while and when it closes", async () => {
		const path = newPath();
		const store = await open(path);
		const other = new DatabaseSync(path);
		const listedThrough = () => other.prepare("SELECT listed_through FROM store_state").get()?.listed_through;
		await append(store, sample());
		await append(store, sample());
		await expect.poll(listedThrough, { timeout: 10_000 }).toBe(2);
		await append(store, sample());
		await store.close();
		expect(listedThrough()).toBe(3);
		other.close();
	});

	it("keeps the record of an update that is still listed when a newer one is not yet", () => {
		const database = new DatabaseSync(":memory:", { readBigInts: true });
		migrate(database);
		const listing = new Listing(database);
		const appendOne = appender(database);
		const { conversationId } = sample();
		for (const sequence of [1n, 2n]) {
			const update = sample({ conversationId });
			const written = appendOne(encodeUpdate(update), () => sequence);
			expect(written).toEqual({
				appended: { sequence, repeated: false, change: sequence === 1n ? "started" : "updated", current: true },
				conversation: 1n,
			});
			listing.committed(1n, sequence);
			if (sequence === 1n) listing.catchUp();
		}
		const remove = remover(database);
		expect(remove.history([1])).toBe(0);
		listing.catchUp();
		expect(remove.history([1])).toBe(1);
		database.close();
	});

	it("fails when it is full, keeps what it acknowledged, and works again when there is room", async () => {
		const store = await open(newPath(), { maxBytes: 2 ** 20 });
		const { conversationId } = sample();
		const appended: bigint[] = [];
		let failure: unknown;
		while (failure === undefined && appended.length < 100) {
			await append(store, sample({ conversationId, record: randomBytes(50_000) })).then(
				({ sequence }) => appended.push(sequence),
				(error: unknown) => {
					failure = error;
				},
			);
		}
		expect(failure).toMatchObject({ name: "ServiceError", kind: "unavailable", message: "the store is full" });
		const kept = await store.listUpdates({ after: 0n, limit: 100, withRecords: false });
		expect(kept.map(({ sequence }) => sequence)).toEqual(appended);
		expect(await store.prune({ updatesPerConversation: 1, limit: 100 })).toBe(appended.length - 1);
		const update = sample({ record: randomBytes(50_000) });
		expect(await append(store, update)).toMatchObject({ repeated: false });
		await store.close();
	});

	it("loses no update because another one of the same batch cannot be written", async () => {
		const store = await open(newPath());
		const [first, bad, last] = [sample(), sample({ seal: 0.5 }), sample()];
		const outcomes = await Promise.allSettled([first, bad, last].map((update) => append(store, update)));
		expect(outcomes).toMatchObject([
			{ status: "fulfilled", value: { repeated: false } },
			{ status: "rejected", reason: { name: "ServiceError", kind: "unavailable", message: "the store failed" } },
			{ status: "fulfilled", value: { repeated: false } },
		]);
		const kept = await store.listUpdates({ after: 0n, limit: 10, withRecords: false });
		expect(kept.map(({ conversationId }) => conversationId)).toEqual([first.conversationId, last.conversationId]);
		await store.close();
	});

	it("does not open below a file, in place of a folder, or a file that is no database", async () => {
		const file = join(folder, "plain");
		await writeFile(
			file,
			"not a database, only some text that is long enough to be looked at as if it were one.".repeat(20),
		);
		await expect(open(join(file, "conversations.db"))).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database cannot be opened",
		});
		await expect(open(folder)).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database cannot be opened",
		});
		await expect(open(file)).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database is damaged or is not a database",
		});
	});

	it("keeps a failing listener from the others and from the append", async () => {
		const { log, lines } = recorded();
		const store = await openSqliteStore(newPath(), log);
		const failure = new Error("listener");
		const heard: bigint[] = [];
		store.subscribe(() => {
			throw failure;
		});
		store.subscribe((newest) => heard.push(newest));
		const { sequence } = await append(store, sample());
		await expect.poll(() => heard).toEqual([sequence]);
		expect(lines).toEqual([[{ err: failure }, "a listener of the store failed"]]);
		await store.close();
	});
});
