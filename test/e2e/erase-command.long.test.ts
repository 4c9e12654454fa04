import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, postWebhook, readClient } from "../support/clients.ts";
import { ENGINES } from "../support/engines.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const ENV = { ACCESS_KEYS: `test:${KEY}:ingest+read+erase` };

async function erase(service: Endpoints, id: string, query: string): Promise<[number, unknown]> {
	const headers = { "X-Access-Token": KEY };
	const response = await fetch(`${service.http}/api/v1/conversations/${id}${query}`, { method: "DELETE", headers });
	return [response.status, await response.json()];
}

async function post(service: Endpoints, members: object): Promise<void> {
	expect((await postWebhook(service, KEY, JSON.stringify(record({ ...members })))).status).toBe(200);
}

test("with_children and --with-children erase a tree, and without them the children stay", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const trees = Array.from({ length: 3 }, () => Array.from({ length: 3 }, () => randomUUID()));
	const [kept = [], first = [], second = []] = trees;
	{
		await using service = await ServiceProcess.start(database, ENV);
		for (const ids of trees)
			for (const [n, id] of ids.entries()) await post(service, { id, parent_conversation_id: ids[n - 1] ?? null });
		expect(await erase(service, kept[0] ?? "", "?with_children=yes")).toMatchObject([400, {}]);
		expect(await erase(service, kept[0] ?? "", "?with_children=false")).toEqual([200, { erased: 1 }]);
		expect(await erase(service, first[0] ?? "", "?with_children=true")).toEqual([200, { erased: 3 }]);
	}
	const command = await ServiceProcess.run(testEnvironment(database), "erase", "--with-children", second[0] ?? "");
	expect(command).toMatchObject({ code: 0, stdout: "3 conversations were erased.\n" });
	await using service = await ServiceProcess.start(database, ENV);
	const { conversations } = await readClient(service, "connect", KEY).listConversations({});
	expect(conversations.map(({ summary }) => summary?.id).toSorted()).toEqual(kept.slice(1).toSorted());
});

test.each(ENGINES)(
	"with $engine, the command erases by age in steps, with progress, and by many ids",
	async ({ open }) => {
		await using databases = await open();
		const env = { ...testEnvironment(""), ...(await databases.create()) };
		const ids = Array.from({ length: 170 }, () => randomUUID());
		const [finished, running, young] = [ids.slice(0, 120), ids.slice(120, 145), ids.slice(145)];
		const [old, now] = ["2026-01-01T00:00:00Z", new Date().toISOString()];
		{
			await using service = await startTestService(env);
			const posts = [
				...finished.map((id) => ({ id, execution_status: "finished", updated_at: old })),
				...running.map((id) => ({ id, execution_status: "running", updated_at: old })),
				...young.map((id) => ({ id, execution_status: "finished", updated_at: now })),
			];
			await Promise.all(posts.map((members) => post(service, members)));
		}
		const policy = ["erase", "--older-than", "90d", "--status", "finished"];
		const dryRun = await ServiceProcess.run(env, ...policy);
		const [listed, sentence] = [dryRun.stdout.split("\n").slice(0, -2), dryRun.stdout.split("\n").at(-2)];
		expect(listed.toSorted()).toEqual(finished.toSorted());
		expect(sentence).toBe("120 conversations would be erased. Add --execute to erase them.");
		const { code, stdout, stderr } = await ServiceProcess.run(env, ...policy, "--execute");
		expect([code, stdout]).toEqual([0, "120 conversations were erased.\n"]);
		const lines = stderr.split("\n");
		expect(lines.filter((line) => line.includes(" % of "))).toEqual(
			["80", "100"].map((percent) => `${percent} % of 120 conversations are erased`),
		);
		expect(lines.filter((line) => line.includes("conversation_erased"))).toHaveLength(120);
		expect(await ServiceProcess.run(env, "erase", ...young, ...finished.slice(0, 1))).toMatchObject({
			code: 1,
			stderr: expect.stringContaining(`there is no conversation ${finished[0]}; 25 conversations were erased.`),
		});
		await using service = await startTestService(env);
		const { conversations } = await readClient(service, "connect", KEY).listConversations({ pageSize: 1000 });
		expect(conversations.map(({ summary }) => summary?.id).toSorted()).toEqual(running.toSorted());
	},
);
