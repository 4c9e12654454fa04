import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { postWebhook } from "../support/clients.ts";
import { capturedSequences } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

async function report({ http }: TestService): Promise<{ readonly rows: readonly object[]; readonly total: object }> {
	const response = await fetch(`${http}/api/v1/usage?group_by=conversation`, { headers: { "X-Access-Token": KEY } });
	return JSON.parse(await response.text());
}

test("the usage of conversations that a release without a ledger stored is counted once, from their records", async () => {
	await using service = await startTestService();
	for (const { posts } of capturedSequences())
		for (const { webhook, body } of posts) if (webhook === "conversations") await postWebhook(service, KEY, body);
	const counted = await report(service);
	expect(counted.rows.length).toBeGreaterThan(5);
	await service.stop();
	{
		using database = new DatabaseSync(service.database);
		for (const table of ["usage_conversations", "usage_ledger", "usage_sums"]) database.exec(`DELETE FROM ${table}`);
		database.exec("DELETE FROM derivations WHERE name = 'usage'");
	}
	await using upgraded = await service.restart();
	const finished = () =>
		upgraded.log().includes('"event":"usage_counted"') && upgraded.log().includes('"isComplete":true');
	await expect.poll(finished, { timeout: 30_000 }).toBe(true);
	expect(await report(upgraded)).toEqual(counted);
	await using again = await upgraded.restart();
	expect(await report(again)).toEqual(counted);
});
