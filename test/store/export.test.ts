import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { gzipSync, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import type { Database } from "../../src/store/database.ts";
import { type After, exportLines, importStore } from "../../src/store/export/export.ts";
import { readExport, writeExport } from "../../src/store/export/file.ts";
import { exportedTables, readRanges } from "../../src/store/export/tables.ts";
import { openStore, withExportSource, withImportTarget } from "../../src/store/open.ts";
import { unpackRecord } from "../../src/store/record-column.ts";
import type { Store } from "../../src/store/store.ts";
import { bigint } from "../../src/store/values.ts";
import type { RunInTransaction } from "../../src/store/views/views.ts";
import { damageStoredRecord } from "../support/database.ts";
import { TempFolder } from "../support/temp.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { at } from "./event-steps.ts";
import { eventsOnly, everything, fill, ids, LONG_ID, posted, unapplied } from "./export-samples.ts";
import { ENGINES, type Engine, TABLES } from "./exported-tables.ts";
import { Databases, sqlOn } from "./postgres/databases.ts";
import { append, learned, sample } from "./samples.ts";

const silent = { error: () => undefined };

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

/** Returns the URL of a new database: empty in PostgreSQL, not created yet in SQLite. */
async function newUrl(engine: Engine): Promise<string> {
	if (engine === "postgres") return await databases.create();
	const folder = new TempFolder();
	onTestFinished(() => folder[Symbol.dispose]());
	return `sqlite:${folder.file("conversations.db")}`;
}

const databaseOf = (url: string): Database => readConfig({ DATABASE_URL: url }).database;
const pathOf = (url: string): string => url.slice("sqlite:".length);
const open = (url: string): Promise<Store> => openStore(databaseOf(url), silent, {});
const nothing = () => undefined;

/** Returns the lines of an export, without their line ends. */
async function exported(url: string, after?: After, withKeys = true): Promise<string[]> {
	const texts = await withExportSource(databaseOf(url), silent, (source) =>
		Array.fromAsync(exportLines(source, after, nothing, withKeys)),
	);
	return texts.join("").split("\n").slice(0, -1);
}

async function* chunksOf(lines: readonly string[]): AsyncGenerator<Buffer> {
	const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(""));
	// Cuts lines and characters.
	for (let at = 0; at < bytes.length; at += 65_537) yield bytes.subarray(at, at + 65_537);
}

async function imported(
	lines: readonly string[],
	url: string,
	change: (run: RunInTransaction) => RunInTransaction = (run) => run,
) {
	return await withImportTarget(databaseOf(url), silent, (run) => importStore(chunksOf(lines), change(run), nothing));
}

async function everythingAt(url: string) {
	await using store = await open(url);
	return await everything(store);
}

async function filled(engine: Engine): Promise<string> {
	const url = engine === "postgres" ? await databases.createMigrated() : await newUrl(engine);
	await using store = await open(url);
	await fill(store);
	return url;
}

describe.each(ENGINES.flatMap((from) => ENGINES.map((to) => ({ from, to }))))("from $from to $to", ({ from, to }) => {
	test("an imported database answers every read and later appends as before, and has the same lines", async () => {
		const [source, target] = [await filled(from), await newUrl(to)];
		const before = await everythingAt(source);
		const lines = await exported(source);
		const { updates, events } = await imported(lines, target);
		expect(await everythingAt(source)).toEqual(before);
		expect(await everythingAt(target)).toEqual(before);
		expect(before.lists.map((list) => list.length).every((length) => length > 0)).toBe(true);
		expect(before.unapplied).toEqual([unapplied]);
		expect([updates, events]).toEqual(before.ranges.slice(0, 2));
		expect(await exported(target)).toEqual(lines);

		const outcomes = [];
		for (const url of [source, target]) {
			await using store = await open(url);
			const last = before.updates.findLast(({ conversationId }) => conversationId === posted);
			const { record: bytes, summary, receivedAt = 0n } = last ?? {};
			if (bytes === undefined || "unreadable" in bytes || summary === undefined) throw new Error("there is no update");
			const repeated = { ...bytes, bytes: new Uint8Array(bytes.bytes) };
			outcomes.push([
				await store.append({
					conversationId: posted,
					receivedAt,
					record: repeated,
					...learned(repeated.bytes, new Uint8Array(summary)),
				}),
				await store.append({
					conversationId: ids[7] ?? "",
					receivedAt: at(2_000),
					record: { bytes: Buffer.from("new"), redactionVersion: 1 },
					...learned(Buffer.from("new"), new Uint8Array(summary)),
				}),
				await appendEvents(store, batch(eventsOnly, [event({ eventId: LONG_ID }), event({ eventId: "new" })])),
				await appendEvents(store, batch(eventsOnly, [event({ eventId: LONG_ID })])),
			]);
		}
		expect(outcomes[1]).toEqual(outcomes[0]);
		expect(outcomes[0]?.[2]).toMatchObject({ stored: 1 });
	});

	test("an interrupted import leaves nothing, and begins again", async () => {
		const [source, target] = [await filled(from), await newUrl(to)];
		const before = await everythingAt(source);
		const lines = await exported(source);
		let left = 5;
		const interrupted = imported(lines, target, (run) => async (work) => {
			left -= 1;
			if (left === 0) throw new Error("broken off");
			return await run(work);
		});
		await expect(interrupted).rejects.toThrow("broken off");
		if (to === "sqlite") expect(existsSync(pathOf(target))).toBe(false);
		await imported(lines, target);
		expect(await everythingAt(target)).toEqual(before);
	});
});

describe.each(ENGINES)("an export from %s", (engine) => {
	test("has access keys only if they are asked for", async () => {
		const [url, target] = [await filled(engine), await newUrl("sqlite")];
		const [without, whole] = [await exported(url, undefined, false), await exported(url)];
		const isKey = (line: string) => line.startsWith('{"access_keys":');
		expect(whole.filter(isKey)).toHaveLength(3);
		expect(without.slice(1, -1)).toEqual(whole.slice(1, -1).filter((line) => !isKey(line)));
		for (const line of without) expect(line).not.toContain('sha256":"QkJC');
		await imported(without, target);
		expect(await everythingAt(target)).toEqual({ ...(await everythingAt(url)), accessKeys: [] });
	});

	test("has the data of one moment while the service writes", async () => {
		const url = await filled(engine);
		const wanted = await exported(url);
		await using store = await open(url);
		const texts = await withExportSource(databaseOf(url), silent, async (source) => {
			await readRanges(source);
			await append(store, sample());
			await store.prune({ updatesPerConversation: 1, limit: 1_000 });
			return await Array.fromAsync(exportLines(source, undefined, nothing, true));
		});
		expect(texts.join("")).toBe(wanted.map((line) => `${line}\n`).join(""));
		expect(await exported(url)).not.toEqual(wanted);
	});

	test("of what is new has the updates with whole records, and the events, after the given sequences", async () => {
		const url = await filled(engine);
		const { updates, events, ranges } = await everythingAt(url);
		// The first of these updates is a delta over an earlier one.
		const [someUpdates, someEvents] = [updates.slice(-4), events.slice(-3)];
		const after = { update: (someUpdates[0]?.sequence ?? 0n) - 1n, event: (someEvents[0]?.sequence ?? 0n) - 1n };
		const lines = (await exported(url, after)).map((line) => JSON.parse(line));
		const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");
		expect(lines.slice(0, -1)).toEqual([
			{
				manifest: {
					format: 2,
					after: { update: `${after.update}`, event: `${after.event}` },
					counts: {
						...Object.fromEntries(exportedTables.map((table) => [table, 0])),
					},
					updates: textsOf(ranges[0]),
					events: textsOf(ranges[1]),
				},
			},
			...someUpdates.map(({ record: stored, ...update }) => {
				if (stored === undefined || "unreadable" in stored) throw new Error("the record cannot be read");
				const { bytes, ...versions } = stored;
				const summary = base64(update.summary);
				return {
					update: { ...textsOf(update), summary, ...versions, record: base64(bytes) },
				};
			}),
			...someEvents.map(({ event: stored, ...rest }) => {
				if ("unreadable" in stored) throw new Error("the event cannot be read");
				const text = Buffer.from(stored.text).toString();
				const own = { redactionVersion: stored.redactionVersion, secrets: stored.secrets, text };
				return { event: { ...textsOf(rest), ...own } };
			}),
		]);
		const target = await newUrl("sqlite");
		await expect(imported(await exported(url, after), target)).rejects.toThrow(
			"the export has only what was new after a sequence, and cannot be imported",
		);
	});
});

/** Returns an object as JSON has it: with bigints as texts, and null for undefined. */
function textsOf(of: object | undefined) {
	return Object.fromEntries(
		Object.entries(of ?? {}).map(([name, value]) => [name, typeof value === "bigint" ? `${value}` : (value ?? null)]),
	);
}

test.each(ENGINES)("a target in %s that holds data is refused and left unchanged", async (engine) => {
	const [lines, target] = [await exported(await filled("sqlite")), await newUrl(engine)];
	{
		await using store = await open(target);
		await append(store, sample());
	}
	const before = await everythingAt(target);
	await expect(imported(lines, target)).rejects.toThrow(/already exists|already holds data/);
	expect(await everythingAt(target)).toEqual(before);
});

test.each(ENGINES)("a target in %s cannot be written by a service before its import is finished", async (engine) => {
	const [lines, target] = [await exported(await filled("sqlite")), await newUrl(engine)];
	if (engine === "sqlite") {
		await using _store = await open(target);
		await expect(imported(lines, target)).rejects.toMatchObject({ kind: "unavailable" });
		return;
	}
	await using store = await open(target);
	await withImportTarget(databaseOf(target), silent, () =>
		expect(append(store, sample())).rejects.toMatchObject({ kind: "unavailable" }),
	);
});

test.each(ENGINES)("an import after which rows are missing in %s leaves nothing", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	const incomplete = imported(
		await exported(source),
		target,
		(run) => (work) =>
			run(async (session) => {
				await session.all(`DELETE FROM ${session.dialect.schema}gaps`);
				return await work(session);
			}),
	);
	await expect(incomplete).rejects.toThrow(/^the database holds [^ ]+, expected [^ ]+$/);
	await using store = await open(target);
	expect(await store.listConversations({ conditions: [], limit: 10, withRecords: false })).toEqual([]);
});

/** Returns the sequence of an update whose record is no delta and no base of one. It varies with the random data. */
function wholeUpdate(url: string): bigint {
	using file = new DatabaseSync(pathOf(url), { readOnly: true, readBigInts: true });
	const row = file
		.prepare(
			`SELECT max(sequence) AS sequence FROM updates WHERE base_sequence IS NULL
				AND sequence NOT IN (SELECT base_sequence FROM updates WHERE base_sequence IS NOT NULL)`,
		)
		.get();
	return bigint(row?.sequence);
}

test("a record that is damaged in the source ends the export, which names it", async () => {
	const source = await filled("sqlite");
	const sequence = wholeUpdate(source);
	damageStoredRecord(pathOf(source), sequence, (bytes) => Buffer.concat([bytes, Buffer.from("x")]));
	await expect(exported(source)).rejects.toThrow(`the record with sequence ${sequence} is damaged`);
});

test("an export that is damaged, incomplete or of a newer release is refused", async () => {
	const lines = await exported(await filled("sqlite"));
	const [first = "", last = ""] = [lines[0], lines.at(-1)];
	const changed = lines.map((line) => line.replace('"change":"1"', '"change":"2"'));
	expect(changed).not.toEqual(lines);
	const cases: [readonly string[], string][] = [
		[[], "the export is incomplete"],
		[lines.slice(0, -1), "the export is incomplete"],
		[lines.slice(1), "the first line is not the manifest of an export"],
		[[first.replace('"format":2', '"format":3')], "the export has format 3; this release knows format 2"],
		[[first.replace('"format":2', '"format":1')], "release 1 wrote the export: import it with release 1"],
		[lines.toSpliced(-2, 1), "the export is damaged: its lines do not have the digest that its last line names"],
		[changed, "the export is damaged: its lines do not have the digest that its last line names"],
		[[...lines, last], "the export is damaged: its lines do not have the digest that its last line names"],
		[[first, '{"other":{}}', last], 'a line of the kind "other" is unknown, or in the wrong place'],
		[[first, "[]", last], "line 2 cannot be read"],
		[[first, '{"updates":{}}', last], "line 2 cannot be read"],
	];
	for (const [wrong, message] of cases) {
		const target = await newUrl("sqlite");
		await expect(imported(wrong, target)).rejects.toThrow(message);
		expect(existsSync(pathOf(target))).toBe(false);
		await (await open(target)).close();
	}
});

test("the file of an export is compressed by its name, readable by its owner alone, and never replaced", async () => {
	const source = await filled("sqlite");
	const lines = await exported(source);
	const text = lines.map((line) => `${line}\n`).join("");
	using folder = new TempFolder();
	for (const name of ["all.jsonl", "all.jsonl.gz", "all.jsonl.zst"]) {
		const file = folder.file(name);
		const write = async () => {
			await withExportSource(databaseOf(source), silent, (opened) =>
				writeExport(exportLines(opened, undefined, nothing, true), file),
			);
		};
		await write();
		expect((statSync(file).mode & 0o777).toString(8)).toBe("600");
		expect(Buffer.concat(await Array.fromAsync(readExport(file))).toString()).toBe(text);
		await expect(write()).rejects.toThrow(`${file} already exists`);
	}
	const [zstd, gzip] = [readFileSync(folder.file("all.jsonl.zst")), readFileSync(folder.file("all.jsonl.gz"))];
	expect(zstdDecompressSync(zstd).toString()).toBe(text);
	expect(gzip.length).toBeLessThan(text.length / 2);
	expect([...folder.contents().keys()].sort()).toEqual(["all.jsonl", "all.jsonl.gz", "all.jsonl.zst"]);

	// A file that was cut off.
	for (const compressed of [zstdCompressSync(text), gzipSync(text)]) {
		const file = folder.file("cut");
		writeFileSync(file, compressed.subarray(0, -100));
		const importing = withImportTarget(databaseOf(await newUrl("sqlite")), silent, (target) =>
			importStore(readExport(file), target, nothing),
		);
		await expect(importing).rejects.toThrow();
	}
});

test("a missing database, or one without the tables of the service, is refused as source", async () => {
	const [sqlite, postgres] = [await newUrl("sqlite"), await newUrl("postgres")];
	await expect(exported(sqlite)).rejects.toThrow(`there is no database ${pathOf(sqlite)}`);
	await expect(exported(postgres)).rejects.toThrow(/has no tables of this service/);
});

/** Returns the rows of a query, with decompressed bytes: the same bytes have several stored forms. */
async function query(engine: Engine, url: string, sql: string): Promise<unknown[]> {
	let rows: readonly Readonly<Record<string, unknown>>[];
	if (engine === "postgres") rows = await sqlOn(url, sql);
	else {
		using file = new DatabaseSync(pathOf(url), { readBigInts: true });
		rows = file.prepare(sql).all();
	}
	return rows.map((row) => {
		const unpackedSize = (row.unpacked_size ?? null) === null ? null : Number(row.unpacked_size);
		const columns = Object.entries(row).flatMap(([name, value]): [string, unknown][] => {
			if (row.checksum === undefined || !["record", "text", "checksum", "unpacked_size"].includes(name))
				return [[name, value]];
			if (!(value instanceof Uint8Array)) return [];
			return [[name, Buffer.from(unpackRecord({ record: value, unpackedSize, checksum: Number(row.checksum) }))]];
		});
		return Object.fromEntries(columns);
	});
}

test.each(ENGINES)("every table of %s is exported, or derived when it is imported", async (engine) => {
	const [source, target] = [await filled(engine), await newUrl(engine)];
	await imported(await exported(source), target);
	const names =
		engine === "postgres"
			? "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'conversation_updates' ORDER BY 1"
			: `SELECT name FROM pragma_table_list WHERE type IN ('table', 'virtual') AND schema = 'main' AND name <> 'sqlite_schema' ORDER BY 1`;
	expect(await query(engine, target, names)).toEqual(
		Object.keys(TABLES[engine])
			.sort()
			.map((name) => ({ name })),
	);
	for (const sql of Object.values(TABLES[engine])) {
		if (sql === "made by each database itself") continue;
		const rows = await query(engine, source, sql);
		expect(rows).not.toEqual([]);
		expect(await query(engine, target, sql)).toEqual(rows);
	}
});
