import { statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { openStore } from "../../src/store/open.ts";
import { packRecord, unpackRecord } from "../../src/store/record-column.ts";
import type { Store } from "../../src/store/store.ts";
import { ENGINES } from "../support/engines.ts";
import { batchTexts, eventsIn } from "../support/event-batches.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { sqlOn } from "./postgres/databases.ts";
import { sample } from "./samples.ts";

const open = (url: string): Promise<Store> =>
	openStore(readConfig({ DATABASE_URL: url }).database, { error: () => undefined }, {});

type Row = Readonly<Record<string, unknown>>;

/** Runs a statement. Integers of the rows are numbers or texts. */
async function sql(url: string, text: string): Promise<readonly Row[]> {
	if (!url.startsWith("sqlite:")) return await sqlOn(url, text);
	using database = new DatabaseSync(url.slice("sqlite:".length));
	return database.prepare(text).all();
}

const table = (url: string) => (url.startsWith("sqlite:") ? "events" : "conversation_updates.events");

/** Brings the texts of all events into the form of an earlier release. Damages that of event 3. */
async function storeAsBefore(url: string): Promise<void> {
	const updates: string[] = [];
	const literal = (bytes: Uint8Array) =>
		url.startsWith("sqlite:")
			? `x'${Buffer.from(bytes).toString("hex")}'`
			: `'\\x${Buffer.from(bytes).toString("hex")}'`;
	for (const row of await sql(url, `SELECT sequence, text, unpacked_size, checksum FROM ${table(url)}`)) {
		if (!(row.text instanceof Uint8Array)) throw new TypeError("a text is bytes");
		const unpackedSize = row.unpacked_size === null ? null : Number(row.unpacked_size);
		const column = packRecord(unpackRecord({ record: row.text, unpackedSize, checksum: Number(row.checksum) }));
		const checksum = Number(row.sequence) === 3 ? 0 : column.checksum;
		updates.push(
			`UPDATE ${table(url)} SET text = ${literal(column.record)}, unpacked_size = ${column.unpackedSize},
				checksum = ${checksum} WHERE sequence = ${Number(row.sequence)};`,
		);
	}
	const statements = ["BEGIN;", ...updates, "COMMIT;"].join("\n");
	if (!url.startsWith("sqlite:")) await sqlOn(url, statements);
	else {
		using database = new DatabaseSync(url.slice("sqlite:".length));
		database.exec(statements);
	}
}

async function bytesOfTexts(url: string): Promise<number> {
	return Number((await sql(url, `SELECT sum(octet_length(text)) AS bytes FROM ${table(url)}`))[0]?.bytes);
}

/** Compacts until the end, and returns the number of compressed texts. */
async function compactAll(store: Store): Promise<number> {
	let compressed = 0;
	for (let after = 0n, hasMore = true; hasMore; ) {
		const step = await store.compactEvents(after);
		expect(step.through).toBeGreaterThanOrEqual(after);
		({ through: after, hasMore } = step);
		compressed += step.compressed;
	}
	return compressed;
}

test.each(ENGINES)(
	"with $engine, texts of an earlier release are compressed in steps, and stay the same",
	async (of) => {
		await using databases = await of.open();
		const { DATABASE_URL: url } = await databases.create();
		const texts = batchTexts().flatMap(([, text]) => eventsIn(text).map(stringifyExactJson));
		const long = texts.filter((text) => text.length >= 200).length;
		const { conversationId } = sample();
		{
			await using store = await open(url);
			for (let at = 0; at < texts.length; at += 50) {
				const some = texts
					.slice(at, at + 50)
					.map((text, n) => event({ eventId: `${at + n}`, text: Buffer.from(text) }));
				await appendEvents(store, batch(conversationId, some));
			}
		}
		await storeAsBefore(url);
		const before = await bytesOfTexts(url);
		const all = { after: 0n, limit: 10_000 };
		let events: Awaited<ReturnType<Store["events"]["list"]>>;
		{
			// The process ends after the first step.
			await using store = await open(url);
			events = await store.events.list(all);
			expect(events.filter(({ event: content }) => "unreadable" in content).map(({ sequence }) => sequence)).toEqual([
				3n,
			]);
			expect(await store.compactEvents(0n)).toMatchObject({ newest: BigInt(texts.length), hasMore: true });
		}
		const size = () => (url.startsWith("sqlite:") ? statSync(url.slice("sqlite:".length)).size : 0);
		const sizeBefore = size();
		{
			await using store = await open(url);
			expect(await compactAll(store)).toBeGreaterThan(0);
			expect(await store.events.list(all)).toEqual(events);
			expect(await compactAll(store)).toBe(0);
			while ((await store.returnSpace()).hasMore);
			expect(await store.events.list(all)).toEqual(events);
			await appendEvents(store, batch(conversationId, [event()]));
		}
		expect(await bytesOfTexts(url)).toBeLessThan(before / 3);
		const packed = await sql(url, `SELECT count(*) AS count FROM ${table(url)} WHERE unpacked_size IS NOT NULL`);
		// All long ones but the damaged one.
		expect(Number(packed[0]?.count)).toBe(long - 1);
		if (url.startsWith("sqlite:")) {
			expect(size()).toBeLessThan(sizeBefore);
			expect(await sql(url, "PRAGMA freelist_count")).toEqual([{ freelist_count: 0 }]);
			expect(await sql(url, "PRAGMA integrity_check")).toEqual([{ integrity_check: "ok" }]);
		}
	},
);
