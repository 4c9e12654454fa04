import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, statSync } from "node:fs";
import { zstdDecompressSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SCHEMA_VERSION } from "../../src/store/postgres/schema.ts";
import { Databases } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { allEvents, postEvents } from "../support/event-clients.ts";
import { capturedSequences } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

const ENV = { ENCRYPTION_KEY: randomBytes(32).toString("base64") };

const exportTo = (url: string, file: string, ...options: string[]) =>
	ServiceProcess.run({ DATABASE_URL: url }, "export", file, ...options);
const importFrom = (url: string, file: string) => ServiceProcess.run({ DATABASE_URL: url }, "import", file);

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

test("after a move from SQLite to PostgreSQL and back, clients read the same data, including secrets", async () => {
	using folder = new TempFolder();
	const [first, back] = [folder.file("first.db"), folder.file("back.db")];
	const [file, again] = [folder.file("all.jsonl.zst"), folder.file("again.jsonl.zst")];
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
		// The service still runs.
		expect(await exportTo(`sqlite:${first}`, file)).toEqual({
			code: 0,
			stdout: expect.stringMatching(/^\S+ has the whole database up to update \d+ and event \d+\.\n$/),
			stderr: expect.stringMatching(/^100 % of \d+ rows are exported$/m),
		});
		expect((statSync(file).mode & 0o777).toString(8)).toBe("600");
		await stop(service);
	}
	expect(await importFrom(url, file)).toEqual({
		code: 0,
		stdout: expect.stringMatching(/^The database has what \S+ has, up to update \d+ and event \d+\.\n$/),
		stderr: expect.stringMatching(/^100 % of \d+ rows are imported$/m),
	});
	// Before the next reads of secrets, of which each adds to the audit.
	expect((await exportTo(url, again)).code).toBe(0);
	expect(zstdDecompressSync(readFileSync(again))).toEqual(zstdDecompressSync(readFileSync(file)));
	{
		await using service = await ServiceProcess.start("", { ...ENV, DATABASE_URL: url });
		expect(await everything(service)).toEqual(expected);
		await stop(service);
	}
	expect(await importFrom(url, file)).toEqual({
		code: 1,
		stdout: "",
		stderr:
			"The command import failed: the database already holds data; its schema conversation_updates must be empty\n",
	});
	expect((await importFrom(`sqlite:${back}`, again)).code).toBe(0);
	expect((statSync(back).mode & 0o777).toString(8)).toBe("600");
	await using service = await ServiceProcess.start(back, ENV);
	expect(await everything(service)).toEqual(expected);

	// Standard output has what is new, and nothing else.
	const { updates } = expected;
	const printed = await exportTo(`sqlite:${back}`, "-", "--after-update", `${updates.at(-3)?.sequence}`);
	const [manifest = {}, ...lines] = printed.stdout
		.trimEnd()
		.split("\n")
		.map((line): object => JSON.parse(line));
	expect(manifest).toMatchObject({ manifest: { after: { update: `${updates.at(-3)?.sequence}`, event: "0" } } });
	expect(lines.flatMap((line) => ("update" in line ? [line.update] : []))).toEqual(
		updates.slice(-2).map(({ sequence, conversationId }) => {
			return expect.objectContaining({ sequence: `${sequence}`, conversationId });
		}),
	);
	expect(lines.filter((line) => "event" in line)).toHaveLength(expected.events.length);
});

test("migrate creates the tables of a PostgreSQL database once, and does nothing for SQLite", async () => {
	const url = await databases.create();
	const migrate = (DATABASE_URL: string) => ServiceProcess.run({ DATABASE_URL }, "migrate");
	const version = SCHEMA_VERSION;
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
	expect(failed).toMatchObject({
		code: 1,
		stdout: "",
		stderr: expect.stringMatching(/^The command migrate failed: .+\n$/),
	});
	expect(failed.stderr).not.toContain(databases.server.password);
});
