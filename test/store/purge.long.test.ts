import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { purge } from "../../src/store/sqlite/purge.ts";
import { createSchema } from "../../src/store/sqlite/schema.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { NO_PROGRESS } from "../../src/store/text-index.ts";
import { TempFolder } from "../support/temp.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

const CONVERSATIONS = 120;
const ROUNDS = 30;

/** Returns a path in a folder that is removed after the test. */
function newPath(): string {
	const folder = new TempFolder();
	onTestFinished(() => folder[Symbol.dispose]());
	return folder.file("conversations.db");
}

const open = (path: string) => openSqliteStore(path, { error: () => undefined });

/** Few are erased, so that the index does not merge its segments by itself. */
const isErased = (n: number) => n % 2 === 0;
const ERASED = 60;

/** Returns a text of a conversation. It begins with `gone` if the conversation is erased, else with `kept`. */
function textOf(n: number, kind: string): string {
	const digest = createHash("sha256").update(`${n} ${kind}`).digest("hex").slice(0, 10);
	return `${isErased(n) ? "gone" : "kept"}${kind}${digest}`;
}

const idOf = (n: number) => {
	const digest = createHash("sha256").update(String(n)).digest("hex");
	return `${digest.slice(0, 8)}-${String(n).padStart(4, "0")}-4000-8000-${digest.slice(8, 20)}`;
};

/** Fills a store, so that its pages and the segments of its index have rows of many conversations. */
async function fill(store: Store): Promise<void> {
	const all = Array.from({ length: CONVERSATIONS }, (_, n) => n);
	let events = 0n;
	for (let round = 0; round < ROUNDS; round++) {
		const posts = all.flatMap((n) => {
			const receivedAt = start + BigInt(round) * second;
			const conversationId = idOf(n);
			const text = (kind: string) => textOf(n, `${kind}${round}x`);
			// Random bytes are stored uncompressed. With rows of many sizes, SQLite moves rows between pages.
			const filled = (kind: string) =>
				Buffer.concat([Buffer.from(text(kind)), randomBytes((n * 131 + round * 977) % 900)]);
			const one = event({ eventId: text("event"), text: filled("text") });
			const record = filled("record");
			const columns = { title: text("title"), tags: { [text("key")]: text("value") }, updatedAt: receivedAt };
			return [
				append(store, sample({ conversationId, receivedAt, record, columns })),
				appendEvents(store, batch(conversationId, [one], { receivedAt })),
			];
		});
		await Promise.all(posts);
		const stored = await store.events.list({ after: events, limit: 1000 });
		const newest = stored.at(-1)?.sequence ?? 0n;
		const expects = round === 0 ? NO_PROGRESS : { version: 1, events };
		const next = { version: 1, events: newest };
		const number = (id: string) => Number(id.slice(9, 13));
		const isWritten = await store.writeIndexStep({
			...{ expects, next },
			events: stored.map(({ sequence, conversationId }) => ({
				...{ conversationId, sequence },
				words: `${textOf(number(conversationId), `word${round}x`)} common shared${sequence % 7n}`,
			})),
		});
		expect(isWritten).toBe(true);
		events = next.events;
	}
}

/** Returns how often the files of a database have a text that begins like those of the conversations to erase. */
function found(path: string): number {
	const folder = dirname(path);
	const content = readdirSync(folder).map((name) => readFileSync(`${folder}/${name}`).toString("latin1"));
	// Words in the index share the beginning with the one before, so that their ends are to be searched for too.
	const texts = Array.from({ length: CONVERSATIONS }, (_, n) => n).flatMap((n) => {
		const kinds = ["event", "text", "record", "title", "key", "value", "word"];
		const ends = Array.from({ length: ROUNDS }, (_, round) =>
			kinds.map((kind) => textOf(n, `${kind}${round}x`).slice(-8)),
		);
		return isErased(n) ? [...ends.flat(), idOf(n)] : [];
	});
	const pattern = new RegExp(["gone", ...texts].join("|"), "g");
	return content.reduce((sum, text) => sum + [...text.matchAll(pattern)].length, 0);
}

async function eraseAll(store: Store): Promise<void> {
	for (let n = 0; n < CONVERSATIONS; n++)
		if (isErased(n))
			expect(await store.erase({ conversationId: idOf(n), owner: undefined, erasedAt: start })).toBeDefined();
}

test("after erasures and a purge, no file has an id, a text or a word of the erased conversations", async () => {
	const path = newPath();
	await using store = await open(path);
	await fill(store);
	expect(found(path)).toBeGreaterThan(100);
	await eraseAll(store);
	await store.purge();
	expect(found(path)).toBe(0);
	const words = (text: string) => ({
		required: [{ word: text, isPrefix: true }],
		excluded: [],
		conditions: [],
		limit: 5000,
	});
	expect(await store.findDocuments(words("gone"))).toEqual([]);
	expect((await store.findDocuments(words("kept"))).length).toBe((CONVERSATIONS - ERASED) * (ROUNDS + 1));
});

test("erasures that wait for a purge together share one rewrite of the database", async () => {
	const path = newPath();
	await using store = await open(path);
	await fill(store);
	/** A rewrite increases it. */
	const version = (): bigint => {
		using database = new DatabaseSync(path, { readOnly: true, readBigInts: true });
		return BigInt(Number(database.prepare("PRAGMA schema_version").get()?.schema_version));
	};
	const before = version();
	await eraseAll(store);
	await Promise.all(Array.from({ length: ERASED }, () => store.purge()));
	expect([found(path), version() - before]).toEqual([0, 1n]);
});

test("a purge that a stop of the service prevented is done by the checks of the next one", async () => {
	const path = newPath();
	{
		await using store = await open(path);
		await fill(store);
		await eraseAll(store);
	}
	expect(found(path)).toBeGreaterThan(0);
	await using store = await open(path);
	await expect
		.poll(async () => {
			// Each check does one step, and a search of the files takes long.
			for (let n = 0; n < 50; n++) await store.check();
			return found(path);
		})
		.toBe(0);
});

test("a rewrite that fails leaves the folder of temporary files in use", () => {
	using database = new DatabaseSync(newPath(), { readBigInts: true });
	createSchema(database);
	const purging = purge(database, 0);
	// VACUUM fails while another statement has rows left.
	const rows = database.prepare("SELECT 1 UNION ALL SELECT 2").iterate();
	rows.next();
	expect(() => {
		while (purging.next().value);
	}).toThrow("cannot VACUUM");
	rows.return?.();
	expect(database.prepare("PRAGMA temp_store").get()).toEqual({ temp_store: 0n });
});
