import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import { expect, it } from "vitest";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

it("SQLite store keeps the write-ahead log below 64 MiB during continuous appends", async () => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	const store = await openSqliteStore(path, { error: () => undefined });
	const records = Array.from({ length: 8 }, () => randomBytes(2 ** 20));
	let longest = 0;
	for (let round = 0; round < 80; round++) {
		await Promise.all(records.map((record) => append(store, sample({ record: Buffer.from(record) }))));
		longest = Math.max(longest, (await stat(`${path}-wal`)).size);
	}
	expect(longest).toBeLessThan(64 * 2 ** 20);
	expect((await store.updates.range()).newest).toBe(640n);
	await store.close();
});
