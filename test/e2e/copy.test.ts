import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, statSync } from "node:fs";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MIGRATIONS } from "../../src/store/postgres/schema.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import type { Store } from "../../src/store/store.ts";
import { Databases, openStore } from "../store/postgres/databases.ts";
import { append, sample } from "../store/samples.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { allEvents, postEvents } from "../support/event-clients.ts";
import { capturedSequences } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { ROOT, START_ARGUMENTS } from "../support/start-command.ts";
import { TempFolder } from "../support/temp.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

const ENV = { ENCRYPTION_KEY: randomBytes(32).toString("base64") };

function copy(from: string, to: string) {
	return ServiceProcess.run({}, "copy", "--from", from, "--to", to);
}

async function stop(service: ServiceProcess): Promise<void> {
	service.signal("SIGTERM");
	expect((await service.exit()).code).toBe(0);
}

/** Returns all that clients can read from a service, with secrets in plain text. */
async function everything(service: Endpoints) {
	const updates = await updatesUntilCaughtUp(service, KEY, { start: BEGINNING });
	const ids = [...new Set(updates.map(({ conversationId }) => conversationId))];
	const records = await Promise.all(ids.map((id) => getText(service, KEY, id, "secrets=plaintext")));
	return { updates, records, events: await allEvents(service, KEY, {}) };
}

test("after copies from SQLite to PostgreSQL and back, clients read the same data, including secrets", async () => {
	using folder = new TempFolder();
	const [first, back] = [folder.file("first.db"), folder.file("back.db")];
	const url = await databases.create();
	let expected: Awaited<ReturnType<typeof everything>>;
	{
		await using service = await ServiceProcess.start(first, ENV);
		for (const { conversationId, posts } of capturedSequences().slice(0, 4))
			for (const { webhook, body } of posts) {
				const sent =
					webhook === "events" ? postEvents(service, KEY, conversationId, body) : postWebhook(service, KEY, body);
				expect((await sent).status).toBe(200);
			}
		expected = await everything(service);
		expect(expected.updates.length).toBeGreaterThan(10);
		expect(await copy(`sqlite:${first}`, url)).toEqual({
			code: 1,
			stdout: "",
			stderr: `The copy failed: the source cannot be opened: the store is locked by another process: another process has the database ${first} open\n`,
		});
		await stop(service);
	}
	const moved = await copy(`sqlite:${first}`, url);
	expect(moved).toMatchObject({ code: 0, stderr: expect.stringMatching(/^100 % of \d+ entries are compared$/m) });
	const [line = "", ...parts] = moved.stdout.split("\n");
	const shown = url.replace(databases.server.password, "**********");
	expect(line).toBe(`${shown} holds the same data as sqlite:${first}. Entries of each kind, with their SHA-256:`);
	expect(parts.slice(0, 2)).toEqual([
		expect.stringMatching(new RegExp(`^updates: ${expected.updates.length}, [0-9a-f]{64}$`)),
		expect.stringMatching(new RegExp(`^events: ${expected.events.length}, [0-9a-f]{64}$`)),
	]);
	{
		await using service = await ServiceProcess.start("", { ...ENV, DATABASE_URL: url });
		expect(await everything(service)).toEqual(expected);
		await stop(service);
	}
	expect(await copy(`sqlite:${first}`, url)).toEqual({
		code: 1,
		stdout: "",
		stderr:
			"The copy failed: the target already holds updates or events; its schema conversation_updates must be empty\n",
	});
	const returned = await copy(url, `sqlite:${back}`);
	expect(returned.stdout.split("\n").slice(1)).toEqual(parts);
	expect((statSync(back).mode & 0o777).toString(8)).toBe("600");
	await using service = await ServiceProcess.start(back, ENV);
	expect(await everything(service)).toEqual(expected);
});

/** Starts a copy and kills it when it has reported progress. */
async function copyUntilKilled(from: string, to: string): Promise<void> {
	const child = spawn(process.execPath, [...START_ARGUMENTS, "copy", "--from", from, "--to", to], {
		cwd: ROOT,
		env: {},
		stdio: ["ignore", "ignore", "pipe"],
	});
	const ended = once(child, "close");
	for await (const line of createInterface({ input: child.stderr })) {
		expect(line).toMatch(/^\d+ % of \d+ entries are copied$/);
		child.kill("SIGKILL");
		break;
	}
	expect(await ended).toEqual([null, "SIGKILL"]);
}

test.each(["sqlite", "postgres"])("a copy into %s that was killed continues where it stopped", async (engine) => {
	using folder = new TempFolder();
	const [source, path] = [folder.file("source.db"), folder.file("target.db")];
	const target = engine === "postgres" ? await databases.create() : `sqlite:${path}`;
	const log = { error: () => undefined };
	const list = async (store: Store) => await store.updates.list({ after: 0n, limit: 1_000, withRecords: true });
	let expected: Awaited<ReturnType<typeof list>>;
	{
		await using store = await openSqliteStore(source, log);
		// Several pages of 4 MiB.
		for (let n = 0; n < 60; n++) await append(store, sample({ record: randomBytes(300_000) }));
		expected = await list(store);
	}
	await copyUntilKilled(`sqlite:${source}`, target);
	if (engine === "sqlite") expect(statSync(path).size).toBe(0);
	const { code, stderr } = await copy(`sqlite:${source}`, target);
	expect(code).toBe(0);
	// 60 conversations and the first page of updates. A copy from the beginning would first report the conversations: 50 %.
	expect(Number(/^(\d+) % of 120 entries are copied$/m.exec(stderr)?.[1])).toBeGreaterThan(50);
	await using store = engine === "postgres" ? await openStore(target) : await openSqliteStore(path, log);
	expect(await list(store)).toEqual(expected);
});

test("migrate creates the tables of a PostgreSQL database once, and does nothing for SQLite", async () => {
	const url = await databases.create();
	const migrate = (DATABASE_URL: string) => ServiceProcess.run({ DATABASE_URL }, "migrate");
	const version = MIGRATIONS.length;
	expect(await migrate(url)).toEqual({ code: 0, stdout: `Created the schema with version ${version}.\n`, stderr: "" });
	expect(await migrate(url)).toEqual({ code: 0, stdout: `The schema already has version ${version}.\n`, stderr: "" });
	await using service = await ServiceProcess.start("", { DATABASE_URL: url });
	expect((await everything(service)).updates).toEqual([]);
	using folder = new TempFolder();
	const path = folder.file("conversations.db");
	expect(await migrate(`sqlite:${path}`)).toEqual({
		code: 0,
		stdout: `Nothing to do: serve creates and upgrades ${path} itself.\n`,
		stderr: "",
	});
	expect(existsSync(path)).toBe(false);
	const away = new URL(url);
	away.pathname = "/nowhere";
	const failed = await migrate(away.href);
	expect(failed).toMatchObject({ code: 1, stdout: "", stderr: expect.stringMatching(/^The migration failed: .+\n$/) });
	expect(failed.stderr).not.toContain(databases.server.password);
});
