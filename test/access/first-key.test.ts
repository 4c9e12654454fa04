import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { takeOverKeyFile } from "../../src/access/first-key.ts";
import { hashKey } from "../../src/access/keys.ts";
import { KeyTable } from "./key-table.ts";

const KEY = "the-key-of-an-earlier-release";
const contents = {
	name: "default",
	scopes: ["ingest", "read", "metrics"],
	sha256: Buffer.from(hashKey(KEY)).toString("hex"),
};

async function withFile(text?: string) {
	const keys = await KeyTable.open();
	const database = keys.folder.file("conversations.db");
	const file = `${database}.access-key`;
	if (text !== undefined) writeFileSync(file, text);
	return { keys, stored: await keys.stored(), database, file };
}

test("the key of an earlier release moves into the store, with its scopes, and the file goes", async () => {
	const { keys, stored, database, file } = await withFile(JSON.stringify(contents));
	await using _ = keys;
	await takeOverKeyFile(database, stored);
	expect(existsSync(file)).toBe(false);
	expect(stored.keyring.authenticate(KEY)).toMatchObject({ name: "default", scopes: new Set(contents.scopes) });
	expect(await keys.table.list()).toMatchObject([{ name: "default", owner: "", createdBy: "service" }]);
	await takeOverKeyFile(database, stored);
	expect(await keys.table.list()).toHaveLength(1);
});

test("a file that stayed after its key was stored goes; one with another key of the name stays", async () => {
	const { keys, stored, database, file } = await withFile(JSON.stringify(contents));
	await using _ = keys;
	await takeOverKeyFile(database, stored);
	await stored.revoke("default");
	writeFileSync(file, JSON.stringify(contents));
	await takeOverKeyFile(database, stored);
	expect(existsSync(file)).toBe(false);
	expect(stored.valid).toEqual([]);
	writeFileSync(file, JSON.stringify({ ...contents, sha256: "0".repeat(64) }));
	await takeOverKeyFile(database, stored);
	expect(existsSync(file)).toBe(true);
	expect(stored.valid).toEqual([]);
});

test.each([
	"",
	"nonsense",
	"{}",
	'{"name":"default","scopes":[],"sha256":""}',
	`{"name":"default","scopes":["all"],"sha256":"${"0".repeat(64)}"}`,
])("a damaged key file (%j) is neither used nor removed", async (text) => {
	const { keys, stored, database, file } = await withFile(text);
	await using _ = keys;
	await expect(takeOverKeyFile(database, stored)).rejects.toThrow(
		new Error(
			`The access key file ${file} is damaged; restore it, or remove it so that the next start generates a new key`,
		),
	);
	expect(readFileSync(file, "utf8")).toBe(text);
	expect(stored.all).toEqual([]);
});
