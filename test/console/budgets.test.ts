import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BudgetPeriod, BudgetService } from "../../gen/conversations/v1/budget_service_pb.js";
import { clientOf, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { expectAccessible, visitWithKey } from "./visit.ts";

const READER = "key-of-a-reader-of-conversations";
let browser: TestBrowser;
let service: TestService;

beforeAll(async () => {
	browser = await TestBrowser.start();
	service = await startTestService({ ACCESS_KEYS: `test:${KEY}:ingest+read+forward,reader:${READER}:read` });
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

test("the page shows what is spent of the budgets, and what spends one", async () => {
	const { page, faults } = await visitWithKey(browser, service.http);
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
		["words", "✓ ok", "0 tokens", "1,000 tokens", "0 %", "0 tokens", "day"],
		["quiet red", "✓ ok", "0", "", "", "", "conversations now"],
	]);
	await table.getByRole("link", { name: "life" }).click();
	const spender = page.getByRole("listitem");
	await expect.poll(() => spender.allTextContents()).toEqual([`${id}: $3.00`]);
	await spender.getByRole("link").click();
	await page.waitForURL((url) => url.hash === `#/conversations/${id}`);
	expect(faults).toEqual([]);
	await page.context().close();
});

test.each([
	["light", { width: 1280, height: 900 }],
	["dark", { width: 1280, height: 900 }],
	["light", { width: 390, height: 800 }],
] as const)(
	"in the theme %s at the size %o the page is accessible, and fits the width",
	async (colorScheme, viewport) => {
		const { page } = await visitWithKey(browser, service.http, "#/budgets?budget=life", { colorScheme, viewport });
		await page.getByRole("listitem").first().waitFor();
		await expectAccessible(page);
		expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
		await page.context().close();
	},
);

test("a key without the scope has no such page in its navigation", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/about", {}, READER);
	await page.getByText("Point an agent server here").first().waitFor();
	expect(await page.getByRole("link", { name: "Budgets" }).count()).toBe(0);
	await page.context().close();
});
