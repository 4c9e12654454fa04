import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { object } from "../support/fixtures.ts";
import { post, postSample, recordOf, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible, goTo, hashOf } from "./visit.ts";

const service = new TestedConsole();

/** Returns a day in the time zone of the browser, such as 2026-11-23. */
function day(ago: number): string {
	return new Intl.DateTimeFormat("en-CA", { timeZone: "Europe/Berlin" }).format(Date.now() - ago * 86_400_000);
}

test("days without usage are shown as zero, and the sum of the days is the whole", async () => {
	const daysAtFirst = newestDays(14);
	const page = await service.open("#/usage?range=last_14_days&step=day");
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
});

/** Returns the names of the newest days, today first, in the time zone of the browser. */
function newestDays(count: number): string[] {
	const name = { weekday: "short", day: "numeric", month: "short", timeZone: "Europe/Berlin" } as const;
	return Array.from({ length: count }, (_, index) =>
		new Intl.DateTimeFormat("en-GB", name).format(Date.now() - index * 86_400_000),
	);
}

test("usage is grouped by the values of a tag, and limited by a filter in the address", async () => {
	const page = await service.open("#/usage?tag_key=repo");
	const groups = page.getByRole("region", { name: "Numbers", exact: true }).getByRole("rowheader");
	await groups.first().waitFor();
	await page.getByRole("combobox", { name: "By" }).selectOption("tag:repo");
	await expect
		.poll(async () => (await groups.allTextContents()).map((text) => text.trim()))
		.toEqual(["shop", "billing", "web", "infra", "All"]);
});

test("usage of chosen days, limited by a filter of the field, is what ReportUsage returns for them", async () => {
	const page = await service.open("#/usage");
	await page.getByLabel("Range", { exact: true }).selectOption("chosen days");
	// All of the samples, whose newest calls are of today.
	const from = day(2);
	await page.getByLabel("Range from").fill(from);
	await page.getByLabel("Range to").fill(day(0));
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
	await page.getByLabel("Range from").fill(day(5));
	await page.getByLabel("Range to").fill(day(4));
	await page.getByText("No usage in this range").waitFor();
	await page.getByLabel("Range", { exact: true }).selectOption("last month");
	await expect.poll(() => page.getByLabel("Range from").count()).toBe(0);
});

test("the days of a range can be typed, and one that ends before it begins is told", async () => {
	const page = await service.open("#/usage?range=2026-01-01..2026-01-02");
	await page.getByText("No usage in this range").waitFor();
	const type = async (label: string, day: string) => {
		const field = page.getByLabel(label);
		await field.focus();
		// The browser of the tests has the order of the United States.
		const [year, month, date] = day.split("-");
		await page.keyboard.type(`${month}${date}${year}`, { delay: 50 });
		await expect.poll(() => field.inputValue()).toBe(day);
		await field.blur();
	};
	await type("Range from", "2026-02-03");
	await page.getByText("These are no days of which the last one follows the first.").waitFor();
	await type("Range to", "2026-02-04");
	await expect.poll(() => hashOf(page)).toBe("#/usage?range=2026-02-03..2026-02-04");
	await expect.poll(() => page.getByText("These are no days").count()).toBe(0);
});

test("the dearest conversations of a range have what they cost in it, and a click on a bar shows its own", async () => {
	// It cost 5 in the range of a year, of which only 2 yesterday.
	const old = sampleWith({ id: sampleId(811), title: "Costs on two days", model: "model-of-two-days", costs: [3, 2] });
	const noon = (ago: number) => Date.parse(`${day(ago)}T12:00:00Z`) / 1000;
	const record = recordOf({ ...old, minutesAgo: 60 });
	const metrics = object(object(object(record.stats).usage_to_metrics).agent);
	const costs = [3, 2].map((cost, index) => ({ model: old.model, cost, timestamp: noon(index === 0 ? 8 : 1) }));
	const stats = { usage_to_metrics: { agent: { ...metrics, costs } } };
	await post(service.http, "conversations", { ...record, stats });
	const page = await service.open("#/usage?range=last_365_days&model=model-of-two-days");
	const spenders = page.getByRole("region", { name: /^Conversations that cost most/ });
	const row = spenders.getByRole("row", { name: /Costs on two days/ });
	const cells = () => row.getByRole("cell").allTextContents();
	await expect.poll(async () => (await cells())[1]).toBe("$5.00");
	await goTo(page, "#/usage?range=yesterday&model=model-of-two-days");
	await expect.poll(async () => (await cells())[1]).toBe("$2.00");
	await spenders.getByRole("link", { name: "Open as a list" }).click();
	await page.locator(".list:not(.stale)").getByText("Costs on two days").waitFor();
	await expect.poll(() => page.locator(".list .line:not(.head)").count()).toBe(1);
	// The only bar of the range stands in its middle, and the number in the table leads to the same.
	await goTo(page, "#/usage?range=yesterday&model=model-of-two-days");
	await expect.poll(async () => (await cells())[1]).toBe("$2.00");
	const plot = page.locator(".chart .u-over");
	// The chart may be drawn anew between its measuring and the click.
	const clicked = async () => {
		const { width, height } = (await plot.boundingBox()) ?? { width: 0, height: 0 };
		await plot.click({ position: { x: width / 2, y: height * 0.8 } });
		return page.url();
	};
	await expect.poll(clicked, { interval: 1_000 }).toContain("of=model-of-two-days");
	await page.getByRole("heading", { name: /^Conversations that cost most in .* · model-of-two-days$/ }).waitFor();
	await expect.poll(async () => (await cells())[1]).toBe("$2.00");
	const chosen = page.url();
	await page.getByRole("button", { name: "Show those of the whole range" }).click();
	await expect.poll(() => page.url()).not.toContain("at=");
	await page.getByRole("region", { name: "Numbers by day" }).getByRole("link").first().click();
	await expect.poll(() => page.url()).toBe(chosen);
	await expectAccessible(page);
});

test("two ranges stand beside each other, with what has changed", async () => {
	const of = (number: number, model: string, cost: number, minutesAgo: number) =>
		postSample(
			service.http,
			sampleWith({ id: sampleId(number), title: model, model, costs: [cost], tags: { beside: "yes" }, minutesAgo }),
		);
	await of(821, "model-that-grew", 3, 40 * 24 * 60);
	await of(822, "model-that-grew", 1, 50 * 24 * 60);
	await of(823, "model-that-ended", 2, 50 * 24 * 60);
	const days = (from: number, to: number) => {
		const name = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
		return `${name(from)}..${name(to)}`;
	};
	const address = `#/usage?range=${days(44, 35)}&compare=${days(54, 45)}&tag=beside:yes`;
	const page = await service.open(address);
	const numbers = page.getByRole("region", { name: "Numbers", exact: true });
	const cells = async (name: RegExp) => {
		const texts = await numbers.getByRole("row", { name }).getByRole("cell").allTextContents();
		return texts.slice(0, 5);
	};
	await expect.poll(() => cells(/model-that-grew/)).toEqual(["$3.00", "$1.00", "+$2.00 (+200 %)", "1", "1"]);
	expect(await cells(/model-that-ended/)).toEqual(["$0.00", "$2.00", "−$2.00 (−100 %)", "0", "1"]);
	expect(await cells(/^All/)).toEqual(["$3.00", "$3.00", "–", "1", "2"]);
	await expect.poll(() => page.locator(".chart canvas").count()).toBe(2);
	await expectAccessible(page);
	await page.getByLabel("Beside", { exact: true }).selectOption("the time before");
	await expect.poll(() => cells(/model-that-grew/)).toEqual(["$3.00", "$1.00", "+$2.00 (+200 %)", "1", "1"]);
	await page.getByLabel("Beside", { exact: true }).selectOption("nothing");
	await expect.poll(() => page.locator(".chart canvas").count()).toBe(1);
});

test("usage by model and day is downloaded as CSV, also of silent conversations", async () => {
	const page = await service.open("#/usage?silent_minutes=0");
	await page.getByRole("row", { name: /^All/ }).waitFor();
	const downloading = page.waitForEvent("download");
	await page.keyboard.press("c");
	const download = await downloading;
	expect(download.suggestedFilename()).toBe("usage-by-model-and-day.csv");
	const text = await readFile(await download.path(), "utf8");
	expect(text.split("\n")[0]).toContain("model");
	expect(text).toContain("model-large-4");
});

test("the rest of the groups comes last, and no other group has its color or that of another one", async () => {
	// The rest costs more than the sixth and the seventh group.
	for (let number = 1; number <= 9; number += 1) {
		const model = `model-of-few-calls-${number}`;
		await postSample(service.http, sampleWith({ id: sampleId(700 + number), model, costs: [0.001], minutesAgo: 1 }));
	}
	const page = await service.open("#/usage");
	const numbers = page.getByRole("region", { name: "Numbers", exact: true });
	const names = async () => (await numbers.getByRole("rowheader").allTextContents()).map((name) => name.trim());
	await expect.poll(async () => (await names()).slice(-2)).toEqual(["others", "All"]);
	const swatches = await numbers.locator(".swatch").evaluateAll((all) => all.map((one) => one.getAttribute("style")));
	expect(swatches).toHaveLength(8);
	expect(new Set(swatches).size).toBe(8);
});
