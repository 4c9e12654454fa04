import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import { Receiver } from "../forward/receiver.ts";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const MORE = { FORWARD_PRIVATE: "on", ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64") };

/** Returns the cells of a table that a command printed. */
const cells = (stdout: string) =>
	stdout
		.trimEnd()
		.split("\n")
		.map((line) => line.split(/ {2,}/));

test("beside a running service, the commands manage endpoints", async () => {
	using folder = new TempFolder();
	await using receiver = await Receiver.start();
	const database = folder.file("conversations.db");
	const env = { ...testEnvironment(database), ...MORE };
	const run = async (...args: readonly string[]) => {
		const { code, stdout, stderr } = await ServiceProcess.run(env, "endpoints", ...args);
		return code === 0 ? stdout : `${code}: ${stderr}`;
	};
	await using service = await ServiceProcess.start(database, MORE);
	const settings = ["--url", receiver.url, "--changes", "STARTED,FINISHED", "--filter", "tag=team:a"];
	const more = ["--form", "plain", "--include", "messages"];
	const created = await ServiceProcess.run(env, "endpoints", "create", "hook", ...settings, ...more);
	expect(created).toMatchObject({
		code: 0,
		stderr: "The endpoint hook was created. Its secret is shown only once.\n",
	});
	const secret = created.stdout.trim();
	expect(await run("create", "red", "--url", receiver.url, "--changes", "GAP", "--owner", "red")).toMatch(/^whsec_/);
	const id = randomUUID();
	expect((await postWebhook(service, KEY, JSON.stringify(record({ id, tags: { team: "a" } })))).status).toBe(200);
	expect((await postWebhook(service, KEY, JSON.stringify(record({ tags: { team: "b" } })))).status).toBe(200);
	const [{ headers, body } = { headers: {}, body: "" }] = await receiver.count(1);
	expect(new Webhook(secret).verify(body, headers)).toMatchObject({ type: "conversation.started" });
	await expect.poll(() => run("deliveries", "hook", "--status", "delivered"), { timeout: 30_000 }).toContain("STARTED");
	const [, [delivery = "", ...rest] = []] = cells(await run("deliveries", "hook"));
	expect(rest).toEqual(["STARTED", "delivered", expect.stringMatching(/Z$/), "1", "200", "-", id]);
	const success = expect.stringMatching(/^20.*Z$/);
	await expect
		.poll(async () => cells(await run("list")), { timeout: 30_000 })
		.toEqual([
			["NAME", "OWNER", "STATE", "LAG", "WAITING", "LOST", "LAST SUCCESS", "URL"],
			["hook", "-", "active", "0", "0", "0", success, receiver.url],
			["red", "red", "active", "0", "0", "0", "-", receiver.url],
		]);
	expect(cells(await run("show", "hook")).slice(3, 7)).toEqual([
		["changes", "STARTED,FINISHED"],
		["filter", '{"tags":{"team":"a"}}'],
		["form", "plain"],
		["include", "messages"],
	]);
	expect(await run("retry", "hook", delivery)).toBe(`The delivery ${delivery} is sent again.\n`);
	await receiver.count(2);
	await expect.poll(() => run("deliveries", "hook", "--status", "delivered"), { timeout: 30_000 }).toContain(delivery);
	expect(await run("replay", "hook", "--from", "1", "--to", "9")).toBe("1 delivery is sent again.\n");
	await receiver.count(3);
	expect(await run("test", "hook")).toMatch(/^The endpoint hook answered with 200 after \d+ ms\.\n$/);
	expect(await run("rotate-secret", "hook")).toMatch(/^whsec_/);
	expect(await run("pause", "hook")).toBe("The endpoint hook is paused.\n");
	expect(cells(await run("list"))[1]?.[2]).toBe("paused");
	expect(await run("resume", "hook", "--from", "now")).toBe("The endpoint hook goes on from now.\n");
	expect(await run("delete", "red", "--owner", "red")).toBe("The endpoint red is deleted.\n");
	expect(await run("show", "red")).toBe("1: The command endpoints show failed: There is no such endpoint\n");
	expect(await run("resume", "hook", "--from", "then")).toMatch(/^2: --from must be position or now/);
	expect(await run("replay", "hook")).toMatch(/^2: Give --from and --to/);
	expect(await run("deliveries", "hook", "--status", "lost ")).toMatch(/^2: --status must be/);
	receiver.answer = (_, response) => void response.writeHead(500).end();
	expect(await run("test", "hook")).toBe(
		"1: The command endpoints test failed: the endpoint did not accept it: the status is 500\n",
	);
	expect(await service.logged(({ action }) => action === "endpoint.deleted")).toMatchObject({ caller: "command" });
});

test("without a running service, the commands open the database", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const env = { ...testEnvironment(database), ...MORE };
	{
		await using service = await ServiceProcess.start(database, MORE);
		service.signal("SIGTERM");
		await service.exit();
	}
	const asked = ["create", "hook", "--url", "https://receiver.example/", "--changes", "FINISHED"];
	expect(await ServiceProcess.run(env, "endpoints", ...asked)).toMatchObject({
		stdout: expect.stringMatching(/^whsec_/),
		stderr: expect.stringContaining('"action":"endpoint.created"'),
	});
	expect(cells((await ServiceProcess.run(env, "endpoints", "list")).stdout)[1]?.slice(0, 3)).toEqual([
		...["hook", "-", "active"],
	]);
});
