import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { copyStore } from "../../src/store/copy.ts";
import { type Database, openCopySource, openCopyTarget, openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import type { CopyTarget, TransferDatabase } from "../../src/store/transfer.ts";
import { bigint } from "../../src/store/values.ts";
import { damageStoredRecord } from "../support/database.ts";
import { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp.ts";
import { appendEvents, batch, event, live, record, stateUpdate } from "./event-samples.ts";
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
const openSource = (url: string): Promise<TransferDatabase> => openCopySource(databaseOf(url), silent);
const openTarget = (url: string): Promise<CopyTarget> => openCopyTarget(databaseOf(url), silent);

async function copy(from: string, to: string, change: (target: CopyTarget) => CopyTarget = (target) => target) {
	await using source = await openSource(from);
	await using target = await openTarget(to);
	return await copyStore(source, change(target), () => undefined);
}

/** Returns the reason why a store cannot be opened in the target of an unfinished copy. */
function reasonOfUnfinished(target: string): string {
	const rest = target.startsWith("sqlite:")
		? `remove ${pathOf(target)}.copying`
		: "drop the schema conversation_updates";
	return `a copy into the database is not finished: run it again, or ${rest}`;
}

/** Returns a target that fails after a number of writes, and at the end unless `finishes` is true. */
function interrupted(target: CopyTarget, { writes, finishes }: { writes: number; finishes: boolean }): CopyTarget {
	let left = writes;
	return {
		reads: target.reads,
		contents: () => target.contents(),
		rows: (table, after) => target.rows(table, after),
		begin: (source) => target.begin(source),
		last: (table) => target.last(table),
		async write(table, rows) {
			if (left === 0) throw new Error("broken off");
			left -= 1;
			await target.write(table, rows);
		},
		async finish(source) {
			if (!finishes) throw new Error("broken off");
			await target.finish(source);
		},
		[Symbol.asyncDispose]: () => target[Symbol.asyncDispose](),
	};
}

/** Ids of conversations, named by their contents. The one that is `deleted` is pruned as a whole. */
const ids = Array.from({ length: 8 }, (_, n) => `${n.toString(16).repeat(8)}-0000-4000-8000-00000000000${n}`);
const [posted = "", told = "", eventsOnly = "", deleted = "", unapplied = "", ...others] = ids;
/** An id with more UTF-16 code units than the PostgreSQL engine keeps whole in an index. */
const LONG_ID = "\u{1F600}".repeat(200);
const large = (of: string) => Buffer.from(`${of} `.repeat(9_000));
const at = (seconds: number) => start + BigInt(seconds) * second;

/** Stores data of every kind, and prunes part of it. */
async function fill(store: Store): Promise<void> {
	const random = Random.ofTest();
	const titles = ["Fix the LOGIN page", "a\u0000b", "", undefined, "50% _ \\"];
	await appendEvents(store, batch(deleted, [event({ message: "gone" })]));
	for (const status of ["running", "deleting"])
		await append(store, sample({ conversationId: deleted, receivedAt: at(1), columns: { status } }));
	for (let n = 10; n < 50; n++)
		await append(
			store,
			sample({
				conversationId: random.pick([posted, told, ...others]) ?? posted,
				receivedAt: at(n),
				record: n % 7 === 0 ? large(`${n}`) : record({ id: `${n}`, tags: { padding: "x".repeat(n * 40) } }),
				columns: {
					status: random.pick(["idle", "running", "paused"]) ?? "idle",
					title: random.pick(titles),
					model: random.pick(["model-a", "m".repeat(400)]) ?? "model-a",
					parentId: random.pick([undefined, posted]),
					createdAt: random.pick([undefined, at(n)]),
					updatedAt: random.pick([undefined, at(random.integer(10, 50))]),
					tags: random.pick([{}, { team: "a\u0001", ["k".repeat(300)]: "v" }, { team: "b" }]) ?? {},
				},
			}),
		);
	// Live versions, stored as deltas over a whole record, and events with leaves and messages.
	await append(
		store,
		sample({
			conversationId: told,
			receivedAt: at(50),
			record: record({ id: told, tags: { padding: "y".repeat(4_000) }, leafEventId: "posted" }),
			columns: { updatedAt: at(50) },
		}),
	);
	for (let n = 0; n < 5; n++) {
		const { revision } = await store.getLiveState(told, []);
		const said = event({ eventId: `said-${n}`, happenedAt: at(60 + n), message: `said ${n}`, secrets: ["/a", "/b"] });
		const state = { ...live(revision, `title ${n}`), next: 2n ** 61n + BigInt(n) };
		const events = [said, stateUpdate({ happenedAt: at(60 + n) })];
		expect(await appendEvents(store, batch(told, events, { live: state }))).toMatchObject({ stored: 2 });
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

	// Prunes a whole conversation, then updates, then events.
	expect(await store.prune({ receivedBefore: at(2), limit: 1_000 })).toBeGreaterThan(2);
	expect(await store.prune({ updatesPerConversation: 4, limit: 3 })).toBe(3);
	expect(await store.pruneEvents(start + 1n, 2)).toBe(2);
	await store.saveRetentionTime(at(1_000));
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
		states: await Promise.all(ids.map((id) => store.getLiveState(id, eventIds))),
		unapplied: await store.listUnapplied(10),
		asOf: await Promise.all(ids.flatMap((id) => updates.map(({ sequence }) => store.get(id, sequence)))),
		lists: await Promise.all(
			filters.map((filter) =>
				store.listConversations({ conditions: conditions(filter), limit: 1_000, withRecords: true }),
			),
		),
		clock: await store.getRetentionTime(),
	};
}

async function everythingAt(url: string) {
	await using store = await open(url);
	return await everything(store);
}

async function filled(engine: Engine): Promise<string> {
	const url = await newUrl(engine);
	await using store = await open(url);
	await fill(store);
	return url;
}

describe.each(ENGINES.flatMap((from) => ENGINES.map((to) => ({ from, to }))))("from $from to $to", ({ from, to }) => {
	test("a copy returns the same as its source for every read and for later appends", async () => {
		const [source, target] = [await filled(from), await newUrl(to)];
		const before = await everythingAt(source);
		const parts = await copy(source, target);
		expect(await everythingAt(source)).toEqual(before);
		expect(await everythingAt(target)).toEqual(before);
		expect(before.lists.map((list) => list.length).every((length) => length > 0)).toBe(true);
		expect(before.unapplied).toEqual([unapplied]);
		expect(parts.map(({ name, count, damaged }) => [name, count, damaged])).toEqual([
			["updates", before.updates.length, 0],
			["events", before.events.length, 0],
			["conversations", before.lists[0]?.length, 0],
			["states", before.lists[0]?.length, 0],
			["activities", 3, 0],
			["removals", expect.any(Number), 0],
		]);

		// The digests do not depend on the engine of the copy.
		const again = await newUrl("sqlite");
		expect(await copy(target, again)).toEqual(parts);

		const outcomes = [];
		for (const url of [source, target]) {
			await using store = await open(url);
			const last = before.updates.findLast(({ conversationId }) => conversationId === posted);
			const { record: bytes, summary, receivedAt = 0n } = last ?? {};
			if (bytes === undefined || "unreadable" in bytes || summary === undefined) throw new Error("there is no update");
			const copied = { ...bytes, bytes: new Uint8Array(bytes.bytes) };
			outcomes.push([
				await store.append({ conversationId: posted, receivedAt, record: copied, summary: new Uint8Array(summary) }),
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

	test("an interrupted copy continues where it was, after any transaction", async () => {
		const [source, target] = [await filled(from), await newUrl(to)];
		const before = await everythingAt(source);
		let times = 0;
		const interrupt = (whole: CopyTarget) => interrupted(whole, { writes: 1, finishes: false });
		// Each attempt writes the rows of one table; the last one finds nothing to write.
		for (; times < 7; times++) {
			await expect(copy(source, target, interrupt)).rejects.toThrow("broken off");
			await expect(open(target)).rejects.toMatchObject({ cause: { message: reasonOfUnfinished(target) } });
		}
		let written = 0;
		await copy(source, target, (whole) => ({
			...interrupted(whole, { writes: 0, finishes: true }),
			async write() {
				written += 1;
			},
		}));
		expect(written).toBe(0);
		expect(await everythingAt(target)).toEqual(before);
	});
});

test.each(ENGINES)("a target in %s that holds data is refused and left unchanged", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	{
		await using store = await open(target);
		await append(store, sample());
	}
	const before = await everythingAt(target);
	await expect(copy(source, target)).rejects.toThrow(/already exists|already holds updates or events/);
	expect(await everythingAt(target)).toEqual(before);
});

test.each(ENGINES)("an unfinished copy in %s is refused when the source has changed since", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	const interrupt = (whole: CopyTarget) => interrupted(whole, { writes: 100, finishes: false });
	await expect(copy(source, target, interrupt)).rejects.toThrow("broken off");
	{
		await using store = await open(source);
		await append(store, sample());
	}
	await expect(copy(source, target)).rejects.toThrow("part of a copy of another source");
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

test.each(ENGINES)("a row changed in an unfinished copy in %s is found before it can be opened", async (engine) => {
	const [source, target] = [await filled("sqlite"), await newUrl(engine)];
	await expect(copy(source, target, (whole) => interrupted(whole, { writes: 100, finishes: false }))).rejects.toThrow(
		"broken off",
	);
	const sequence = wholeUpdate(source);
	const change = `UPDATE updates SET received_at = received_at + 1 WHERE sequence = ${sequence}`;
	if (engine === "postgres") await sqlOn(target, change.replace("updates", "conversation_updates.updates"));
	else {
		using file = new DatabaseSync(`${pathOf(target)}.copying`);
		file.exec(change);
	}
	await expect(copy(source, target)).rejects.toThrow(
		`the copy differs from the source in its updates at ${sequence}; delete the copy and start again`,
	);
	await expect(open(target)).rejects.toMatchObject({ kind: "unavailable" });
});

test.each(ENGINES)(
	"a record that is damaged in the source is equally damaged in a copy in %s, and counted",
	async (engine) => {
		const [source, target] = [await filled("sqlite"), await newUrl(engine)];
		damageStoredRecord(pathOf(source), wholeUpdate(source), (bytes) => Buffer.concat([bytes, Buffer.from("x")]));
		const before = await everythingAt(source);
		const parts = await copy(source, target);
		expect(parts[0]).toMatchObject({ name: "updates", damaged: 1 });
		expect(await everythingAt(target)).toEqual(before);
	},
);

test.each(ENGINES)("a source in %s cannot be written while it is copied", async (engine) => {
	const source = await filled(engine);
	await using service = engine === "postgres" ? await openStore(databaseOf(source), silent, {}) : undefined;
	await using copySource = await openSource(source);
	const contents = await copySource.contents();
	if (service === undefined) await expect(open(source)).rejects.toMatchObject({ kind: "unavailable" });
	else await expect(append(service, sample())).rejects.toMatchObject({ kind: "unavailable" });
	expect(await copySource.contents()).toEqual(contents);
});

test("a copy fails when the lock on its source is lost", async () => {
	const [source, target] = [await filled("postgres"), await newUrl("sqlite")];
	const cut = (whole: CopyTarget): CopyTarget => ({
		...interrupted(whole, { writes: 100, finishes: true }),
		async begin(contents) {
			await whole.begin(contents);
			await sqlOn(
				source,
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'",
			);
		},
	});
	await expect(copy(source, target, cut)).rejects.toMatchObject({
		message: "the source was written while it was copied; delete the copy and start again",
	});
});

test("a missing database, or one without the tables of the service, is refused as source", async () => {
	const target = await newUrl("sqlite");
	const [sqlite, postgres] = [await newUrl("sqlite"), await newUrl("postgres")];
	await expect(copy(sqlite, target)).rejects.toThrow(`there is no database ${pathOf(sqlite)}`);
	await expect(copy(postgres, target)).rejects.toThrow(/has no tables of this service/);
});
