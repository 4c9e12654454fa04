import { randomBytes } from "node:crypto";
import { chmod, copyFile, mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openSqliteStore, type SqliteOptions } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { NO_PROGRESS } from "../../src/store/text-index.ts";
import type { ThreadLogger } from "../../src/threads/worker-thread.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { TempFolder } from "../support/temp.ts";
import { storeConformance, storeLaws } from "./conformance.ts";
import { appendEvents, batch, effectOf, event, record, stateUpdate, storedEvent, titleDelta } from "./event-samples.ts";
import { sqliteHarness } from "./harness.ts";
import { append, bytes, pages, type Sample, sample, stored } from "./samples.ts";

let folder: TempFolder;
let files = 0;
beforeAll(() => {
	folder = new TempFolder();
});
afterAll(() => folder[Symbol.dispose]());

function newPath(): string {
	files += 1;
	return join(folder.path, `${files}`, "deep", "conversations.db");
}

/** Copies an open database as it would be on disk if its process were killed. Returns the copy's path. */
async function crashedCopy(path: string): Promise<string> {
	const crashed = `${path}.crashed`;
	await copyFile(path, crashed);
	await copyFile(`${path}-wal`, `${crashed}-wal`);
	return crashed;
}

/** Returns a log that records its lines. */
function recorded(): { log: ThreadLogger; lines: unknown[] } {
	const lines: unknown[] = [];
	return { log: { error: (fields, message) => lines.push([fields, message]) }, lines };
}

const silent = recorded().log;
const open = (path: string, options?: SqliteOptions) => openSqliteStore(path, silent, options);

describe("SQLite store", () => {
	storeConformance(sqliteHarness(newPath));
});

describe("SQLite stores and their files", () => {
	storeLaws(sqliteHarness(newPath));

	it("keeps no words of an event that is removed after its words were taken", async () => {
		const path = newPath();
		const store = await open(path);
		const { conversationId } = sample();
		for (const receivedAt of [1n, 3n])
			await appendEvents(store, batch(conversationId, [event({ happenedAt: receivedAt })], { receivedAt }));
		expect(await store.pruneEvents(2n, 10)).toBe(1);
		const events = [1n, 2n].map((sequence) => ({ conversationId, sequence, words: "word" }));
		const next = { version: 1, events: 2n };
		expect(await store.writeIndexStep({ expects: NO_PROGRESS, next, events })).toBe(true);
		await store.close();
		using database = new DatabaseSync(path, { readBigInts: true });
		expect(database.prepare("SELECT rowid FROM search_texts").all()).toEqual([{ rowid: 2n }]);
	});

	it("leaves only the database and an empty lock file when it is closed", async () => {
		const path = newPath();
		const store = await open(path);
		await append(store, sample());
		await store.close();
		expect(await readdir(join(path, ".."))).toEqual(["conversations.db", "conversations.db.lock"]);
		expect((await stat(`${path}.lock`)).size).toBe(0);
	});

	it("fails with the reason while another connection holds the lock, and works again afterwards", async () => {
		const path = newPath();
		const { log, lines } = recorded();
		const store = await openSqliteStore(path, log, { lockTimeout: 20 });
		const other = new DatabaseSync(path, LOCK_TIMEOUT);
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
		const line = [{ err: failure, operation: "append" }, "the store failed"];
		expect(lines).toMatchObject([line, line]);
		await expect(store.check()).rejects.toMatchObject(failure);
		expect(await store.get(update.conversationId)).toBeUndefined();
		other.exec("ROLLBACK");
		other.close();
		await store.check();
		const outcome = await append(store, update);
		expect(await store.updates.list({ after: 0n, limit: 10, withRecords: true })).toEqual([stored(update, outcome)]);
		await store.close();
	});

	it("fails when it is full, keeps the acknowledged updates, and works again after pruning", async () => {
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
		const kept = await store.updates.list({ after: 0n, limit: 100, withRecords: false });
		expect(kept.map(({ sequence }) => sequence)).toEqual(appended);
		expect(await store.prune({ updatesPerConversation: 1, limit: 100 })).toBe(appended.length - 1);
		const update = sample({ record: randomBytes(50_000) });
		expect(await append(store, update)).toMatchObject({ duplicate: false });
		await store.close();
	});

	it("does not open when its path is below a file, is a folder, or is a file that is no database", async () => {
		const file = folder.file("plain");
		await writeFile(
			file,
			"not a database, only some text that is long enough to be looked at as if it were one.".repeat(20),
		);
		await expect(open(join(file, "conversations.db"))).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database cannot be opened",
		});
		await expect(open(folder.path)).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database cannot be opened",
		});
		const before = [(await stat(file)).mode, await readFile(file)];
		await expect(open(file)).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database is damaged or is not a database",
		});
		expect([(await stat(file)).mode, await readFile(file)]).toEqual(before);
	});

	it("completes the append and calls the other listeners when one listener throws", async () => {
		const { log, lines } = recorded();
		const store = await openSqliteStore(newPath(), log);
		const failure = new Error("listener");
		const heard: bigint[] = [];
		store.updates.subscribe(() => {
			throw failure;
		});
		store.updates.subscribe((newest) => heard.push(newest));
		const { sequence } = await append(store, sample());
		await expect.poll(() => heard).toEqual([sequence]);
		expect(lines).toEqual([[{ err: failure }, "a listener of the store failed"]]);
		await store.close();
	});

	it("has every acknowledged record, and batch with its version, after the process ended without closing it", async () => {
		const path = newPath();
		const store = await open(path);
		const { conversationId } = sample();
		await append(store, sample());
		await append(store, sample({ conversationId, record: record({ id: conversationId, title: "posted" }) }));
		const reported = batch(conversationId, [stateUpdate()], { effect: effectOf(2n, titleDelta("reported")) });
		expect(await appendEvents(store, reported)).toMatchObject({ stored: 1, newest: 1n, updateSequence: 3n });
		const read = async (from: Store) => [
			await from.events.list({ after: 0n, limit: 10 }),
			await from.getRecordState(
				conversationId,
				reported.events.map(({ eventId }) => eventId),
			),
		];
		const before = await read(store);
		const again = await open(await crashedCopy(path));
		expect(await read(again)).toEqual(before);
		await again.close();
		await store.close();
	});

	it("does not open while another store has the database, and opens after that one is closed", async () => {
		const path = newPath();
		const store = await open(path);
		await expect(open(path, { lockTimeout: 20 })).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store is locked by another process",
			cause: new Error(`another process has the database ${path} open`),
		});
		const update = sample();
		const outcome = await append(store, update);
		await store.close();
		const again = await open(path, { lockTimeout: 20 });
		expect(await again.get(update.conversationId)).toEqual(stored(update, outcome));
		await again.close();
	});

	it("makes its files readable for the owner only, also existing ones and in an existing folder", async () => {
		const path = newPath();
		const modes = () =>
			Promise.all(
				["", "-wal", "-shm", ".lock"].map(async (end) => ((await stat(`${path}${end}`)).mode & 0o777).toString(8)),
			);
		await mkdir(dirname(path), { recursive: true, mode: 0o755 });
		const store = await open(path);
		await append(store, sample());
		expect(await modes()).toEqual(["600", "600", "600", "600"]);
		await store.close();
		await chmod(path, 0o644);
		const again = await open(path);
		await append(again, sample());
		expect(await modes()).toEqual(["600", "600", "600", "600"]);
		await again.close();
	});

	describe("with damaged records", () => {
		/** Stores three records, damages the second one with `damage`, and opens the store again. */
		async function damaged(damage: (path: string, update: Sample) => Promise<void> | void, record: Buffer) {
			const path = newPath();
			const first = await open(path);
			const updates = [sample(), sample({ record, columns: { title: "damaged" } }), sample()];
			const outcomes = [];
			for (const update of updates) outcomes.push(await append(first, update));
			await first.close();
			const [, second] = updates;
			if (second !== undefined) await damage(path, second);
			return { store: await open(path), updates, outcomes };
		}

		const withSql = (sql: string) => (path: string) => {
			const database = new DatabaseSync(path);
			database.exec(sql);
			database.close();
		};
		const inFile = (offset: number) => async (path: string, update: Sample) => {
			const file = await readFile(path);
			const place = file.indexOf(Buffer.from(update.record.bytes.subarray(0, 64)));
			if (place === -1) throw new Error("the record is not in the file");
			file.fill(0xff, place + offset, place + offset + 16);
			await writeFile(path, file);
		};
		const text = Buffer.from("Always use tabs. ".repeat(5_000));

		it.each([
			["bytes changed in the file", inFile(20), randomBytes(100_000)],
			["bytes changed in the file, short record", inFile(20), randomBytes(200)],
			["an empty record", withSql("UPDATE updates SET record = x'' WHERE sequence = 2"), text],
			[
				"a truncated compressed record",
				withSql("UPDATE updates SET record = substr(record, 1, 20) WHERE sequence = 2"),
				text,
			],
			["a wrong unpacked size", withSql("UPDATE updates SET unpacked_size = 100 WHERE sequence = 2"), text],
		])("returns the damaged one as unreadable, and the others whole: %s", async (_, damage, record) => {
			const { store, updates, outcomes } = await damaged(damage, record);
			const unreadable = { unreadable: expect.any(String) };
			const expected = updates.map((update, n) => {
				const outcome = outcomes[n];
				if (outcome === undefined) throw new Error("every update has an outcome");
				return { update, outcome };
			});
			const records = (all: readonly { record: unknown }[]) => all.map(({ record: one }) => one);
			const expectedRecords = expected.map(({ update }, n) =>
				n === 1 ? unreadable : { ...update.record, bytes: bytes(update.record.bytes) },
			);
			expect(records(await store.updates.list({ after: 0n, limit: 10, withRecords: true }))).toEqual(expectedRecords);
			expect(records((await pages(store, {}, 10, true)).flat())).toEqual(expectedRecords.toReversed());
			const [, second] = updates;
			if (second === undefined) throw new Error("there are three updates");
			expect((await store.get(second.conversationId))?.record).toEqual(unreadable);
			// A damaged record cannot be compared, so the same record is stored again.
			expect(await append(store, second)).toMatchObject({ sequence: 4n, duplicate: false });
			expect((await store.get(second.conversationId))?.record).toEqual({
				...second.record,
				bytes: bytes(second.record.bytes),
			});
			await store.close();
		});

		it("returns the deltas over a damaged record as unreadable, and accepts later events and records", async () => {
			const path = newPath();
			const first = await open(path);
			const { conversationId } = sample();
			const encoded = record({ id: conversationId, tags: { padding: "x".repeat(400) } });
			await append(first, sample({ conversationId, record: encoded }));
			await appendEvents(first, batch(conversationId, [], { effect: effectOf(1n, titleDelta("reported")) }));
			await first.close();
			withSql("UPDATE updates SET checksum = 0 WHERE sequence = 1")(path);
			const store = await open(path);
			const unreadable = { unreadable: "the checksum of the record is wrong" };
			const updates = await store.updates.list({ after: 0n, limit: 10, withRecords: true });
			expect(updates.map((update) => update.record)).toEqual([unreadable, unreadable]);
			expect((await store.getRecordState(conversationId, [])).current?.record).toEqual(unreadable);
			const reported = { expects: 2n, next: 3n, memberTimes: "{}", version: undefined };
			expect(await appendEvents(store, batch(conversationId, [stateUpdate()], { effect: reported }))).toMatchObject({
				stored: 1,
			});
			const posted = sample({ conversationId, record: encoded });
			await append(store, posted);
			expect((await store.get(conversationId))?.record).toEqual({ ...posted.record, bytes: bytes(encoded) });
			await store.close();
		});

		it.each([
			"UPDATE events SET text = x'00' WHERE sequence = 2",
			"UPDATE events SET secrets = '{}' WHERE sequence = 2",
		])("returns a damaged event as unreadable, and the others whole: %s", async (damage) => {
			const path = newPath();
			const first = await open(path);
			const made = batch(sample().conversationId, [event(), event(), event()]);
			await appendEvents(first, made);
			await first.close();
			withSql(damage)(path);
			const store = await open(path);
			const expected = made.events.map((one, n) => storedEvent(made, one, BigInt(n + 1)));
			expect(await store.events.list({ after: 0n, limit: 10 })).toEqual(
				expected.map((one, n) => (n === 1 ? { ...one, event: { unreadable: expect.any(String) } } : one)),
			);
			await store.close();
		});
	});
});
