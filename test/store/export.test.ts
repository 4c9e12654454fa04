import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { gzipSync, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import type { Database } from "../../src/store/database.ts";
import type { After, ExportSource, ImportTarget } from "../../src/store/export/databases.ts";
import { exportLines } from "../../src/store/export/export.ts";
import { readExport, writeExport } from "../../src/store/export/file.ts";
import { importStore } from "../../src/store/export/import.ts";
import { openExportSource, openImportTarget, openStore } from "../../src/store/open.ts";
import { unpackRecord } from "../../src/store/record-column.ts";
import type { Store } from "../../src/store/store.ts";
import { bigint } from "../../src/store/values.ts";
import { damageStoredRecord } from "../support/database.ts";
import { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp.ts";
import { accessKey } from "./conformance-access-keys.ts";
import { refusedPost } from "./conformance-refused-posts.ts";
import { appendEvents, batch, effect, event, record, stateUpdate } from "./event-samples.ts";
import { Databases, sqlOn } from "./postgres/databases.ts";
import { append, conditions, type Filter, sample, second, start } from "./samples.ts";

const silent = { error: () => undefined };
const ENGINES = ["sqlite", "postgres"] as const;
type Engine = (typeof ENGINES)[number];

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
const openSource = (url: string): Promise<ExportSource> => openExportSource(databaseOf(url), silent);
const openTarget = (url: string): Promise<ImportTarget> => openImportTarget(databaseOf(url), silent);
const nothing = () => undefined;

/** Returns the lines of an export, without their line ends. */
async function exported(url: string, after?: After, withKeys = true): Promise<string[]> {
	await using source = await openSource(url);
	const texts = await Array.fromAsync(exportLines(source, after, nothing, withKeys));
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
	change: (target: ImportTarget) => ImportTarget = (target) => target,
) {
	await using target = await openTarget(url);
	return await importStore(chunksOf(lines), change(target), nothing, nothing);
}

/** Returns the reason why a store cannot be opened in the target of an unfinished import. */
function reasonOfUnfinished(target: string): string {
	const rest = target.startsWith("sqlite:")
		? `remove ${pathOf(target)}.importing`
		: "drop the schema conversation_updates";
	return `an import into the database is not finished: run it again, or ${rest}`;
}

/** Returns a target that fails after a number of writes, and at the end unless `finishes` is true. */
function interrupted(target: ImportTarget, { writes, finishes }: { writes: number; finishes: boolean }): ImportTarget {
	let left = writes;
	return {
		rows: (kind, after) => target.rows(kind, after),
		begin: (manifest) => target.begin(manifest),
		last: (kind) => target.last(kind),
		async write(kind, rows) {
			if (left === 0) throw new Error("broken off");
			left -= 1;
			await target.write(kind, rows);
		},
		async finish(ranges, counts) {
			if (!finishes) throw new Error("broken off");
			await target.finish(ranges, counts);
		},
		[Symbol.asyncDispose]: () => target[Symbol.asyncDispose](),
	};
}

/** Ids of conversations, named by their contents. The one that is `deleted` is pruned as a whole. */
const ids = Array.from({ length: 8 }, (_, n) => `${n.toString(16).repeat(8)}-0000-4000-8000-00000000000${n}`);
const [posted = "", reported = "", eventsOnly = "", deleted = "", unapplied = "", ...others] = ids;
/** An id with more UTF-16 code units than the PostgreSQL engine keeps whole in an index. */
const LONG_ID = "\u{1F600}".repeat(200);
const large = (of: string) => Buffer.from(`${of} `.repeat(9_000));
const at = (seconds: number) => start + BigInt(seconds) * second;

/** Returns the stats after some calls of a model. */
function usage(model: string, calls: number) {
	const costs = Array.from({ length: calls }, (_, n) => ({ model, cost: 0.25, timestamp: 1_700_000_000 + n * 900 }));
	return { usageToMetrics: { agent: { modelName: model, accumulatedCost: 0.25 * calls, costs } } };
}

/** Stores data of every kind, and prunes part of it. */
async function fill(store: Store): Promise<void> {
	const random = Random.ofTest();
	const titles = ["Fix the LOGIN page", "a\u0000b", "", undefined, "50% _ \\"];
	await appendEvents(store, batch(deleted, [event({ message: "gone" })]));
	for (const status of ["running", "deleting"]) {
		const of = record({ id: deleted, title: status, stats: usage("gone", 2) });
		await append(store, sample({ conversationId: deleted, receivedAt: at(1), record: of, columns: { status } }));
	}
	for (let n = 10; n < 50; n++)
		await append(
			store,
			sample({
				conversationId: random.pick([posted, reported, ...others]) ?? posted,
				receivedAt: at(n),
				record: n % 7 === 0 ? large(`${n}`) : record({ id: `${n}`, tags: { padding: "x".repeat(n * 40) } }),
				columns: {
					status: random.pick(["idle", "running", "paused"]) ?? "idle",
					title: random.pick(titles),
					model: random.pick(["model-a", "m".repeat(400)]) ?? "model-a",
					parentId: random.pick([undefined, posted]),
					createdAt: random.pick([undefined, start]),
					updatedAt: random.pick([undefined, at(random.integer(10, 50))]),
					tags: random.pick([{}, { team: "a\u0001", ["k".repeat(300)]: "v" }, { team: "b" }]) ?? {},
				},
			}),
		);
	// Versions that events make, stored as deltas over a whole record, and events with leaves and messages.
	await append(
		store,
		sample({
			conversationId: reported,
			receivedAt: at(50),
			record: record({
				id: reported,
				tags: { padding: "y".repeat(4_000) },
				leafEventId: "posted",
				stats: usage("a\u0000", 3),
			}),
			columns: { updatedAt: at(50) },
		}),
	);
	for (let n = 0; n < 5; n++) {
		const { revision } = await store.getRecordState(reported, []);
		const said = event({
			eventId: `said-${n}`,
			happenedAt: at(60 + n),
			message: `said ${n}`,
			llmResponseId: n % 2 === 0 ? undefined : `response-\u0000-${n}`,
			secrets: ["/a", "/b"],
		});
		const state = { ...effect(revision, `title ${n}`), next: 2n ** 61n + BigInt(n) };
		const events = [said, stateUpdate({ happenedAt: at(60 + n) })];
		expect(await appendEvents(store, batch(reported, events, { effect: state }))).toMatchObject({ stored: 2 });
	}
	const erased = "77777777-0000-4000-8000-000000000007";
	await append(store, sample({ conversationId: erased, receivedAt: at(70) }));
	await appendEvents(store, batch(erased, [event()], { poster: { sender: "s", owner: undefined } }));
	await store.erase({ conversationId: erased, owner: undefined, erasedAt: at(71) });
	// Usage of a conversation that stays, and of one that is removed below.
	for (const calls of [1, 2]) {
		const of = { conversationId: unapplied, receivedAt: at(700 + calls) };
		const members = { forkedFromConversationId: reported, stats: usage("m".repeat(300), calls) };
		await append(store, sample({ ...of, record: record({ id: unapplied, ...members }) }));
	}
	const long = { id: LONG_ID, note: "a\u0000".repeat(20_000) };
	const texts = [long, { id: "plain" }].map((json) => ({ eventId: json.id, text: Buffer.from(JSON.stringify(json)) }));
	await appendEvents(store, batch(eventsOnly, texts.map(event)));
	await appendEvents(store, batch(unapplied, [stateUpdate({ happenedAt: at(900) })]));
	const columns = {
		status: "idle",
		title: "Fix the LOGIN page of a\u0000b",
		model: "m".repeat(400),
		parentId: posted,
		createdAt: at(5),
		updatedAt: at(800),
		tags: { team: "b" },
	};
	await append(store, sample({ conversationId: unapplied, receivedAt: at(800), columns }));
	const lost = ["lost \u0000", LONG_ID].map((parentId) => event({ parentId }));
	await appendEvents(store, batch(posted, lost, { receivedAt: at(900) }));
	const owners = [
		[eventsOnly, undefined],
		["99999999-0000-4000-8000-000000000009", "team-a"],
	] as const;
	for (const [id, owner] of owners)
		await appendEvents(store, {
			...batch(id, [event({ message: `of ${owner}` })], { receivedAt: at(900) }),
			poster: { sender: "spiffe://corp/agent", owner },
		});
	const ofOwner = sample({ conversationId: "88888888-0000-4000-8000-000000000008", receivedAt: at(900) });
	await append(store, { ...ofOwner, poster: { sender: "spiffe://corp/agent", owner: "team-b" } });

	// Prunes a whole conversation, then updates, then events.
	expect(await store.prune({ receivedBefore: at(2), limit: 1_000 })).toBeGreaterThan(2);
	expect(await store.prune({ updatesPerConversation: 4, limit: 3 })).toBe(3);
	expect(await store.pruneEvents(start + 1n, 2)).toBe(2);
	await store.saveRetentionTime(at(1_000));
	for (const name of ["B", "a"]) await store.accessKeys.create(accessKey(name));
	await store.accessKeys.create(accessKey("c", { owner: "", expiresAt: undefined }));
	await store.accessKeys.revoke("a", at(1_001));
	await store.accessKeys.touch([{ name: "B", at: at(1_002) }]);
	await store.refusedPosts.add(
		[
			refusedPost(1, { conversationId: posted, owner: "team-a", retriedAt: at(5) }),
			refusedPost(2, { conversationId: posted, accepted: true, body: undefined }),
			refusedPost(3, { conversationId: undefined, sender: undefined, peer: "192.0.2.7", requests: 9n }),
		],
		{ maxBytes: 2 ** 20, maxPeers: 5 },
	);
}

const filters: readonly Filter[] = [
	{},
	{ status: "idle" },
	{ model: "m".repeat(400) },
	{ parentId: posted },
	{ tagKey: "team" },
	{ tags: { team: "b" } },
	{ titleContains: "login" },
	{ titleContains: "a\u0000" },
	{ createdFrom: at(3) },
	{ updatedFrom: at(30) },
];

/** Returns the results of all reads of a store. */
async function everything(store: Store) {
	const updates = await store.updates.list({ after: 0n, limit: 1_000, withRecords: true });
	const events = await store.events.list({ after: 0n, limit: 1_000 });
	const ranges = [{}, { afterRemoval: 1n }, ...ids.map((conversationId) => ({ conversationId }))];
	const eventIds = ["said-1", LONG_ID, "plain", "unknown"];
	return {
		updates,
		events,
		ranges: await Promise.all(ranges.flatMap((query) => [store.updates.range(query), store.events.range(query)])),
		states: await Promise.all(ids.map((id) => store.getRecordState(id, eventIds))),
		unapplied: await store.listUnapplied(10),
		asOf: await Promise.all(ids.flatMap((id) => updates.map(({ sequence }) => store.get(id, sequence)))),
		lists: await Promise.all(
			filters.map((filter) =>
				store.listConversations({ conditions: conditions(filter), limit: 1_000, withRecords: true }),
			),
		),
		clock: await store.getRetentionTime(),
		gaps: await Promise.all(ids.map(async (id) => new Set(await store.listGaps(id)))),
		accessKeys: (await store.accessKeys.list()).map((key) => ({ ...key, sha256: Buffer.from(key.sha256) })),
		refusedPosts: await store.refusedPosts.list({ limit: 10 }),
		bodyOfRefused: (await store.refusedPosts.get(refusedPost(1).id))?.body?.length,
	};
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
		const { updates, events, retentionTime } = await imported(lines, target);
		expect(await everythingAt(source)).toEqual(before);
		expect(await everythingAt(target)).toEqual(before);
		expect(before.lists.map((list) => list.length).every((length) => length > 0)).toBe(true);
		expect(before.unapplied).toEqual([unapplied]);
		expect([updates, events, retentionTime]).toEqual([...before.ranges.slice(0, 2), before.clock]);
		expect(await exported(target)).toEqual(lines);

		const outcomes = [];
		for (const url of [source, target]) {
			await using store = await open(url);
			const last = before.updates.findLast(({ conversationId }) => conversationId === posted);
			const { record: bytes, summary, receivedAt = 0n } = last ?? {};
			if (bytes === undefined || "unreadable" in bytes || summary === undefined) throw new Error("there is no update");
			const repeated = { ...bytes, bytes: new Uint8Array(bytes.bytes) };
			outcomes.push([
				await store.append({ conversationId: posted, receivedAt, record: repeated, summary: new Uint8Array(summary) }),
				await store.append({
					conversationId: ids[7] ?? "",
					receivedAt: at(2_000),
					record: { bytes: Buffer.from("new"), redactionVersion: 1, schemaVersion: 1 },
					summary: new Uint8Array(summary),
				}),
				await appendEvents(store, batch(eventsOnly, [event({ eventId: LONG_ID }), event({ eventId: "new" })])),
				await appendEvents(store, batch(eventsOnly, [event({ eventId: LONG_ID })])),
			]);
		}
		expect(outcomes[1]).toEqual(outcomes[0]);
		expect(outcomes[0]?.[2]).toMatchObject({ stored: 1 });
	});

	test("an interrupted import continues where it was, after any transaction", async () => {
		const [source, target] = [await filled(from), await newUrl(to)];
		const before = await everythingAt(source);
		const lines = await exported(source);
		const interrupt = (whole: ImportTarget) => interrupted(whole, { writes: 1, finishes: false });
		// Each attempt writes the rows of one kind; the last one finds nothing to write.
		for (let times = 0; times < 12; times++) {
			await expect(imported(lines, target, interrupt)).rejects.toThrow("broken off");
			await expect(open(target)).rejects.toMatchObject({ cause: { message: reasonOfUnfinished(target) } });
		}
		let written = 0;
		await imported(lines, target, (whole) => ({
			...interrupted(whole, { writes: 0, finishes: true }),
			async write() {
				written += 1;
			},
		}));
		expect(written).toBe(0);
		expect(await everythingAt(target)).toEqual(before);
	});
});

describe.each(ENGINES)("an export from %s", (engine) => {
	test("has access keys only if they are asked for", async () => {
		const [url, target] = [await filled(engine), await newUrl("sqlite")];
		const [without, whole] = [await exported(url, undefined, false), await exported(url)];
		const isKey = (line: string) => line.startsWith('{"accessKey":');
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
		await using source = await openSource(url);
		await source.ranges();
		await append(store, sample());
		await store.prune({ updatesPerConversation: 1, limit: 1_000 });
		const texts = await Array.fromAsync(exportLines(source, undefined, nothing, true));
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
					format: 1,
					after: { update: `${after.update}`, event: `${after.event}` },
					counts: {
						conversation: 0,
						activity: 0,
						update: 4,
						event: 3,
						usage: 0,
						prunedUpdates: 0,
						prunedEvents: 0,
						gaps: 0,
						sender: 0,
						accessKey: 0,
						refusedPost: 0,
						erasure: 0,
					},
					updates: textsOf(ranges[0]),
					events: textsOf(ranges[1]),
					retentionTime: `${at(1_000)}`,
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
			...someEvents.map(({ event: stored, owner: _, ...rest }) => {
				if ("unreadable" in stored) throw new Error("the event cannot be read");
				const text = Buffer.from(stored.text).toString();
				const secrets = stored.secrets.length === 0 ? null : JSON.stringify(stored.secrets);
				const { redactionVersion } = stored;
				const own = { eventId: JSON.parse(text).id, llmResponseId: null, redactionVersion, secrets, text };
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
	await using _target = await openTarget(target);
	await expect(append(store, sample())).rejects.toMatchObject({ kind: "unavailable" });
});

test.each(ENGINES)("an unfinished import in %s is not continued with another export", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	const interrupt = (whole: ImportTarget) => interrupted(whole, { writes: 100, finishes: false });
	await expect(imported(await exported(source), target, interrupt)).rejects.toThrow("broken off");
	{
		await using store = await open(source);
		await append(store, sample());
	}
	await expect(imported(await exported(source), target)).rejects.toThrow("part of an import of another export");
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

test.each(ENGINES)("a row changed in an unfinished import in %s is found before it can be opened", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	const lines = await exported(source);
	const interrupt = (whole: ImportTarget) => interrupted(whole, { writes: 100, finishes: false });
	await expect(imported(lines, target, interrupt)).rejects.toThrow("broken off");
	const change = `UPDATE updates SET received_at = received_at + 1 WHERE sequence = ${wholeUpdate(source)}`;
	if (engine === "postgres") await sqlOn(target, change.replace("updates", "conversation_updates.updates"));
	else {
		using file = new DatabaseSync(`${pathOf(target)}.importing`);
		file.exec(change);
	}
	await expect(imported(lines, target)).rejects.toThrow("the imported rows differ from those of the export");
	await expect(open(target)).rejects.toMatchObject({ kind: "unavailable" });
});

test.each(ENGINES)("a record that is damaged in the source is equally damaged in %s", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	damageStoredRecord(pathOf(source), wholeUpdate(source), (bytes) => Buffer.concat([bytes, Buffer.from("x")]));
	const before = await everythingAt(source);
	expect(before.updates.filter((update) => update.record !== undefined && "unreadable" in update.record)).toHaveLength(
		1,
	);
	const lines = await exported(source);
	expect(lines.filter((line) => line.includes('"damaged":'))).toHaveLength(1);
	await imported(lines, target);
	expect(await everythingAt(target)).toEqual(before);
});

test("an export that is damaged, incomplete or of a newer release is refused", async () => {
	const lines = await exported(await filled("sqlite"));
	const [first = "", last = ""] = [lines[0], lines.at(-1)];
	const changed = lines.map((line) => line.replace('"change":1', '"change":2'));
	expect(changed).not.toEqual(lines);
	const cases: [readonly string[], string][] = [
		[[], "the export is incomplete"],
		[lines.slice(0, -1), "the export is incomplete"],
		[lines.slice(1), "the first line is not the manifest of an export"],
		[[first.replace('"format":1', '"format":2')], "the export has format 2; this release knows format 1"],
		[lines.toSpliced(-2, 1), "the export is damaged: its lines do not have the digest that its last line names"],
		[changed, "the export is damaged: its lines do not have the digest that its last line names"],
		[[...lines, last], "the export is damaged: its lines do not have the digest that its last line names"],
		[[first, '{"other":{}}', last], 'a line of the kind "other" is unknown, or in the wrong place'],
		[[first, "[]", last], "line 2 cannot be read"],
		[[first, '{"update":{}}', last], "line 2 cannot be read"],
	];
	for (const [wrong, message] of cases) {
		const target = await newUrl("sqlite");
		await expect(imported(wrong, target)).rejects.toThrow(message);
		expect(existsSync(pathOf(target))).toBe(false);
		// Only a beginning that is an export needs a second attempt.
		if (wrong[0] !== first) await (await open(target)).close();
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
			await using opened = await openSource(source);
			await writeExport(exportLines(opened, undefined, nothing, true), file);
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
		await using target = await openTarget(await newUrl("sqlite"));
		await expect(importStore(readExport(file), target, nothing, nothing)).rejects.toThrow();
	}
});

test("a missing database, or one without the tables of the service, is refused as source", async () => {
	const [sqlite, postgres] = [await newUrl("sqlite"), await newUrl("postgres")];
	await expect(exported(sqlite)).rejects.toThrow(`there is no database ${pathOf(sqlite)}`);
	await expect(exported(postgres)).rejects.toThrow(/has no tables of this service/);
});

/**
 * The tables of each engine. A new table must be exported, or derived from what is exported when it is imported. What a
 * query returns here is the same in a database and in what was imported from its export.
 */
const TABLES: Readonly<Record<Engine, Readonly<Record<string, string | "made by each database itself">>>> = {
	sqlite: {
		access_keys: "SELECT * FROM access_keys ORDER BY name",
		activities: "SELECT * FROM activities ORDER BY conversation_id",
		conversation_counts: "SELECT * FROM conversation_counts ORDER BY owner, status, agent_kind, model, sender",
		conversations: "SELECT * FROM conversations ORDER BY conversation_id",
		derivations: "made by each database itself",
		erasures: "SELECT * FROM erasures ORDER BY sequence",
		// Those of an import lack the times of events that were removed.
		event_times: "made by each database itself",
		events: "SELECT a.conversation_id, e.* FROM events e JOIN activities a ON a.id = e.activity ORDER BY sequence",
		events_of_owners: "SELECT * FROM events_of_owners ORDER BY owner, sequence",
		gaps: "SELECT * FROM gaps ORDER BY conversation_id, kind, missing",
		logs: "SELECT log, pruned_through, last_removal FROM logs ORDER BY log",
		pruned: "SELECT * FROM pruned ORDER BY log, conversation_id",
		refusals: "made by each database itself",
		refused_posts: "SELECT * FROM refused_posts ORDER BY id",
		search_progress: "made by each database itself",
		search_texts: "made by each database itself",
		search_title_words: "made by each database itself",
		search_titles: "made by each database itself",
		senders: "SELECT * FROM senders ORDER BY owner, sender",
		store_state: "SELECT clock FROM store_state",
		tag_key_counts: "SELECT * FROM tag_key_counts ORDER BY key, owner",
		tag_value_counts: "SELECT * FROM tag_value_counts ORDER BY key, value, owner",
		tags: "SELECT c.conversation_id, t.* FROM tags t JOIN conversations c ON c.id = t.conversation ORDER BY 1, t.key",
		titles: "SELECT c.conversation_id FROM titles t JOIN conversations c ON c.id = t.rowid ORDER BY 1",
		updates:
			"SELECT c.conversation_id, u.* FROM updates u JOIN conversations c ON c.id = u.conversation ORDER BY sequence",
		updates_of_owners: "SELECT * FROM updates_of_owners ORDER BY owner, sequence",
		usage_conversations:
			"SELECT conversation_id, life, life_began_at, digest, ledger, sender, owner FROM usage_conversations ORDER BY 1",
		usage_days: `
			SELECT k.conversation_id, d.day, d.model, d.usage_id, d.agent_kind
			FROM usage_days d JOIN usage_conversations k ON k.id = d.conversation ORDER BY 1, 2, 3, 4
		`,
		usage_ledger: `
			SELECT k.conversation_id, l.life, l.quarter, l.model, l.usage_id, l.agent_kind, l.cost, l.calls
			FROM usage_ledger l JOIN usage_conversations k ON k.id = l.conversation ORDER BY 1, 2, 3, 4
		`,
		usage_sums: "SELECT * FROM usage_sums ORDER BY length, start, model, usage_id, agent_kind",
	},
	postgres: {
		access_keys: "SELECT * FROM conversation_updates.access_keys ORDER BY name",
		activities: "SELECT * FROM conversation_updates.activities ORDER BY conversation_id",
		claims: "made by each database itself",
		conversation_counts: `
			SELECT * FROM conversation_updates.conversation_counts ORDER BY owner, status, agent_kind, model, sender
		`,
		conversations: "SELECT * FROM conversation_updates.conversations ORDER BY conversation_id",
		derivations: "made by each database itself",
		erasures: "SELECT * FROM conversation_updates.erasures ORDER BY sequence",
		event_times: "made by each database itself",
		events: "SELECT * FROM conversation_updates.events ORDER BY sequence",
		gaps: "SELECT * FROM conversation_updates.gaps ORDER BY conversation_id, kind, missing",
		// `rewrites` tells running processes of changes.
		positions: "SELECT newest_update, newest_event FROM conversation_updates.positions",
		pruned: "SELECT * FROM conversation_updates.pruned ORDER BY log, conversation_id",
		refusals: "made by each database itself",
		refused_posts: "SELECT * FROM conversation_updates.refused_posts ORDER BY id",
		removals: "SELECT * FROM conversation_updates.removals ORDER BY log",
		retention: "SELECT * FROM conversation_updates.retention",
		schema_versions: "made by each database itself",
		search_progress: "made by each database itself",
		search_texts: "made by each database itself",
		search_titles: "made by each database itself",
		senders: "SELECT * FROM conversation_updates.senders ORDER BY owner, sender",
		standings: "SELECT * FROM conversation_updates.standings ORDER BY conversation_id",
		tag_key_counts: "SELECT * FROM conversation_updates.tag_key_counts ORDER BY key, owner",
		tag_value_counts: "SELECT * FROM conversation_updates.tag_value_counts ORDER BY key, value, owner",
		tags: "SELECT * FROM conversation_updates.tags ORDER BY conversation_id, key",
		titles: "SELECT * FROM conversation_updates.titles ORDER BY conversation_id",
		unfinished_import: "made by each database itself",
		updates: "SELECT * FROM conversation_updates.updates ORDER BY sequence",
		usage_conversations: "SELECT * FROM conversation_updates.usage_conversations ORDER BY id",
		usage_days: "SELECT * FROM conversation_updates.usage_days ORDER BY conversation, day, model, usage_id",
		usage_ledger: "SELECT * FROM conversation_updates.usage_ledger ORDER BY conversation, life, quarter, model",
		usage_sums: "SELECT * FROM conversation_updates.usage_sums ORDER BY length, start, model",
		writers: "made by each database itself",
	},
};

/** Ids that SQLite gives to rows, in columns of these names. */
const ROW_IDS = ["id", "conversation", "activity"];

/** Returns the rows of a query without row ids, and with decompressed bytes: the same bytes have several stored forms. */
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
			if (ROW_IDS.includes(name) && typeof value === "bigint") return [];
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
	expect(await query(engine, target, names)).toEqual(Object.keys(TABLES[engine]).map((name) => ({ name })));
	for (const sql of Object.values(TABLES[engine])) {
		if (sql === "made by each database itself") continue;
		const rows = await query(engine, source, sql);
		expect(rows).not.toEqual([]);
		expect(await query(engine, target, sql)).toEqual(rows);
	}
});
