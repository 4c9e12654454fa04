import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { object } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { postSample, SAMPLES, sampleId } from "./samples.ts";
import { expectAccessible, visitWithKey } from "./visit.ts";

let browser: TestBrowser;
let service: TestService;

beforeAll(async () => {
	browser = await TestBrowser.start();
	service = await startTestService();
	for (const sample of SAMPLES) await postSample(service.http, sample);
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

test("usage by model and day is what ReportUsage returns, as a table", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, "#/usage");
	const all = page.getByRole("row", { name: /^All/ });
	await all.waitFor();
	const from = new Date(Date.now() - 6 * 86_400_000).toISOString().slice(0, 10);
	const response = await fetch(`${service.http}/conversations.v1.ConversationReportService/ReportUsage`, {
		method: "POST",
		headers: { "Content-Type": "application/json", "X-Access-Token": KEY },
		body: JSON.stringify({ from: `${from}T00:00:00Z`, groupBy: ["model"] }),
	});
	const report = object(await response.json());
	const rows: unknown = report.rows;
	if (!Array.isArray(rows)) throw new Error("a report has rows");
	expect(rows.length).toBeGreaterThan(3);
	for (const row of rows.map(object)) {
		const usage = object(row.usage);
		const shown = page.getByRole("row", { name: new RegExp(`${String(row.group)}`) });
		await shown.getByText(`$${Number(usage.cost).toFixed(2)}`, { exact: true }).waitFor();
	}
	expect(faults).toEqual([]);
	await expectAccessible(page);
	await page.context().close();
});

test("days without usage are shown as zero, and the sum of the days is the whole", async () => {
	const daysAtFirst = newestDays(14);
	const { page } = await visitWithKey(browser, service.http, "#/usage?range=14&step=day");
	const days = page.getByRole("region", { name: "Numbers by day" });
	await days.waitFor();
	const names = await days.getByRole("rowheader").allTextContents();
	// The next day may have begun meanwhile.
	expect([daysAtFirst, newestDays(14)]).toContainEqual(names);
	const sums = await days.locator("tbody tr td:last-child").allTextContents();
	expect(sums.slice(3)).toEqual(sums.slice(3).map(() => "$0.00"));
	const all = await page.getByRole("row", { name: /^All/ }).getByRole("cell").first().textContent();
	const sum = sums.reduce((total, text) => total + Number(text.slice(1)), 0);
	expect(`$${sum.toFixed(2)}`).toBe(all);
	await page.getByLabel("Step").selectOption("hour");
	await page.getByRole("button", { name: /^Show all 3\d\d$/ }).click();
	const hours = page.getByRole("region", { name: "Numbers by hour" }).getByRole("row");
	await expect.poll(() => hours.count()).toBeGreaterThan(13 * 24);
	await page.context().close();
});

/** Returns the names of the newest days, today first, in the time zone of the browser. */
function newestDays(count: number): string[] {
	const name = { weekday: "short", day: "numeric", month: "short", timeZone: "Europe/Berlin" } as const;
	return Array.from({ length: count }, (_, index) =>
		new Intl.DateTimeFormat("en-GB", name).format(Date.now() - index * 86_400_000),
	);
}

test("usage is grouped by the values of a tag, and limited by a filter in the address", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/usage?tag_key=repo");
	const groups = page.getByRole("region", { name: "Numbers", exact: true }).getByRole("rowheader");
	await groups.first().waitFor();
	await page.getByRole("combobox", { name: "By" }).selectOption("tag:repo");
	await expect
		.poll(async () => (await groups.allTextContents()).map((text) => text.trim()))
		.toEqual(["shop", "billing", "web", "infra", "All"]);
	await page.context().close();
});

test("usage of chosen days, limited by a filter of the field, is what ReportUsage returns for them", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/usage");
	await page.getByLabel("Range").selectOption("chosen days");
	const day = (ago: number) =>
		new Intl.DateTimeFormat("en-CA", { timeZone: "Europe/Berlin" }).format(Date.now() - ago * 86_400_000);
	// All of the samples, whose newest calls are of today.
	const from = day(2);
	await page.getByLabel("from", { exact: true }).fill(from);
	await page.getByLabel("to", { exact: true }).fill(day(0));
	await page.getByRole("combobox", { name: /^Filter/ }).fill("model:model-deep-4");
	await page.keyboard.press("Enter");
	await page.getByRole("button", { name: "Model: model-deep-4" }).waitFor();
	const groups = page.locator("[aria-busy=false]").getByRole("region", { name: "Numbers", exact: true });
	await expect
		.poll(async () => (await groups.getByRole("rowheader").allTextContents()).map((text) => text.trim()))
		.toEqual(["model-deep-4", "All"]);
	await expect
		.poll(() => groups.getByRole("row", { name: /^All/ }).getByRole("cell").first().textContent())
		.toBe("$2.70");
	await expectAccessible(page);
	await page.getByLabel("from", { exact: true }).fill(day(5));
	await page.getByLabel("to", { exact: true }).fill(day(4));
	await page.getByText("No usage in this range").waitFor();
	await page.getByLabel("Range").selectOption("last month");
	await expect.poll(() => page.getByLabel("from", { exact: true }).count()).toBe(0);
	await page.context().close();
});

test("the days of a range can be typed, and one that ends before it begins is told", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/usage?range=days");
	await page.getByRole("row", { name: /^All/ }).waitFor();
	const type = async (label: string, day: string) => {
		const field = page.getByLabel(label, { exact: true });
		await field.focus();
		// The browser of the tests has the order of the United States.
		const [year, month, date] = day.split("-");
		await page.keyboard.type(`${month}${date}${year}`, { delay: 50 });
		await expect.poll(() => field.inputValue()).toBe(day);
		await expect.poll(() => page.url()).toContain(`${label}=${day}`);
		await field.blur();
	};
	await type("from", "2026-02-03");
	await type("to", "2025-12-31");
	await page.getByText("The last day is before the first one; the range ends now.").waitFor();
	await type("to", "2026-02-04");
	await expect.poll(() => page.getByText("The last day is before the first one").count()).toBe(0);
	await page.context().close();
});

test("usage of silent conversations is downloaded as CSV, too", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/usage?silent_minutes=0");
	await page.getByRole("row", { name: /^All/ }).waitFor();
	const downloading = page.waitForEvent("download");
	await page.keyboard.press("c");
	const text = await readFile(await (await downloading).path(), "utf8");
	expect(text).toContain("model-large-4");
	await page.context().close();
});

test("usage by model and day is downloaded as CSV in two steps", async () => {
	const { page } = await visitWithKey(browser, service.http);
	await page.getByRole("link", { name: "Usage" }).click();
	await page.getByRole("row", { name: /^All/ }).waitFor();
	const downloading = page.waitForEvent("download");
	await page.keyboard.press("c");
	const download = await downloading;
	expect(download.suggestedFilename()).toBe("usage-by-model-and-day.csv");
	const text = await readFile(await download.path(), "utf8");
	expect(text.split("\n")[0]).toContain("model");
	expect(text).toContain("model-large-4");
	await page.context().close();
});

test("the rest of the groups comes last, and no other group has its color or that of another one", async () => {
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	// The rest costs more than the sixth and the seventh group.
	for (let number = 1; number <= 9; number += 1) {
		const model = `model-of-few-calls-${number}`;
		await postSample(service.http, { ...sample, id: sampleId(700 + number), model, costs: [0.001], minutesAgo: 1 });
	}
	const { page } = await visitWithKey(browser, service.http, "#/usage");
	const numbers = page.getByRole("region", { name: "Numbers", exact: true });
	const names = async () => (await numbers.getByRole("rowheader").allTextContents()).map((name) => name.trim());
	await expect.poll(async () => (await names()).slice(-2)).toEqual(["others", "All"]);
	const swatches = await numbers.locator(".swatch").evaluateAll((all) => all.map((one) => one.getAttribute("style")));
	expect(swatches).toHaveLength(8);
	expect(new Set(swatches).size).toBe(8);
	await page.context().close();
});
