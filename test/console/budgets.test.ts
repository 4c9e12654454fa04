import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { BudgetPeriod, BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import { clientOf, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { DESKTOP, PHONE } from "./browser.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible, expectAccessibleAndFit } from "./visit.ts";

const PAUSER = "key-of-one-who-may-pause-too";
const READER = "key-of-a-reader-of-conversations";
const service = new TestedConsole({
	env: {
		ACCESS_KEYS: `test:${KEY}:ingest+read+forward,pauser:${PAUSER}:read+forward+pause,reader:${READER}:read`,
	},
	samples: [],
});

test("the page shows what is spent of the budgets, and what spends one", async () => {
	const page = await service.open();
	await page.getByRole("link", { name: "Budgets" }).click();
	await page.getByText("No budget yet").waitFor();
	const id = randomUUID();
	const costs = [{ model: "m", cost: 3, timestamp: Date.now() / 1000 }];
	const stats = { usage_to_metrics: { agent: { model_name: "m", accumulated_cost: 3, costs } } };
	expect((await postWebhook(service, KEY, JSON.stringify(record({ id, stats })))).status).toBe(200);
	const budgets = clientOf(BudgetService, service, "connect", KEY);
	await budgets.createBudget({ name: "life", amount: 2, period: BudgetPeriod.CONVERSATION });
	await budgets.createBudget({ name: "quiet", owner: "red", silentMinutes: 10 });
	await budgets.createBudget({ name: "words", tokens: 1000n, period: BudgetPeriod.DAY });
	await page.reload();
	const table = page.getByRole("region", { name: "Budgets" });
	await table.getByText("exceeded").waitFor();
	const rows = await table
		.getByRole("row")
		.evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent?.trim())));
	expect(rows).toEqual([
		["Budget", "State", "Spent", "Limit", "Share", "Forecast", "Period"],
		["life", "✕ exceeded", "$3.00", "$2.00", "150 %", "", "conversation"],
		["words", "✓ ok", "0 tokens1 not reported", "1,000 tokens", "0 %", "0 tokens", "day"],
		["quiet red", "✓ ok", "0", "", "", "", "conversations now"],
	]);
	await table.getByRole("link", { name: "life" }).click();
	const spender = page.getByRole("listitem");
	await expect.poll(() => spender.allTextContents()).toEqual([`${id}: $3.00`]);
	await spender.getByRole("link").click();
	await page.waitForURL((url) => url.hash === `#/conversations/${id}`);
});

test.each([
	["light", DESKTOP],
	["dark", PHONE],
] as const)(
	"in the theme %s at the size %o the page is accessible, and fits the width",
	async (colorScheme, viewport) => {
		const page = await service.open("#/budgets?budget=life", { colorScheme, viewport });
		await page.getByRole("listitem").first().waitFor();
		await expectAccessibleAndFit(page);
	},
);

test("a budget is made, changed and removed, with the scopes of the key", async () => {
	const page = await service.open("#/budgets", {}, PAUSER);
	const made = page.getByRole("region", { name: "New budget" });
	await made.getByLabel("Name").fill("team");
	await made.getByLabel("Value").fill("20.5");
	await made.getByLabel("Period").selectOption("a week");
	await made.getByLabel("Time zone").fill("Europe/Nowhere");
	await made.getByLabel("Only conversations with").fill('{"tags": {"team": "a"}}');
	await made.getByLabel("pause").check();
	await made.getByRole("button", { name: "Create" }).click();
	await made
		.getByRole("alert")
		.getByText(/time_zone/)
		.waitFor();
	await made.getByLabel("Time zone").fill("Europe/Berlin");
	await made.getByRole("button", { name: "Create" }).click();
	const shown = page.getByRole("region", { name: "What spends team" });
	await shown.waitFor();
	const budgets = clientOf(BudgetService, service, "connect", KEY);
	const read = async () => (await budgets.getBudget({ name: "team" })).budget;
	expect(await read()).toMatchObject({
		...{ amount: 20.5, period: BudgetPeriod.WEEK, timeZone: "Europe/Berlin", pause: true, eachConversation: false },
		filter: { tags: { team: "a" } },
	});
	await shown.getByRole("button", { name: "Edit" }).click();
	await expect.poll(() => shown.getByLabel("Value").inputValue()).toBe("20.5");
	await shown.getByLabel("Limit of").selectOption("minutes of silence");
	await shown.getByLabel("Value").fill("15");
	await shown.getByLabel("Only conversations with").fill("");
	await shown.getByRole("button", { name: "Save" }).click();
	await shown.getByText("It is changed.").waitFor();
	const changed = await read();
	expect([changed?.amount, changed?.silentMinutes, changed?.filter?.tags]).toEqual([undefined, 15, undefined]);
	await expectAccessible(page);
	await shown.getByRole("button", { name: "Delete…" }).click();
	const dialog = page.getByRole("dialog", { name: "Delete the budget team for good" });
	await dialog.getByRole("button", { name: "Delete" }).click();
	await shown.waitFor({ state: "detached" });
	expect((await budgets.listBudgets({})).budgets.map(({ name }) => name)).not.toContain("team");
	// A key without the scope pause cannot make a budget that pauses.
	const other = await service.open("#/budgets");
	await other.getByRole("region", { name: "New budget" }).getByLabel("each").waitFor();
	expect(await other.getByLabel("pause").count()).toBe(0);
});

test("a key without the scope has no such page in its navigation", async () => {
	const page = await service.open("#/about", {}, READER);
	await page.getByText("Point an agent server here").first().waitFor();
	expect(await page.getByRole("link", { name: "Budgets" }).count()).toBe(0);
});
