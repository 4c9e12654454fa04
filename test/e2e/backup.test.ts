import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ConversationView } from "../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { ingestClient, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";
import { BEGINNING, updatesUntilCaughtUp, watch } from "../support/watching.ts";

/** Ingests one record after another while the condition holds. Answers the sequences. */
async function ingestWhile(service: ServiceProcess, goesOn: (count: number) => boolean): Promise<bigint[]> {
	const sequences: bigint[] = [];
	while (goesOn(sequences.length)) {
		const json = record({ title: `${sequences.length}` });
		sequences.push((await ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(json))).sequence);
	}
	return sequences;
}

/** All updates that a service keeps, as text that can be compared. */
async function everything(service: ServiceProcess): Promise<string[]> {
	const updates = await updatesUntilCaughtUp(service, KEY, { start: BEGINNING, view: ConversationView.FULL });
	return updates.map((update) =>
		JSON.stringify(update, (_, value) => (typeof value === "bigint" ? `${value}` : value)),
	);
}

async function stop(service: ServiceProcess): Promise<void> {
	service.signal("SIGTERM");
	expect((await service.exit()).code).toBe(0);
}

test("a backup taken during writes restores one point in time, and a watcher that is ahead of it gets OUT_OF_RANGE", async () => {
	using folder = new TempFolder();
	const [database, copy] = [folder.file("conversations.db"), folder.file("copy.db")];
	const env = testEnvironment(database);
	let kept: string[];
	let before: number;
	let newest: bigint;
	{
		await using service = await ServiceProcess.start(database);
		before = (await ingestWhile(service, (count) => count < 300)).length;
		let running = true;
		const writing = ingestWhile(service, () => running);
		const backup = await ServiceProcess.run(env, "backup", copy);
		running = false;
		await writing;
		expect(backup).toMatchObject({ code: 0, stderr: expect.stringMatching(/^100 % of .* MiB are copied$/m) });
		newest = BigInt(/up to sequence (\d+)\.\n$/.exec(backup.stdout)?.[1] ?? 0);
		expect(newest).toBeGreaterThanOrEqual(before);
		expect((statSync(copy).mode & 0o777).toString(8)).toBe("600");
		await ingestWhile(service, (count) => count < 3);
		kept = await everything(service);
		expect(BigInt(kept.length)).toBeGreaterThan(newest);

		expect(await ServiceProcess.run(env, "backup", copy)).toMatchObject({
			code: 1,
			stderr: `The command backup failed: ${copy} already exists\n`,
		});
		expect(await ServiceProcess.run(env, "restore", copy)).toEqual({
			code: 1,
			stdout: "",
			stderr: `The command restore failed: the store is locked by another process: another process has the database ${database} open\n`,
		});
		// The refused commands do not disturb the service.
		await ingestWhile(service, (count) => count < 1);
		service.signal("SIGKILL");
		await service.exit();
	}

	const restored = await ServiceProcess.run(env, "restore", copy);
	expect(restored.code).toBe(0);
	const former = /The former database is (.+)\.\n$/.exec(restored.stdout)?.[1] ?? "";
	{
		await using service = await ServiceProcess.start(database);
		expect(await everything(service)).toEqual(kept.slice(0, Number(newest)));
		for (const after of [newest + 1n, BigInt(kept.length)]) {
			const start = { case: "afterSequence", value: after } as const;
			const refused = ConnectError.from(await next(watch(service, KEY, { start })).catch((error: unknown) => error));
			expect(refused.code).toBe(Code.OutOfRange);
			expect(refused.rawMessage).toMatch(new RegExp(`\\b${newest}\\b`));
			const listed = readClient(service, "gRPC", KEY).listConversationUpdates({ afterSequence: after });
			await expect(listed).rejects.toMatchObject({ code: Code.OutOfRange });
		}
		expect(await ingestWhile(service, (count) => count < 1)).toEqual([newest + 1n]);
		await stop(service);
	}

	// The former database has all acknowledged updates, also those that were only in its write-ahead log.
	await using service = await ServiceProcess.start(former);
	expect((await everything(service)).slice(0, kept.length)).toEqual(kept);
	expect(await everything(service)).toHaveLength(kept.length + 1);
});

async function next<Value>(values: AsyncIterable<Value>): Promise<unknown> {
	return (await values[Symbol.asyncIterator]().next()).value;
}

test("a restore accepts only an undamaged backup, creates a missing database, and replaces a damaged one", async () => {
	using folder = new TempFolder();
	const [database, copy, bad] = [folder.file("conversations.db"), folder.file("copy.db"), folder.file("bad.db")];
	const env = testEnvironment(database);
	expect(await ServiceProcess.run(env, "backup", copy)).toEqual({
		code: 1,
		stdout: "",
		stderr: `The command backup failed: there is no database ${database}\n`,
	});
	{
		await using service = await ServiceProcess.start(database);
		await ingestWhile(service, (count) => count < 50);
		await stop(service);
	}
	expect(await ServiceProcess.run(env, "backup", copy)).toMatchObject({ code: 0 });
	const [whole, present] = [readFileSync(copy), readFileSync(database)];
	{
		using theirs = new DatabaseSync(folder.file("theirs.db"));
		theirs.exec("CREATE TABLE updates (a); PRAGMA user_version = 3");
	}
	const foreign = readFileSync(folder.file("theirs.db"));
	const damaged = Buffer.from(whole).fill(0xff, 8192 * 3, 8192 * 6);
	for (const [bytes, reason] of [
		[damaged, /damaged|malformed/],
		[Buffer.from("text ".repeat(1000)), /file is not a database/],
		[foreign, /is a database of another program/],
	] as const) {
		writeFileSync(bad, bytes);
		const { code, stderr } = await ServiceProcess.run(env, "restore", bad);
		expect(code).toBe(1);
		expect(stderr).toMatch(/^(?:\d+ % of .+\n)*The command restore failed: .+\n$/);
		expect(stderr).toMatch(reason);
		expect(readFileSync(database).equals(present)).toBe(true);
	}
	writeFileSync(bad, whole);
	writeFileSync(`${bad}-wal`, "frames");
	expect(await ServiceProcess.run(env, "restore", bad)).toEqual({
		code: 1,
		stdout: "",
		stderr: `The command restore failed: ${bad} has a write-ahead log, so the command backup did not create it\n`,
	});

	// A program that only reads a backup leaves an empty log beside it.
	using reader = new DatabaseSync(copy, { readOnly: true });
	expect(reader.prepare("SELECT count(*) AS updates FROM updates").get()).toEqual({ updates: 50 });
	reader.close();
	expect(statSync(`${copy}-wal`).size).toBe(0);
	// A read-only backup, as on another machine.
	chmodSync(copy, 0o400);
	const other = folder.file("new/conversations.db");
	expect(await ServiceProcess.run(testEnvironment(other), "restore", copy)).toMatchObject({
		code: 0,
		stdout: `${other} is restored from ${copy}, up to sequence 50.\n`,
	});
	await using service = await ServiceProcess.start(other);
	expect(await everything(service)).toHaveLength(50);

	// The usual reason for a restore.
	writeFileSync(database, "text ".repeat(1000));
	const { code, stdout } = await ServiceProcess.run(env, "restore", copy);
	expect(code).toBe(0);
	expect(existsSync(/The former database is (.+)\.\n$/.exec(stdout)?.[1] ?? "")).toBe(true);
	await using again = await ServiceProcess.start(database);
	expect(await everything(again)).toHaveLength(50);
});
