import { spawnSync } from "node:child_process";
import type { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { TempFolder } from "../support/temp.ts";
import { append, sample } from "./samples.ts";

/** Reads a database. Prints whether SQLite rebuilt the index of its log, as it does if no other process has it open. */
const OTHER_PROGRAM = `
	const { readFileSync } = require("node:fs");
	const { DatabaseSync } = require("node:sqlite");
	const [path] = process.argv.slice(1);
	const index = () => readFileSync(path + "-shm").toString("latin1", 0, 48);
	const before = index();
	new DatabaseSync(path).prepare("SELECT count(*) FROM updates").get();
	process.stdout.write(String(index() !== before));
`;

test("a restarted writer keeps the locks that show other programs that the database is open", async () => {
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	const workers: Worker[] = [];
	const onWorker = (worker: Worker): void => void workers.push(worker);
	process.on("worker", onWorker);
	await using store = await openSqliteStore(path, { error() {} });
	await append(store, sample());
	const started = workers.length;
	const [writer] = workers;
	await writer?.terminate();
	expect(await append(store, sample())).toMatchObject({ sequence: 2n });
	process.off("worker", onWorker);
	// So the views have followed, and nothing is written while the other program reads.
	expect(await store.countConversations({ conditions: [], group: undefined, limit: 1 })).toMatchObject({ total: 2 });
	// The terminated thread was started again for the append, so it is the writer.
	expect(workers.length).toBe(started + 1);
	const other = spawnSync(process.execPath, ["--no-warnings", "-e", OTHER_PROGRAM, path], { encoding: "utf8" });
	expect([other.status, other.stdout, other.stderr]).toEqual([0, "false", ""]);
	expect(await append(store, sample())).toMatchObject({ sequence: 3n });
});
