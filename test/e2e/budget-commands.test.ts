import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

/** Returns the cells of a table that a command printed. */
const cells = (stdout: string) =>
	stdout
		.trimEnd()
		.split("\n")
		.map((line) => line.split(/ {2,}/));

test("the commands manage budgets, with a running service and without one", async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const env = testEnvironment(database);
	const run = async (...args: readonly string[]) => {
		const { code, stdout, stderr } = await ServiceProcess.run(env, "budgets", ...args);
		return code === 0 ? stdout : `${code}: ${stderr}`;
	};
	const id = randomUUID();
	{
		await using service = await ServiceProcess.start(database);
		const costs = [{ model: "m", cost: 3, timestamp: Date.now() / 1000 }];
		const metrics = { model_name: "m", accumulated_cost: 3, costs };
		const posted = record({ id, tags: { team: "a" }, stats: { usage_to_metrics: { agent: metrics } } });
		expect((await postWebhook(service, KEY, JSON.stringify(posted))).status).toBe(200);
		const asked = ["amount=4", "period=conversation", "thresholds=1,0.5", "--filter", "tag=team:a"];
		expect(await run("create", "team", ...asked)).toBe("The budget team was created.\n");
		expect(await run("create", "quiet", "silent_minutes=10", "--owner", "red")).toBe("The budget quiet was created.\n");
		expect(await run("create", "team", "tokens=1")).toBe(
			"1: The command budgets create failed: There is a budget with the name team\n",
		);
		expect(await run("create", "other", "amount=much")).toBe(
			"1: The command budgets create failed: amount must be a number\n",
		);
		expect(await run("create", "other", "cost=1")).toMatch(/^2: Give settings such as amount=200\. There are amount, /);
		expect(await run("update", "team")).toMatch(/^2: Give a setting/);
		expect(await run("show")).toMatch(/^2: Usage: budgets show NAME/);
		expect(cells(await run("list"))).toEqual([
			["NAME", "OWNER", "PERIOD", "STATE", "SPENT", "LIMIT", "FORECAST"],
			["team", "-", "conversation", "warning", "3", "4", "-"],
			["quiet", "red", "month", "ok", "0", "silent for 10 minutes", "-"],
		]);
		const shown = Object.fromEntries(cells(await run("show", "team")));
		expect(shown).toMatchObject({
			...{ name: "team", owner: "-", amount: "4", period: "conversation", "time zone": "-" },
			...{ filter: '{"tags":{"team":"a"}}', model: "-", "usage id": "-", thresholds: "0.5,1" },
			...{ "each conversation": "yes", pause: "no", spent: "3", state: "warning", "created by": "command" },
			...{ spenders: `{"conversationId":"${id}","spent":3}`, "conversations not reported": "0" },
		});
		service.signal("SIGTERM");
		await service.exit();
	}
	const changes = ["amount=3", "pause=true", "thresholds="];
	expect(await run("update", "team", ...changes)).toBe("The budget team was changed.\n");
	const shown = new Map(cells(await run("show", "team")).map(([name, value]) => [name, value]));
	expect(["amount", "filter", "thresholds", "pause", "state"].map((name) => shown.get(name))).toEqual([
		...["3", '{"tags":{"team":"a"}}', "0.5,0.8,1", "yes", "exceeded"],
	]);
	expect(await run("delete", "quiet", "--owner", "red")).toBe("The budget quiet is deleted.\n");
	expect(await run("show", "quiet", "--owner", "red")).toBe(
		"1: The command budgets show failed: There is no such budget\n",
	);
});
