import { randomBytes } from "node:crypto";
import { copyFileSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { conversationEraser } from "../../src/conversations/erase.ts";
import { ServiceError } from "../../src/errors.ts";
import { idDigest } from "../../src/store/erasure.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { TempFolder } from "../support/temp.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, bytes, conditions, type Sample, sample } from "./samples.ts";

const PAGE = 8192;

let folder: TempFolder;
let whole: string;
let updates: Sample[];
beforeAll(async () => {
	folder = new TempFolder();
	whole = folder.file("whole.db");
	updates = Array.from({ length: 60 }, (_, n) =>
		sample({
			record: randomBytes(n % 10 === 0 ? 40_000 : 1_500),
			columns: { title: `title ${n}`, tags: { n: `${n}` } },
		}),
	);
	await using store = await openSqliteStore(whole, { error() {} });
	for (const update of updates) await append(store, update);
	for (const { conversationId } of updates.slice(0, 20)) await appendEvents(store, batch(conversationId, [event()]));
});
afterAll(() => folder[Symbol.dispose]());

/** Opens a copy of the database with overwritten pages. Page numbers start at 1. */
async function openDamaged(pages: readonly number[], fill: (page: Buffer) => void) {
	const path = folder.file("damaged.db");
	for (const end of ["", "-wal", "-shm", ".lock"]) rmSync(`${path}${end}`, { force: true });
	copyFileSync(whole, path);
	const file = readFileSync(path);
	for (const page of pages) fill(file.subarray((page - 1) * PAGE, page * PAGE));
	writeFileSync(path, file);
	const lines: { fields: object; message: string }[] = [];
	const store = await openSqliteStore(path, { error: (fields, message) => lines.push({ fields, message }) });
	return { store, lines };
}

const pageCount = () => readFileSync(whole).length / PAGE;

/** Returns a call's result, or the kind of its ServiceError. Throws any other error. */
async function outcome<T>(call: Promise<T>): Promise<{ value: T } | { refused: string }> {
	try {
		return { value: await call };
	} catch (error) {
		if (error instanceof ServiceError) return { refused: error.kind };
		throw error;
	}
}

/** Returns how many records can be read, and expects each of these to be the one that was stored. */
async function readable(store: Store): Promise<number> {
	let count = 0;
	for (const { conversationId, record } of updates) {
		const found = await outcome(store.get(conversationId));
		if ("refused" in found) expect(["unavailable", "internal", "data_loss"]).toContain(found.refused);
		else if (found.value?.record !== undefined && "bytes" in found.value.record) {
			expect(found.value.record).toEqual({ ...record, bytes: bytes(record.bytes) });
			count += 1;
		}
	}
	return count;
}

/** Returns the number of the page in which some bytes begin. */
function pageOf(content: Uint8Array): number {
	const place = readFileSync(whole).indexOf(content);
	if (place === -1) throw new Error("the bytes are not in the file");
	return Math.floor(place / PAGE) + 1;
}

describe("a database with damaged pages", () => {
	test("returns the records of the other pages, refuses those of the damaged page, and logs the reason", async () => {
		const damaged = updates[15];
		if (damaged === undefined) throw new Error("there are 60 updates");
		const page = pageOf(damaged.record.bytes.subarray(0, 64));
		const { store, lines } = await openDamaged([page], (content) => content.fill(0xff));
		expect(await outcome(store.get(damaged.conversationId))).toEqual({ refused: "unavailable" });
		const count = await readable(store);
		// A page holds about five of these records.
		expect(count).toBeGreaterThanOrEqual(50);
		expect(count).toBeLessThan(60);
		expect(lines[0]).toMatchObject({
			fields: {
				err: { message: "the store's database is damaged", cause: { message: expect.stringMatching(/malformed/) } },
			},
		});
		// Updates that do not touch the page are stored and read.
		const later = sample({ record: randomBytes(100) });
		expect(await append(store, later)).toMatchObject({ sequence: 61n, duplicate: false });
		expect((await store.get(later.conversationId))?.record).toEqual({
			...later.record,
			bytes: bytes(later.record.bytes),
		});
		await store.close();
	});

	test("erases a conversation beside a damaged page, and says that the files may have traces", async () => {
		const [erased, other] = [updates[45], updates[15]];
		if (erased === undefined || other === undefined) throw new Error("there are 60 updates");
		const { store } = await openDamaged([pageOf(other.record.bytes.subarray(0, 64))], (page) => page.fill(0xff));
		const digests: string[] = [];
		const erasing = conversationEraser(store, async (digest) => void digests.push(digest));
		const erase = (id: string) => erasing.erase({ id, withChildren: false }, { name: "operator" });
		await expect(erase(erased.conversationId)).rejects.toMatchObject({
			kind: "unavailable",
			message: "Erased, but the files of the database may have traces: the store's database is damaged",
		});
		expect(digests).toEqual([idDigest(erased.conversationId)]);
		expect(await store.get(erased.conversationId)).toBeUndefined();
		// The rest is done.
		expect(statSync(folder.file("damaged.db-wal")).size).toBe(0);
		await store.check();
		const damaged = { kind: "unavailable", message: "the store's database is damaged" };
		await expect(store.purge()).rejects.toMatchObject(damaged);
		// One that is on the page stays as a whole.
		await expect(erase(other.conversationId)).rejects.toMatchObject(damaged);
		expect(digests).toHaveLength(1);
		expect(await append(store, sample({ record: randomBytes(100) }))).toMatchObject({ duplicate: false });
		await store.close();
	});

	test("erases nothing of a conversation whose child is on a damaged page, and says why", async () => {
		const path = folder.file("related.db");
		const parent = sample();
		const child = sample({ record: randomBytes(40_000), columns: { parentId: parent.conversationId } });
		{
			await using store = await openSqliteStore(path, { error() {} });
			for (const update of [parent, child]) await append(store, update);
		}
		const file = readFileSync(path);
		const page = Math.floor(file.indexOf(child.record.bytes.subarray(20_000, 20_064)) / PAGE);
		writeFileSync(path, file.fill(0xff, page * PAGE, (page + 1) * PAGE));
		await using store = await openSqliteStore(path, { error() {} });
		expect(await outcome(store.get(child.conversationId))).toEqual({ refused: "unavailable" });
		const { conversationId } = parent;
		await expect(store.erase({ conversationId, owner: undefined, erasedAt: 7n })).rejects.toMatchObject({
			kind: "unavailable",
			message: "the store's database is damaged",
		});
		expect(await store.get(conversationId)).toMatchObject({ conversationId, sequence: 1n });
	});

	test("returns no wrong record and ends no thread, whichever pages are overwritten", async () => {
		const page = fc.integer({ min: 2, max: pageCount() });
		const fills = fc.constantFrom<(content: Buffer) => void>(
			(content) => content.fill(0),
			(content) => content.fill(0xff),
			(content) => randomBytes(PAGE).copy(content),
			(content) => content.fill(0x5a, 0, 100),
			(content) => content.fill(0x5a, PAGE / 2),
		);
		await fc.assert(
			fc.asyncProperty(fc.array(page, { minLength: 1, maxLength: 3 }), fills, async (pages, fill) => {
				const opened = await outcome(openDamaged(pages, fill));
				if ("refused" in opened) {
					expect(opened.refused).toBe("unavailable");
					return;
				}
				const { store, lines } = opened.value;
				await readable(store);
				const kinds = [
					await outcome(store.updates.list({ after: 0n, limit: 100, withRecords: true })),
					await outcome(store.events.list({ after: 0n, limit: 100 })),
					await outcome(
						store.listConversations({
							conditions: conditions({ titleContains: "itle" }),
							limit: 100,
							withRecords: true,
						}),
					),
					await outcome(append(store, sample({ columns: { title: "new", tags: { n: "new" } } }))),
					await outcome(store.prune({ updatesPerConversation: 1, limit: 10 })),
					await outcome(store.check()),
				].flatMap((one) => ("refused" in one ? [one.refused] : []));
				expect(kinds.filter((kind) => kind !== "unavailable" && kind !== "internal")).toEqual([]);
				expect(lines.filter(({ message }) => message.includes("ended"))).toEqual([]);
				await store.close();
			}),
			{ numRuns: 25 },
		);
	});
});
