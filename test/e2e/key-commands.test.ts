import { existsSync, statSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Databases } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, EVENT_WEBHOOK, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const post = async (to: Endpoints, key: string) => (await postWebhook(to, key, JSON.stringify(record()))).status;
const environment = (database: string) => ({ ...testEnvironment(database), ACCESS_KEYS: "" });

/** Creates a key by the command and returns it. */
async function addKey(env: Readonly<Record<string, string>>, ...args: readonly string[]): Promise<string> {
	const { code, stdout } = await ServiceProcess.run(env, "keys", "add", ...args);
	expect(code).toBe(0);
	expect(stdout).toMatch(/^[\w-]{43}\n$/);
	return stdout.trim();
}

test("beside a running service, commands go through a socket that only its owner can use", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const [env, socket] = [environment(database), `${database}.sock`];
	{
		await using killed = await ServiceProcess.start(database);
		killed.signal("SIGKILL");
		await killed.exit();
	}
	// A process that is killed leaves its socket behind, and the next one replaces it.
	expect(existsSync(socket)).toBe(true);
	await using service = await ServiceProcess.start(database);
	expect((statSync(socket).mode & 0o777).toString(8)).toBe("600");
	const key = await addKey(env, "agent", "--owner", "team-a", "--expires", "90d");
	expect(await post(service, key)).toBe(200);
	const { stdout } = await ServiceProcess.run(env, "keys", "list");
	expect(stdout.split("\n").map((line) => line.split(/ {2,}/).slice(0, 4))).toEqual([
		["NAME", "SCOPES", "OWNER", "STATE"],
		["agent", "ingest+read", "team-a", "valid"],
		["test", "ingest+read+secrets", "-", "configured"],
		[""],
	]);
	expect(await ServiceProcess.run(env, "keys", "add", "agent")).toEqual({
		code: 1,
		stdout: "",
		stderr: 'The command keys add failed: There is an access key with the name "agent"\n',
	});
	expect((await ServiceProcess.run(env, "keys", "revoke", "agent")).stdout).toMatch(/^The key agent is revoked since /);
	expect(await post(service, key)).toBe(401);
	expect(await service.logged(({ event }) => event === "access_key_revoked")).toMatchObject({ caller: "command" });
	expect(service.output.stdout).not.toContain(key);
	service.signal("SIGTERM");
	expect((await service.exit()).code).toBe(0);
	expect(existsSync(socket)).toBe(false);
});

test("without a running service, commands open the database, and log changes to standard error", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const env = environment(database);
	expect(await ServiceProcess.run(env, "keys", "add", "agent")).toEqual({
		code: 1,
		stdout: "",
		stderr: `The command keys add failed: there is no database ${database}; the first start of the service creates it\n`,
	});
	{
		await using service = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
		service.signal("SIGTERM");
		await service.exit();
	}
	// A lost key of the scope keys is replaced so.
	const settings = ["--scope", "ingest+keys", "--expires", "1d"];
	const { stdout, stderr } = await ServiceProcess.run(env, "keys", "add", "admin", ...settings);
	const [line = "", text] = stderr.split("\n");
	expect(JSON.parse(line)).toMatchObject({ event: "access_key_created", name: "admin", caller: "command" });
	expect(text).toBe("The key admin was created with ingest+keys. It is shown only once.");
	expect(stderr).not.toContain(stdout.trim());
	// That the key expires soon is for the service to report.
	expect(await ServiceProcess.run(env, "keys", "list")).toMatchObject({ code: 0, stderr: "" });
	await using again = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
	expect(again.output.stderr).toBe("");
	expect(await post(again, stdout.trim())).toBe(200);
});

test("with PostgreSQL, a key of the command lets replicas start", async () => {
	await using databases = await Databases.start();
	const env = { ...environment(""), DATABASE_URL: await databases.create() };
	const key = await addKey(env, "agent");
	await using service = await ServiceProcess.start("", env);
	expect(await post(service, key)).toBe(200);
});

test("a service whose socket cannot be opened runs, and says so in the log", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	writeFileSync(`${database}.sock`, "another file");
	await using service = await ServiceProcess.start(database);
	expect(await service.logged(({ event }) => event === "commands_unreachable")).toMatchObject({
		error: { code: "EADDRINUSE" },
	});
	expect(folder.contents().get("conversations.db.sock")?.toString()).toBe("another file");
	const { code, stderr } = await ServiceProcess.run(environment(database), "keys", "list");
	expect(code).toBe(1);
	expect(stderr).toContain("another process has the database");
});

test("owners assign gives conversations an owner, beside a running service and without one", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const env = environment(database);
	const [first, second] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
	const assign = (...args: readonly string[]) => ServiceProcess.run(env, "owners", "assign", ...args);
	{
		await using service = await ServiceProcess.start(database);
		for (const id of [first, second])
			expect((await postWebhook(service, KEY, JSON.stringify({ ...record(), id }))).status).toBe(200);
		expect((await assign("red", "--ids", first)).stdout).toBe("1 conversation belongs to red now.\n");
		expect(await service.logged(({ event }) => event === "owner_assigned")).toMatchObject({ caller: "command" });
		const answer = await fetch(`${service.http}/api/v1/conversations?owner=red`, {
			headers: { "X-Access-Token": KEY },
		});
		expect(await answer.json()).toMatchObject({ conversations: [{ summary: { id: first, owner: "red" } }] });
		service.signal("SIGTERM");
		expect((await service.exit()).code).toBe(0);
	}
	expect((await assign("blue", "--all")).stdout).toBe("1 conversation belongs to blue now.\n");
	const unsent = ["--no-sender", "--filter", "title_contains=a&created_to=2100-01-01T00:00:00Z"];
	expect((await assign("blue", ...unsent)).stdout).toBe("0 conversations belong to blue now.\n");
	expect((await assign("blue", "--all", "--sender", "test")).code).toBe(2);
	expect((await assign("not a name", "--all")).stderr).toContain("owner must be 1 to 64 letters");
});

test("compact makes a database smaller, beside a running service and without one", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const info = record();
	const compact = () => ServiceProcess.run(environment(database), "compact");
	// In steps of 250. Such short texts are not compressed.
	const progress = [20, 40, 60, 80, 100].map((percent) => `${percent} % of 1200 events are examined\n`).join("");
	const nothing = [
		"0 texts of events were compressed.",
		"0 MiB were returned to the file system, 0 MiB stay for new data.",
		"",
	].join("\n");
	{
		await using service = await ServiceProcess.start(database);
		expect((await postWebhook(service, KEY, JSON.stringify(info))).status).toBe(200);
		expect(await compact()).toEqual({ code: 0, stdout: nothing, stderr: "" });
		const events = Array.from({ length: 1_200 }, (_, n) => ({
			...{ id: `${n}`, timestamp: "2026-01-01T00:00:00", source: "user", kind: "PauseEvent" },
		}));
		const path = `${EVENT_WEBHOOK}/${info.id}`;
		expect((await postWebhook(service, KEY, JSON.stringify(events), {}, path)).status).toBe(200);
		expect(await compact()).toEqual({ code: 0, stdout: nothing, stderr: progress });
		service.signal("SIGTERM");
		expect((await service.exit()).code).toBe(0);
	}
	expect(await compact()).toEqual({ code: 0, stdout: nothing, stderr: progress });
});
