import { afterAll, beforeAll, describe } from "vitest";
import { TempFolder } from "../support/temp.ts";
import { storeLaws } from "./conformance.ts";
import { postgresHarness, sqliteHarness } from "./harness.ts";
import { Databases } from "./postgres/databases.ts";

let folder: TempFolder;
let databases: Databases;
let files = 0;
beforeAll(async () => {
	folder = new TempFolder();
	databases = await Databases.start();
});
afterAll(async () => {
	await databases[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

function newPath(): string {
	files += 1;
	return folder.file(`${files}.db`);
}

describe("SQLite store", () => {
	storeLaws(sqliteHarness(newPath), 4);
});

describe("PostgreSQL store", () => {
	storeLaws(
		postgresHarness(() => databases),
		4,
	);
});
