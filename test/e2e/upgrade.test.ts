import { writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createSchema } from "../../src/store/sqlite/schema.ts";
import { Databases, openStore, sqlOn } from "../store/postgres/databases.ts";
import { expectAnswersOfRelease1, ofRelease1 } from "../support/release-1.ts";
import { TempFolder } from "../support/temp.ts";

describe("a SQLite database of release 1.0.0", () => {
	test("is upgraded by the start, and gives the same answers", async () => {
		using folder = new TempFolder();
		const path = folder.file("conversations.db");
		writeFileSync(path, ofRelease1("sqlite.db"));
		await expectAnswersOfRelease1(`sqlite:${path}`);
	});

	test("has the tables of a new one when it was upgraded", () => {
		using folder = new TempFolder();
		const path = folder.file("conversations.db");
		writeFileSync(path, ofRelease1("sqlite.db"));
		using upgraded = new DatabaseSync(path);
		createSchema(upgraded);
		using created = new DatabaseSync(":memory:");
		createSchema(created);
		expect(schemaOf(upgraded)).toEqual(schemaOf(created));
	});
});

/** Returns the columns of each table and index, whatever their order in the table. */
function schemaOf(database: DatabaseSync) {
	const objects = database
		.prepare("SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name")
		.all();
	const identity = ["application_id", "user_version"].map((name) => database.prepare(`PRAGMA ${name}`).get());
	const described = objects.map((object) => {
		const about = object.type === "index" ? "pragma_index_xinfo" : "pragma_table_xinfo";
		const columns = database
			.prepare(
				object.type === "index"
					? `SELECT seqno, name, "desc", coll, key FROM ${about}(?) WHERE key ORDER BY seqno`
					: `SELECT name, type, "notnull", dflt_value, pk FROM ${about}(?) ORDER BY name`,
			)
			.all(String(object.name));
		return { ...object, columns };
	});
	return { identity, described };
}

describe("a PostgreSQL database of release 1.0.0", () => {
	let databases: Databases;
	beforeAll(async () => {
		databases = await Databases.start();
	});
	afterAll(() => databases[Symbol.asyncDispose]());

	async function earlier(): Promise<string> {
		const url = await databases.create();
		await sqlOn(url, ofRelease1("postgres.sql").toString());
		return url;
	}

	test("is upgraded by the start, and gives the same answers", async () => {
		await expectAnswersOfRelease1(await earlier());
	});

	test("has the tables of a new one when it was upgraded", async () => {
		const schemas = [];
		for (const url of [await earlier(), await databases.create()]) {
			await (await openStore(url)).close();
			schemas.push([
				await sqlOn(
					url,
					`SELECT table_name::text, column_name::text, data_type::text, is_nullable::text, column_default::text,
						collation_name::text
					FROM information_schema.columns WHERE table_schema = 'conversation_updates' ORDER BY 1, 2`,
				),
				await sqlOn(
					url,
					"SELECT indexdef FROM pg_indexes WHERE schemaname = 'conversation_updates' ORDER BY indexname",
				),
				await sqlOn(url, "SELECT max(version) FROM conversation_updates.schema_versions"),
			]);
		}
		expect(schemas[0]).toEqual(schemas[1]);
	});
});
