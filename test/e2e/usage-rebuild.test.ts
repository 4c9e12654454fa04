import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { sqlOn } from "../store/postgres/databases.ts";
import { ServiceProcess } from "../support/child.ts";
import { EVENT_WEBHOOK, postWebhook } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { capturedSequences } from "../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../support/lock-timeout.ts";
import { KEY, startTestService, type TestService, testEnvironment } from "../support/service.ts";

/** Reports from the ledger, and from the sums and days. */
const REPORTS = [
	"group_by=conversation&group_by=model&group_by=usage_id&step=hour",
	"group_by=model&group_by=sender",
	"group_by=usage_id&step=day",
	"group_by=agent_kind&step=hour",
];

async function reports({ http }: TestService): Promise<readonly unknown[]> {
	return await Promise.all(
		REPORTS.map(async (query) => {
			const response = await fetch(`${http}/api/v1/usage?${query}`, { headers: { "X-Access-Token": KEY } });
			return await response.json();
		}),
	);
}

/** Runs SQL beside the service. `in "table"` stands for the table with the prefix of the engine. */
async function damage(url: string, ...statements: readonly string[]): Promise<void> {
	const isFile = url.startsWith("sqlite:");
	const sql = statements.map(
		(text) => `${text.replaceAll(/\busage_\w+/g, (table) => (isFile ? table : `conversation_updates.${table}`))};`,
	);
	if (!isFile) return void (await sqlOn(url, sql.join("\n")));
	using database = new DatabaseSync(url.slice("sqlite:".length), LOCK_TIMEOUT);
	database.exec(sql.join("\n"));
}

async function postAll(service: TestService): Promise<void> {
	for (const { conversationId: id, posts } of capturedSequences())
		for (const { webhook, body } of posts) {
			await postWebhook(service, KEY, body, {}, webhook === "events" ? `${EVENT_WEBHOOK}/${id}` : undefined);
		}
}

describe.each(ENGINES)("usage rebuild with $engine", ({ open }) => {
	test("makes damaged usage, sums and days right beside a running service", async () => {
		await using databases = await open();
		const env = await databases.create();
		await using service = await startTestService(env);
		await postAll(service);
		const right = await reports(service);
		const run = () => ServiceProcess.run({ ...testEnvironment(service.database), ...env }, "usage", "rebuild");
		const done = { code: 0, stdout: "The usage was counted anew from what is stored.\n", stderr: "" };
		expect(await run()).toEqual(done);
		expect(await reports(service)).toEqual(right);

		await damage(
			env.DATABASE_URL,
			"UPDATE usage_ledger SET cost = cost + 5000000000, calls = calls + 1 WHERE quarter = (SELECT min(quarter) FROM usage_ledger)",
			"DELETE FROM usage_ledger WHERE quarter = (SELECT max(quarter) FROM usage_ledger)",
			"UPDATE usage_sums SET prompt_tokens = prompt_tokens * 2",
			'UPDATE usage_conversations SET ledger = \'{"times":[],"copied":[],"calls":[],"costs":[],"steps":[],"lives":[]}\' WHERE conversation_id = (SELECT max(conversation_id::text) FROM usage_conversations)'.replace(
				"::text) FROM",
				env.DATABASE_URL.startsWith("sqlite:") ? ") FROM" : "::text)::uuid FROM",
			),
			"DELETE FROM usage_days",
		);
		expect(await reports(service)).not.toEqual(right);
		expect(await run()).toEqual(done);
		expect(await reports(service)).toEqual(right);
	});

	test("keeps what was seen of pruned history, from which the usage follows again", async () => {
		await using databases = await open();
		const env = await databases.create();
		await using writer = await startTestService(env);
		await postAll(writer);
		const right = await reports(writer);
		await using service = await writer.restart({ RETENTION_UPDATES_PER_CONVERSATION: "1" });
		const { conversationId } = capturedSequences().reduce((most, one) =>
			one.posts.length > most.posts.length ? one : most,
		);
		const left = async () => {
			const path = `/api/v1/conversations/${conversationId}/updates?after_sequence=0&page_size=1000`;
			const response = await fetch(`${service.http}${path}`, { headers: { "X-Access-Token": KEY } });
			return Object(await response.json()).updates.length;
		};
		// The current update, and the one to which it is a delta.
		await expect.poll(left, { timeout: 60_000 }).toBeLessThanOrEqual(2);
		const run = () => ServiceProcess.run({ ...testEnvironment(service.database), ...env }, "usage", "rebuild");
		expect(await run()).toMatchObject({ code: 0 });
		expect(await reports(service)).toEqual(right);
		await damage(env.DATABASE_URL, "UPDATE usage_ledger SET cost = cost + 5000000000");
		await run();
		const totals = (all: readonly unknown[]) => all.map((report) => Object(report).total.cost);
		for (const [n, cost] of totals(await reports(service)).entries()) expect(cost).toBeCloseTo(totals(right)[n], 6);
	});
});
