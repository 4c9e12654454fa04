import { existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { STORIES } from "../../src/demo/stories.ts";
import { ServiceProcess } from "../support/child.ts";
import { START_ARGUMENTS } from "../support/start-command.ts";

interface Conversation {
	readonly summary: { readonly id: string; readonly title: string; readonly execution_status: string };
}

test("the demo shows ended conversations and one that runs, without gaps, and removes its database", async () => {
	// The variable of the database would be that of real data.
	await using service = await ServiceProcess.start("/never/used.db", { ACCESS_KEYS: "own:key-that-a-demo-ignores" }, [
		...START_ARGUMENTS,
		"serve",
		"--demo",
	]);
	const { database } = await service
		.logged(({ event }) => event === "starting")
		.then((line) => ({ database: JSON.stringify(line) }));
	const [, folder = ""] = /sqlite:([^"]*)\/conversations\.db/.exec(database) ?? [];
	expect(existsSync(folder)).toBe(true);

	// Standard error can be read later than the log.
	const shownKey = () => /^ {2}([\w-]{43})$/m.exec(service.output.stderr)?.[1] ?? "";
	await expect.poll(shownKey).not.toBe("");
	const key = shownKey();
	const read = async (path: string) => {
		const response = await fetch(`${service.http}/api/v1/${path}`, { headers: { "X-Access-Token": key } });
		expect(response.status).toBe(200);
		return JSON.parse(await response.text());
	};
	let conversations: readonly Conversation[] = [];
	while (conversations.length < 4) {
		({ conversations } = await read("conversations"));
		await delay(50);
	}
	const shown = conversations.slice(0, 4).map(({ summary }) => [summary.title, summary.execution_status]);
	const ended = STORIES.slice(0, 3).map(({ title, status }) => [title, status]);
	expect(shown).toEqual([[STORIES[3]?.title, "running"], ...ended.reverse()]);
	expect(await read("conversations?has_gaps=true")).toMatchObject({ conversations: [] });

	// Its key opens every page.
	expect(service.output.stderr).toContain("This is a demo with invented conversations.");
	expect(service.output.stderr).toContain("ACCESS_KEYS and all others do not count");
	await expect.poll(async () => (await read("budgets")).budgets).toMatchObject([{ name: "demo", state: "warning" }]);
	expect((await read("endpoints")).endpoints).toMatchObject([{ name: "demo", state: "active" }]);
	await expect
		.poll(async () => (await read("endpoints/demo/deliveries")).deliveries)
		.toContainEqual(expect.objectContaining({ change: "FINISHED", state: "delivered" }));
	const [, consoleKey = ""] = /#key=([\w-]+)/.exec(service.output.stderr) ?? [];
	const budgets = await fetch(`${service.http}/api/v1/budgets`, { headers: { "X-Access-Token": consoleKey } });
	expect(budgets.status).toBe(200);

	service.signal("SIGTERM");
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	expect(existsSync(folder)).toBe(false);
});
