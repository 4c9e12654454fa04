import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { sqlOn } from "../store/postgres/databases.ts";
import { EVENT_WEBHOOK, postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { capturedSequences } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

/** Returns the usage of each conversation, model and hour. */
async function report({ http }: TestService): Promise<{ readonly rows: readonly object[]; readonly total: object }> {
	const query = "group_by=conversation&group_by=model&group_by=usage_id&step=hour";
	const response = await fetch(`${http}/api/v1/usage?${query}`, { headers: { "X-Access-Token": KEY } });
	return JSON.parse(await response.text());
}

/** Makes a database like one that a release without a ledger has written. */
async function removeLedger(url: string): Promise<void> {
	const isFile = url.startsWith("sqlite:");
	const prefix = isFile ? "" : "conversation_updates.";
	const tables = ["usage_conversations", "usage_ledger", "usage_sums", "derivations"];
	const sql = [
		...tables.map((table) => `DELETE FROM ${prefix}${table};`),
		`UPDATE ${prefix}events SET llm_response_id = NULL;`,
	].join("\n");
	if (!isFile) return void (await sqlOn(url, sql));
	using database = new DatabaseSync(url.slice("sqlite:".length));
	database.exec(sql);
}

test.each(ENGINES)(
	"the usage of conversations that a release without a ledger stored is counted once, as if it had been counted then, with $engine",
	async ({ open }) => {
		await using databases = await open();
		const env = await databases.create();
		await using service = await startTestService(env);
		for (const { conversationId: id, posts } of capturedSequences())
			for (const { webhook, body } of posts)
				await postWebhook(service, KEY, body, {}, webhook === "events" ? `${EVENT_WEBHOOK}/${id}` : undefined);
		const counted = await report(service);
		expect(counted.rows.length).toBeGreaterThan(5);
		await service.stop();
		await removeLedger(env.DATABASE_URL);
		await using upgraded = await service.restart();
		// Other data is derived anew, too.
		const finished = () => /"event":"usage_counted".*"isComplete":true/.test(upgraded.log());
		await expect.poll(finished).toBe(true);
		expect(await report(upgraded)).toEqual(counted);
		await using again = await upgraded.restart();
		expect(await report(again)).toEqual(counted);
	},
);
