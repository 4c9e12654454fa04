import { createServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { expect, test } from "vitest";
import { ServiceProcess } from "./support/child.ts";
import { WEBHOOK } from "./support/clients.ts";
import { RawHttp } from "./support/raw-http.ts";
import { KEY, testEnvironment } from "./support/service.ts";
import { TempFolder } from "./support/temp.ts";

test("a second signal ends the service at once", async () => {
	using folder = new TempFolder();
	await using service = await ServiceProcess.start(folder.file("conversations.db"));
	// A request whose body never comes would hold up the stop for as long as the drain lasts.
	using client = await new RawHttp(service).connected();
	await client.head({ "X-Access-Token": KEY, "Content-Length": "1000", Expect: "100-continue" }, WEBHOOK);
	expect((await client.response()).status).toBe(100);
	service.signal("SIGTERM");
	await service.logged((line) => line.event === "stopping");
	// At once it would be taken for the first one, which npm passes on a second time.
	await wait(600);
	service.signal("SIGINT");
	expect(await service.exit()).toEqual({ code: 1, signal: null });
	expect(service.output.stdout).not.toContain('"event":"stopped"');
});

test("a start that fails does not spend the first key", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const taken = createServer();
	await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
	const address = taken.address();
	const port = typeof address === "object" ? address?.port : undefined;
	const env = { ...testEnvironment(database), ACCESS_KEYS: "", GRPC_ADDRESS: `127.0.0.1:${port}` };
	const { code, stderr } = await ServiceProcess.run(env);
	expect(code).toBe(1);
	expect(stderr).toMatch(/^The service cannot start: .+\n$/);
	expect([...folder.contents().keys()].filter((name) => name.endsWith(".access-key"))).toEqual([]);
	taken.close();

	await using service = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
	await service.logged((line) => line.event === "listening" && line.listener === "grpc");
	expect(service.output.stderr).toMatch(/^ {2}[\w-]{43}$/m);
});
