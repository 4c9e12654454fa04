import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { migrate, migrations } from "../../src/store/sqlite/migrations.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { append, bytes, listed, pages, sample, start, stored } from "./samples.ts";

const ignore = (): void => undefined;
const open = (path: string) => openSqliteStore(path, { error: ignore, warn: ignore, info: ignore });

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
		using folder = new TempFolder();
		const path = folder.file(`version-${version}.db`);
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
		using folder = new TempFolder();
		const newer = folder.file("newer.db");
		const foreign = folder.file("foreign.db");
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
