import { expect, test } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import type { Database } from "../../../src/store/database.ts";
import { exportLines, importStore } from "../../../src/store/export/export.ts";
import { migrateDatabase, openStore, withExportSource, withImportTarget } from "../../../src/store/open.ts";
import { TempFolder } from "../../support/temp.ts";
import { everything, fill } from "../export-samples.ts";
import { describeOnCitus } from "./on-citus.ts";

const silent = { error: () => undefined };
const nothing = () => undefined;

/** Returns the lines of an export. */
async function exported(database: Database): Promise<string> {
	const texts = await withExportSource(database, silent, (source) =>
		Array.fromAsync(exportLines(source, undefined, nothing, true)),
	);
	return texts.join("");
}

async function imported(lines: string, database: Database): Promise<void> {
	const bytes = async function* () {
		yield Buffer.from(lines);
	};
	await withImportTarget(database, silent, (target) => importStore(bytes(), target, nothing));
}

async function everythingIn(database: Database) {
	await using store = await openStore(database, silent, {});
	return await everything(store);
}

await describeOnCitus("an export, imported into Citus and back,", (cluster) => {
	test("has the same lines, and every read the same answer", async () => {
		// Many reads wait for a connection on a busy machine.
		const { database } = readConfig({ DATABASE_URL: `${await cluster().createDatabase()}?connect_timeout=60` });
		if (database.engine !== "postgres") throw new Error("the URL is of PostgreSQL");
		await migrateDatabase(database, silent, true);
		using folder = new TempFolder();
		const [before, after] = ["before", "after"].map(
			(name) => readConfig({ DATABASE_URL: `sqlite:${folder.file(`${name}.db`)}` }).database,
		);
		if (before === undefined || after === undefined) throw new Error("there are two files");
		await using store = await openStore(before, silent, {});
		await fill(store);
		const all = await everything(store);
		await store.close();
		const lines = await exported(before);
		await imported(lines, database);
		expect(await exported(database)).toBe(lines);
		expect(await everythingIn(database)).toEqual(all);
		await imported(await exported(database), after);
		expect(await exported(after)).toBe(lines);
	});
});
