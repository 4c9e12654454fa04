import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonObject } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, postWebhook, readClient } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { expectReady } from "../support/ready.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { canMount, runReadOnly, SmallDisk, startWithFileLimit } from "../support/small-disk.ts";
import { TempFolder } from "../support/temp.ts";

async function post(service: Endpoints, json: JsonObject) {
	const response = await postWebhook(service, KEY, JSON.stringify(json));
	return { status: response.status, retryAfter: response.headers.get("Retry-After"), body: await response.json() };
}

const accepted = { status: 200, retryAfter: null, body: { success: true } };
const refused = (message: string) => ({
	status: 503,
	retryAfter: "5",
	body: { detail: expect.stringContaining(message) },
});

/** Returns the ids of all conversations of a service. */
async function ids(service: Endpoints): Promise<string[]> {
	const { conversations } = await readClient(service, "gRPC", KEY).listConversations({ pageSize: 1000 });
	return conversations.map(({ summary }) => summary?.id ?? "");
}

/** Checks that conversations can be read. Lists wait for a view, which cannot be written while nothing can be. */
async function expectReadable(service: Endpoints, conversationIds: readonly string[]): Promise<void> {
	for (const id of conversationIds) expect(JSON.parse(await getText(service, KEY, id))).toMatchObject({ id });
}

/** Posts large random records until one is refused. Returns the refusal and the ids of the acknowledged records. */
async function postUntilRefused(service: Endpoints) {
	const acknowledged: string[] = [];
	for (;;) {
		const filler = Array.from({ length: 4_000 }, () => Math.random().toString(36).slice(2));
		const json = record({ agent_state: { filler: filler.join("") } });
		const answer = await post(service, json);
		if (answer.status !== 200) return { answer, acknowledged };
		acknowledged.push(String(json.id));
	}
}

describe("a service whose database", () => {
	test("is moved away refuses posts, logs why, and recovers when the database is back", async () => {
		using folder = new TempFolder();
		mkdirSync(folder.file("data"));
		const database = folder.file(join("data", "conversations.db"));
		await using service = await ServiceProcess.start(database);
		const [first, second] = [record(), record()];
		expect(await post(service, first)).toEqual(accepted);
		for (const [from, to] of [
			[database, folder.file(join("data", "moved.db"))],
			[folder.file("data"), folder.file("moved")],
		] as const) {
			renameSync(from, to);
			await expectReady(service, false);
			expect(await post(service, second)).toEqual(refused("the store's database was moved, deleted or replaced"));
			expect(await post(service, first)).toEqual(refused("the store's database was moved, deleted or replaced"));
			expect(JSON.parse(await getText(service, KEY, first.id))).toMatchObject({ id: first.id });
			renameSync(to, from);
			await expectReady(service, true);
		}
		expect(await post(service, second)).toEqual(accepted);
		const message = `${database} was deleted or moved while the database was open (SQLite result code 1032)`;
		expect(await service.logged((line) => line.event === "store_failed")).toMatchObject({
			error: { type: "ServiceError", cause: { message } },
		});
		expect(await service.logged((line) => line.event === "store_unhealthy")).toMatchObject({ level: "error" });
		await service.logged((line) => line.event === "store_healthy");
	});

	test("is deleted becomes unready even without a post, and refuses posts", async () => {
		using folder = new TempFolder();
		const database = folder.file("conversations.db");
		await using service = await ServiceProcess.start(database);
		expect(await post(service, record())).toEqual(accepted);
		for (const end of ["", "-wal", "-shm"]) rmSync(`${database}${end}`);
		await expectReady(service, false);
		expect(await post(service, record())).toEqual(refused("the store's database was moved, deleted or replaced"));
	});

	test("cannot grow refuses posts, and has all acknowledged records after a crash and a restart", async () => {
		using folder = new TempFolder();
		const database = folder.file("conversations.db");
		let acknowledged: string[];
		{
			await using service = await startWithFileLimit(database);
			const outcome = await postUntilRefused(service);
			expect(outcome.answer).toEqual(refused("the store's disk failed to read or write"));
			acknowledged = outcome.acknowledged;
			await expectReadable(service, acknowledged);
			service.signal("SIGKILL");
			await service.exit();
		}
		expect(acknowledged.length).toBeGreaterThan(5);
		await using service = await ServiceProcess.start(database);
		expect((await ids(service)).toSorted()).toEqual(acknowledged.toSorted());
		expect(await post(service, record())).toEqual(accepted);
	});

	// Where no file system can be mounted, the test above covers a database that cannot grow.
	test.runIf(canMount())("is on a full disk refuses posts, and recovers when there is free space", async () => {
		await using disk = await SmallDisk.start("8m");
		const { service } = disk;
		const acknowledged: string[] = [];
		for (let round = 0; round < 2; round++) {
			const json = record();
			expect(await post(service, json)).toEqual(accepted);
			acknowledged.push(String(json.id));
			disk.fill();
			const outcome = await postUntilRefused(service);
			expect(outcome.answer).toEqual(refused("the store is full"));
			acknowledged.push(...outcome.acknowledged);
			await expectReady(service, false);
			await expectReadable(service, acknowledged);
			disk.free();
			await expectReady(service, true);
			expect((await ids(service)).toSorted()).toEqual(acknowledged.toSorted());
		}
		expect(await post(service, record())).toEqual(accepted);
		service.signal("SIGTERM");
		expect(await service.exit()).toEqual({ code: 0, signal: null });
	});
});

describe("a start with a database path", () => {
	test.each([
		[
			"in a folder that cannot be created",
			() => "/proc/x/c.db",
			/: ENOENT: no such file or directory, mkdir '\/proc\/x'/,
		],
		["that is a folder", (folder: string) => folder, /: .+ is not a regular file/],
		["below a file", (folder: string) => join(folder, "file", "c.db"), /: ENOTDIR: not a directory/],
		["in a folder that takes no new files", () => "/proc/c.db", /: ENOENT: .+, open '\/proc\/c\.db'/],
	])("%s fails with one line", async (_, pathIn, reason) => {
		using folder = new TempFolder();
		writeFileSync(folder.file("file"), "");
		const env = { ...testEnvironment(pathIn(folder.path)), LOG_LEVEL: "silent" };
		const { code, stdout, stderr } = await ServiceProcess.run(env);
		expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
		expect(stderr).toMatch(/^The service cannot start: the store's database cannot be opened: .+\n$/);
		expect(stderr).toMatch(reason);
		expect([...folder.contents().keys()]).toEqual(["file"]);
	});

	// Where no file system can be mounted, only the paths above cover a start without write access.
	test.runIf(canMount())("on a read-only file system fails with one line, and later succeeds", async () => {
		using outer = new TempFolder();
		const [data, database] = [outer.file("data"), outer.file("data/conversations.db")];
		mkdirSync(data);
		const env = { ...testEnvironment(database), LOG_LEVEL: "silent" };
		const json = record();
		for (const call of ["open", "access"]) {
			const reason = `EROFS: read-only file system, ${call} '${database}'`;
			expect(await runReadOnly(data, env)).toEqual({
				code: 1,
				stdout: "",
				stderr: `The service cannot start: the store's database cannot be opened: ${reason}\n`,
			});
			await using service = await ServiceProcess.start(database);
			expect(await post(service, call === "open" ? json : record())).toEqual(accepted);
			expect(JSON.parse(await getText(service, KEY, json.id))).toMatchObject({ id: json.id });
			service.signal("SIGTERM");
			expect(await service.exit()).toEqual({ code: 0, signal: null });
		}
	});
});
