import { randomBytes } from "node:crypto";
import { copyFile, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { crc32 } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { encodeUpdate } from "../../src/store/encoded-update.ts";
import { appender } from "../../src/store/sqlite/append.ts";
import { Listing } from "../../src/store/sqlite/listing.ts";
import { migrate, migrations } from "../../src/store/sqlite/migrations.ts";
import { remover } from "../../src/store/sqlite/remove.ts";
import { openSqliteStore, type SqliteOptions } from "../../src/store/sqlite/sqlite.ts";
import type { Store, StoredConversation } from "../../src/store/store.ts";
import type { LinkLog } from "../../src/threads/link.ts";
import { storeConformance } from "./conformance.ts";
import { append, bytes, listed, pages, sample, start, stored } from "./samples.ts";

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
		const crashed = `${path}.crashed`;
		await copyFile(path, crashed);
		await copyFile(`${path}-wal`, `${crashed}-wal`);
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
		const path = newPath();
		const store = await open(path);
		const update = sample();
		const outcome = await append(store, update);
		const crashed = `${path}.crashed`;
		await copyFile(path, crashed);
		await copyFile(`${path}-wal`, `${crashed}-wal`);
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
		const crashed = `${path}.crashed`;
		await copyFile(path, crashed);
		await copyFile(`${path}-wal`, `${crashed}-wal`);
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

describe("migrations", () => {
	it("bring an empty file to the newest version, once", () => {
		const database = new DatabaseSync(":memory:");
		migrate(database);
		migrate(database);
		expect({ ...database.prepare("PRAGMA user_version").get() }).toEqual({ user_version: migrations.length });
		const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all();
		expect(tables.map(({ name }) => name)).toEqual(
			expect.arrayContaining(["conversations", "heads", "store_state", "tags", "titles", "updates"]),
		);
		database.close();
	});

	it("run the steps that a database lacks, or none of them when one fails", () => {
		const database = new DatabaseSync(":memory:");
		migrate(database, ["CREATE TABLE one (a)"]);
		const steps = ["CREATE TABLE one (a)", "INSERT INTO one VALUES (7)", "CREATE TABLE two (b)"];
		expect(() => migrate(database, [...steps, "not SQL"])).toThrow("syntax error");
		expect({ ...database.prepare("PRAGMA user_version").get() }).toEqual({ user_version: 1 });
		migrate(database, steps);
		expect({ ...database.prepare("SELECT a, (SELECT count(*) FROM two) AS b FROM one").get() }).toEqual({ a: 7, b: 0 });
		expect({ ...database.prepare("PRAGMA user_version").get() }).toEqual({ user_version: 3 });
		database.close();
	});

	it.each([1, 2])("leave what version %i stored readable, and recognise it when it comes again", async (version) => {
		const path = join(folder, `version-${version}.db`);
		const update = sample({ columns: { updatedAt: start, title: "A title" } });
		const database = new DatabaseSync(path);
		migrate(database, migrations.slice(0, version));
		const id = Buffer.from(update.conversationId.replaceAll("-", ""), "hex");
		database
			.prepare(`INSERT INTO conversations (id, conversation_id, sequence, status, agent_kind, model, updated_at, title, tags, summary)
				VALUES (1, ?, 7, 'idle', 'Agent', 'model-a', ?, 'A title', '{}', ?)`)
			.run(id, start, update.summary);
		database.exec("INSERT INTO titles (rowid, title) VALUES (1, 'A title')");
		const digest = update.digest ?? new Uint8Array();
		const prefix = Buffer.from(digest).readUIntBE(0, 6);
		const seal = version === 1 ? 0 : update.seal;
		const more = version === 1 ? "" : `, ${start}, ${seal}`;
		database
			.prepare(`INSERT INTO updates VALUES (7, 1, 'started', 1, NULL, ?, ?, ?, NULL, ?${more})`)
			.run(update.receivedAt, prefix, digest, update.record);
		database.close();
		const store = await open(path);
		const appended = { sequence: 7n, repeated: false, change: "started", current: true } as const;
		const { conversationId } = update;
		const found = { conversationId, sequence: 7n, summary: bytes(update.summary), record: undefined };
		expect(await store.get(conversationId)).toEqual({ ...stored(update, appended), seal });
		expect(await append(store, update)).toEqual({ ...appended, repeated: true });
		expect(await pages(store, { status: "idle" }, 10)).toEqual([[found]]);
		const late = sample({ conversationId, columns: { updatedAt: start - 1n } });
		expect(await append(store, late)).toMatchObject({ sequence: 8n, current: false });
		expect(await pages(store, { titleContains: "title" }, 10)).toEqual([[found]]);
		const next = sample({ conversationId, columns: { updatedAt: start + 1n, title: "Another" } });
		const outcome = await append(store, next);
		expect(outcome).toMatchObject({ sequence: 9n, current: true });
		expect(await pages(store, { titleContains: "a title" }, 10)).toEqual([]);
		expect(await pages(store, { titleContains: "another" }, 10)).toEqual([[listed(next, outcome)]]);
		await store.close();
	});

	it("refuse a database of a newer release and one of another program", async () => {
		const newer = join(folder, "newer.db");
		const foreign = join(folder, "foreign.db");
		const write = (path: string, sql: string) => {
			const database = new DatabaseSync(path);
			database.exec(sql);
			database.close();
		};
		write(newer, `PRAGMA user_version = ${migrations.length + 1}`);
		write(foreign, "CREATE TABLE theirs (a)");
		await expect(open(newer)).rejects.toMatchObject({
			kind: "unavailable",
			cause: new Error(
				`the database has schema version ${migrations.length + 1}, written by a newer release; this one knows up to ${migrations.length}`,
			),
		});
		await expect(open(foreign)).rejects.toMatchObject({
			kind: "unavailable",
			cause: new Error("the file is a database of another program"),
		});
	});
});
