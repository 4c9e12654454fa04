import { mkdirSync } from "node:fs";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { permissionsBind, UnprivilegedFolder } from "../support/permissions.ts";
import { expectReady } from "../support/ready.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { canMount, runReadOnly } from "../support/small-disk.ts";
import { TempFolder } from "../support/temp.ts";

async function post(service: Endpoints, json: JsonObject): Promise<readonly unknown[]> {
	const response = await postWebhook(service, KEY, JSON.stringify(json));
	return [response.status, response.headers.get("Retry-After"), await response.json()];
}

const accepted = [200, null, { success: true }];
const quiet = (database: string) => ({ ...testEnvironment(database), LOG_LEVEL: "silent" });

/** Stops a service as an operator does. */
async function stop(service: ServiceProcess): Promise<void> {
	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
}

// Where permissions do not apply to the service, only store-faults.long.test.ts tests starts that fail.
const permissionTest = test.runIf(permissionsBind());

permissionTest(
	"a service that loses access to the folder of its database refuses posts, and recovers with access",
	async () => {
		using folder = new UnprivilegedFolder();
		const { database } = folder;
		await using service = await folder.start();
		const [first, second] = [record(), record()];
		expect(await post(service, first)).toEqual(accepted);
		folder.permit(0o000);
		const refused = [503, "5", { detail: "the store's database was moved, deleted or replaced" }];
		await expectReady(service, false);
		expect(await post(service, second)).toEqual(refused);
		expect(JSON.parse(await getText(service, KEY, first.id))).toMatchObject({ id: first.id });
		folder.permit(0o700);
		await expectReady(service, true);
		expect(await post(service, second)).toEqual(accepted);
		const reason = `EACCES: permission denied, stat '${database}' (SQLite result code 1032)`;
		const message = `${database} cannot be reached while the database is open: ${reason}`;
		expect(await service.logged(({ event }) => event === "store_failed")).toMatchObject({
			error: { type: "ServiceError", cause: { message } },
		});
		await service.logged(({ event }) => event === "store_unhealthy");
		await service.logged(({ event }) => event === "store_healthy");
		await stop(service);
	},
);

permissionTest("a start in a folder without write permission fails with one line, and succeeds with it", async () => {
	using folder = new UnprivilegedFolder();
	const start = "The service cannot start: the store";
	folder.permit(0o500);
	const denied = `EACCES: permission denied, open '${folder.database}'`;
	expect(await folder.run(quiet(folder.database))).toEqual({
		code: 1,
		stdout: "",
		stderr: `${start}'s database cannot be opened: ${denied}\n`,
	});
	expect([...folder.contents().keys()]).toEqual([]);
	folder.permit(0o700);
	const json = record();
	{
		await using service = await folder.start();
		expect(await post(service, json)).toEqual(accepted);
		await stop(service);
	}
	// The folder now contains a database, but SQLite cannot create the write-ahead log.
	folder.permit(0o500);
	expect(await folder.run(quiet(folder.database))).toEqual({
		code: 1,
		stdout: "",
		stderr: `${start} is read-only: attempt to write a readonly database (SQLite result code 1544)\n`,
	});
	folder.permit(0o700);
	await using service = await folder.start();
	expect(JSON.parse(await getText(service, KEY, json.id))).toMatchObject({ id: json.id });
	expect(await post(service, record())).toEqual(accepted);
});

// Where no file system can be mounted, only the test above covers a start without write access.
test.runIf(canMount())("a start fails with one line on a read-only file system, and later succeeds", async () => {
	using outer = new TempFolder();
	const data = outer.file("data");
	mkdirSync(data);
	const database = outer.file("data/conversations.db");
	const failed = (call: string) => ({
		code: 1,
		stdout: "",
		stderr: `The service cannot start: the store's database cannot be opened: EROFS: read-only file system, ${call} '${database}'\n`,
	});
	expect(await runReadOnly(data, quiet(database))).toEqual(failed("open"));
	const json = record();
	{
		await using service = await ServiceProcess.start(database);
		expect(await post(service, json)).toEqual(accepted);
		await stop(service);
	}
	expect(await runReadOnly(data, quiet(database))).toEqual(failed("access"));
	await using service = await ServiceProcess.start(database);
	expect(JSON.parse(await getText(service, KEY, json.id))).toMatchObject({ id: json.id });
	expect(await post(service, record())).toEqual(accepted);
});
