import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { object } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { postSample, SAMPLES } from "./samples.ts";
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
