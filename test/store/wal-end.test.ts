import { randomBytes } from "node:crypto";
import { copyFileSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { WalLoss } from "../../src/store/sqlite/calls.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { inspectWal } from "../../src/store/sqlite/wal-end.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

/** Size of a frame in bytes: header and page. */
const FRAME = 24 + 8192;
const UPDATES = 6;
/** Number of sequences that are skipped for each lost frame. */
const SKIPPED_PER_FRAME = 512n;

let folder: TempFolder;
/** Paths of copies of a database's files, made after each append. */
let states: string[];

beforeAll(async () => {
	folder = new TempFolder();
	states = [];
	const path = folder.file("live.db");
	const store = await openSqliteStore(path, { error() {} });
	for (let n = 0; n < UPDATES; n++) {
		expect((await append(store, sample({ record: Buffer.alloc(3000, n) }))).sequence).toBe(BigInt(n + 1));
		const state = folder.file(`state-${n}.db`);
		copyFiles(path, state);
		states.push(state);
	}
	await store.close();
});
afterAll(() => folder[Symbol.dispose]());

function copyFiles(from: string, to: string, ends: readonly string[] = ["", "-wal", "-shm"]): void {
	for (const end of ends) copyFileSync(`${from}${end}`, `${to}${end}`);
}

/** Returns the path of a database as left by a process that was killed after an append. Appends count from 0. */
function crashed(after = UPDATES - 1): string {
	const path = folder.file("crashed.db");
	for (const end of ["", "-wal", "-shm", ".lock"]) rmSync(`${path}${end}`, { force: true });
	copyFiles(states[after] ?? "", path);
	return path;
}

/** Returns the number of frames in a log. */
function framesOf(path: string): number {
	return (readFileSync(`${path}-wal`).length - 32) / FRAME;
}

/** Changes a byte of a file. */
function damage(file: string, place: number): void {
	const bytes = readFileSync(file);
	bytes[place] = (bytes[place] ?? 0) ^ 0x55;
	writeFileSync(file, bytes);
}

/** Opens the store. Returns the reported losses, the stored sequences, and that of an update appended next. */
async function openAndAppend(path: string) {
	const losses: WalLoss[] = [];
	await using store = await openSqliteStore(path, { error() {} }, { onWalLoss: (loss) => losses.push(loss) });
	const kept = await store.updates.list({ after: 0n, limit: 100, withRecords: false });
	const { newest } = await store.updates.range();
	const next = (await append(store, sample())).sequence;
	expect(next).toBe(newest + 1n);
	return { losses, kept: kept.map(({ sequence }) => sequence), next };
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => BigInt(n + 1));

describe("a loss at the end of a crashed database's write-ahead log", () => {
	test("is not reported when the log is whole", async () => {
		expect(await openAndAppend(crashed())).toEqual({ losses: [], kept: upTo(UPDATES), next: BigInt(UPDATES + 1) });
	});

	test("is reported once when the last commit is damaged; no sequence is assigned again", async () => {
		const path = crashed();
		const frames = framesOf(path) - framesOf(states[UPDATES - 2] ?? "");
		damage(`${path}-wal`, 32 + (framesOf(path) - 1) * FRAME + 100);
		const skipped = BigInt(frames) * SKIPPED_PER_FRAME;
		const loss = { frames, pageSize: 8192, wasCommitted: true, skipped };
		expect(await openAndAppend(path)).toEqual({ losses: [loss], kept: upTo(UPDATES - 1), next: 5n + skipped + 1n });
		expect((await openAndAppend(path)).losses).toEqual([]);
	});

	test("is reported for a database whose path is a symbolic link", async () => {
		const path = crashed();
		damage(`${path}-wal`, 32 + (framesOf(path) - 1) * FRAME + 100);
		const link = folder.file("link.db");
		symlinkSync(path, link);
		expect(await openAndAppend(link)).toMatchObject({ losses: [{ wasCommitted: true }], kept: upTo(UPDATES - 1) });
	});

	test("is reported as uncertain without the log's index, which a crash of the machine may destroy", async () => {
		const path = crashed();
		const frames = framesOf(path) - framesOf(states[UPDATES - 2] ?? "");
		damage(`${path}-wal`, 32 + (framesOf(path) - 1) * FRAME + 100);
		rmSync(`${path}-shm`);
		expect(await openAndAppend(path)).toMatchObject({
			losses: [{ frames, wasCommitted: false }],
			kept: upTo(UPDATES - 1),
		});
	});

	test("is reported as certain without the index when commits follow the damage", async () => {
		const path = crashed();
		const whole = framesOf(states[1] ?? "");
		damage(`${path}-wal`, 32 + whole * FRAME + 2000);
		rmSync(`${path}-shm`);
		const frames = framesOf(path) - whole;
		expect(await openAndAppend(path)).toMatchObject({ losses: [{ frames, wasCommitted: true }], kept: upTo(2) });
	});

	test("is not reported when the index shows that the damaged write was not committed", async () => {
		const path = crashed();
		copyFileSync(`${states[UPDATES - 2]}-shm`, `${path}-shm`);
		damage(`${path}-wal`, 32 + (framesOf(path) - 1) * FRAME + 100);
		expect(await openAndAppend(path)).toEqual({ losses: [], kept: upTo(UPDATES - 1), next: BigInt(UPDATES) });
	});

	test("is reported when the log is truncated, between frames or within one", async () => {
		for (const bytes of [FRAME, 5000]) {
			const path = crashed();
			truncateSync(`${path}-wal`, 32 + framesOf(path) * FRAME - bytes);
			expect(await openAndAppend(path)).toMatchObject({ losses: [{ wasCommitted: true }], kept: upTo(UPDATES - 1) });
		}
	});

	test("is reported when the header is damaged, as certain only with the index", async () => {
		for (const index of [true, false]) {
			const path = crashed();
			const frames = framesOf(path);
			damage(`${path}-wal`, 9);
			if (!index) rmSync(`${path}-shm`);
			expect(inspectWal(path)).toEqual({ frames, pageSize: 8192, wasCommitted: index });
		}
	});

	test("is reported as uncertain when the log is missing, if the index exists", () => {
		const path = crashed();
		const frames = framesOf(path);
		rmSync(`${path}-wal`);
		expect(inspectWal(path)).toEqual({ frames, pageSize: 8192, wasCommitted: false });
		rmSync(`${path}-shm`);
		expect(inspectWal(path)).toBeUndefined();
	});

	test("is not reported when frames from before a restart of the log follow the current ones", async () => {
		const path = folder.file("rounds.db");
		const store = await openSqliteStore(path, { error() {} });
		for (let n = 0; n < 3; n++) await append(store, sample({ record: randomBytes(2 ** 22) }));
		await append(store, sample());
		copyFiles(path, folder.file("rounds-crashed.db"), ["", "-wal"]);
		await store.close();
		const copy = folder.file("rounds-crashed.db");
		expect(framesOf(copy)).toBeGreaterThan(1000);
		expect(inspectWal(copy)).toBeUndefined();
		expect(await openAndAppend(copy)).toEqual({ losses: [], kept: upTo(4), next: 5n });
	});

	test("is reported whichever byte of the log is changed, unless no update is lost", async () => {
		const size = readFileSync(`${states[UPDATES - 1]}-wal`).length;
		await fc.assert(
			fc.asyncProperty(fc.integer({ min: 0, max: size - 1 }), async (place) => {
				const path = crashed();
				damage(`${path}-wal`, place);
				const loss = inspectWal(path);
				const opened = await openAndAppend(path);
				expect(opened.next).toBeGreaterThan(BigInt(UPDATES));
				expect(opened.losses.length).toBe(opened.kept.length < UPDATES ? 1 : 0);
				expect(loss?.wasCommitted).toBe(opened.kept.length < UPDATES ? true : undefined);
			}),
			{ numRuns: 20 },
		);
	}, 60_000);
});
