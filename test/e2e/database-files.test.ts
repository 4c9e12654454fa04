import { chmodSync, readdirSync, statSync } from "node:fs";
import { expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

/** The files in a folder, each with its permissions. */
function modes(folder: TempFolder): Record<string, string> {
	const names = readdirSync(folder.path).sort();
	return Object.fromEntries(names.map((name) => [name, (statSync(folder.file(name)).mode & 0o777).toString(8)]));
}

test("in a folder that other users may read, only the owner may read the database files", async () => {
	using folder = new TempFolder();
	chmodSync(folder.path, 0o755);
	const database = folder.file("conversations.db");
	for (let start = 0; start < 2; start++) {
		await using service = await ServiceProcess.start(database);
		expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
		const files = modes(folder);
		expect(files).toMatchObject({ "conversations.db": "600", "conversations.db-wal": "600" });
		expect(Object.values(files).filter((mode) => mode !== "600")).toEqual([]);
		// The next start finds a database file that others may read.
		service.signal("SIGTERM");
		await service.exit();
		chmodSync(database, 0o644);
	}
});
