import { readFile } from "node:fs/promises";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestService, type TestService } from "../support/service.ts";
import { DESKTOP, PHONE, TestBrowser } from "./browser.ts";
import { eventsOf, post, postSample, recordOf, type Sample, said, sampleId } from "./samples.ts";
import { CHILD, EVERY_TOOL } from "./tool-samples.ts";
import { expectAccessible, visit, visitWithKey } from "./visit.ts";

/** The page of a conversation in which an agent used each kind of tool. */

let browser: TestBrowser;
let service: TestService;
/** A window that is high enough for all steps. */
const TALL = { width: 1280, height: 5000 };
const ADDRESS = `#/conversations/${EVERY_TOOL.id}`;

beforeAll(async () => {
	browser = await TestBrowser.start();
	service = await startTestService();
	for (const sample of [EVERY_TOOL, CHILD]) await postSample(service.http, sample);
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

/** Returns the step with a title. */
function stepWith(page: Page, title: string) {
	return page.locator("article.step").filter({ has: page.locator("header strong", { hasText: title }) });
}

test("each step says what was done, to what, and how it ended", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, ADDRESS, { viewport: TALL });
	await page.locator("article.step", { hasText: "waits for a confirmation" }).first().waitFor();
	const heads = page.locator("article.step > header");
	const told = await heads.evaluateAll((all: { querySelectorAll(s: string): Iterable<{ textContent: string }> }[]) =>
		all.map((head) => [...head.querySelectorAll("strong, .subject, .tag")].map(({ textContent }) => textContent)),
	);
	expect(told).toEqual([
		["User"],
		["Status: running"],
		["The agent works on its goal", "round 1 of at most 5"],
		["Plan the tasks", "1 of 3 done"],
		["Start a sub-agent", "Read the migrations"],
		["Give tasks to sub-agents", "cleaner, reviewer", "risk MEDIUM"],
		["Edit", "migrations/041_billing.sql"],
		["Terminal", "exit code 1", "slowest"],
		["Browser: Open", "https://staging.example/invoices?page=2"],
		["MCP: linear_create_issue"],
		["Thought"],
		["The history was condensed", "the agent no longer sees 3 events"],
		["Hook PreToolUse", "blocked", "exit code 2"],
		["Agent", "critic 35 %"],
		["Terminal", "risk HIGH", "waits for a confirmation"],
		["Risk judged", "risk HIGH"],
		["Status: waits for a confirmation"],
	]);
	await stepWith(page, "Give tasks").getByText("DELETE the legacy table in production").waitFor();
	await stepWith(page, "MCP").getByText("Two lines\nof text").waitFor();
	const reasoning = stepWith(page, "Plan the tasks").getByRole("button", { name: "reasoning" });
	await reasoning.click();
	await stepWith(page, "Plan the tasks").getByText("First I plan, then I delegate the reading.").waitFor();
	const waiting = page.getByRole("status").filter({ hasText: "Waits for a person to confirm" });
	await waiting.getByText("Terminal: rm -rf legacy && psql -c 'DROP TABLE legacy'").waitFor();
	await waiting.getByText("risk HIGH").waitFor();
	expect(faults).toEqual([]);
	await page.context().close();
});

test("the row of the list says what a conversation waits for", async () => {
	const { page } = await visitWithKey(
		browser,
		service.http,
		"#/conversations?execution_status=waiting_for_confirmation",
	);
	const row = page.getByRole("row", { name: /Migrate the billing tables with each tool/ });
	await row.getByText("waits for: Terminal: rm -rf legacy && psql -c 'DROP TABLE legacy' (risk HIGH)").waitFor();
	await page.context().close();
});

test("a terminal's output has its colours and rewritten lines, is folded in the middle, and its failure is red and counted", async () => {
	const { page } = await visitWithKey(browser, service.http, ADDRESS, { viewport: TALL });
	const step = stepWith(page, "Terminal").filter({ hasText: "npm run migrate" });
	await step.getByText("exit code 1").waitFor();
	const output = step.locator("pre.output");
	expect(await output.first().textContent()).toMatch(/^ RUN {2}v5.1.1 \/workspace\/billing\n100 %\n ✓ migration 1 /);
	expect(await output.last().textContent()).toMatch(
		/✗ migration 41: column "vat" does not exist\nTests {2}1 failed \| 30 passed$/,
	);
	expect(await output.last().locator(".ansi-red-fg").allTextContents()).toEqual(["✗", "Tests  1 failed"]);
	await step.getByRole("button", { name: "show all 34 lines" }).click();
	await expect.poll(() => output.count()).toBe(1);
	expect((await output.textContent())?.split("\n")).toHaveLength(34);
	await page.getByRole("link", { name: "2 failed" }).waitFor();
	const chosen = page.locator("article.step.chosen header strong");
	for (const [key, title] of [
		["n", "Terminal"],
		["n", "Hook PreToolUse"],
		["p", "Terminal"],
	] as const) {
		await page.keyboard.press(key);
		await expect.poll(() => chosen.textContent()).toBe(title);
	}
	await page.context().close();
});

test("an edit is a diff with line numbers, and a screenshot and an image of a message are pictures", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, ADDRESS, { viewport: TALL });
	const lines = stepWith(page, "Edit").locator(".diff-line");
	await lines.first().waitFor();
	expect(await lines.allTextContents()).toEqual([
		"1−removed:ALTER TABLE invoices ADD COLUMN vat numeric;",
		"1+added:ALTER TABLE invoices ADD COLUMN vat numeric NOT NULL DEFAULT 0;",
		"22 UPDATE invoices SET vat = 0;",
	]);
	const widths = () =>
		page
			.locator("article.step img")
			.evaluateAll((all: { naturalWidth: number }[]) => all.map((one) => one.naturalWidth));
	await expect.poll(widths).toEqual([60, 320]);
	expect(faults).toEqual([]);
	await page.context().close();
});

test("the conversation of a sub-agent opens below the step that began it, and its cost is added up", async () => {
	const { page } = await visitWithKey(browser, service.http, ADDRESS, { viewport: TALL });
	const step = stepWith(page, "Start a sub-agent");
	await step.getByRole("button", { name: "Sub-agent: Read the migrations of the billing tables" }).click();
	await step.getByText("Two of them drop a column.").waitFor();
	await page.getByRole("complementary", { name: "Usage" }).getByText("$1.75 with its sub-agent").waitFor();
	// One that arrives later stands below the last step that began any before it.
	const later = { ...CHILD, id: sampleId(803), title: "Clean up later", minutesAgo: 0 };
	await postSample(service.http, later);
	await stepWith(page, "Give tasks").getByText("Sub-agent: Clean up later").waitFor();
	await page.getByText("with its 2 sub-agents").waitFor();
	await page.context().close();
});

test("the search of the timeline finds arguments, output without its colours, and reasoning, and unfolds them", async () => {
	const { page } = await visitWithKey(browser, service.http, ADDRESS, { viewport: TALL });
	const steps = page.locator("article.step");
	await expect.poll(() => steps.count()).toBe(17);
	const search = page.getByRole("searchbox", { name: "Search in the timeline" });
	for (const [words, title, text] of [
		["legacy table in production", "Give tasks to sub-agents", "DELETE the legacy table in production"],
		["✓ migration 17 (28 ms)", "Terminal", "✓ migration 17 (28 ms)"],
		["delegate the reading", "Plan the tasks", "then I delegate the reading."],
		["rm -rf is not allowed", "Hook PreToolUse", "rm -rf is not allowed here"],
		["vat numeric not null", "Edit", "NOT NULL DEFAULT 0;"],
	] as const) {
		await search.fill(words);
		await expect.poll(() => steps.locator("header strong").allTextContents()).toEqual([title]);
		await steps.getByText(text).first().waitFor();
	}
	await page.getByText("The search in all conversations does not have that output").waitFor();
	await page.context().close();
});

test("the time of the run stands in three numbers, and its strip is used by the keyboard", async () => {
	const { page } = await visitWithKey(browser, service.http, ADDRESS);
	const spent = page.getByRole("list", { name: "Where the time went" });
	await expect
		.poll(() => spent.getByRole("listitem").allTextContents())
		.toEqual([" models 1 min 1 s", " tools 1 min 49 s", " waiting 0.1 s"]);
	const strip = page.getByRole("slider", { name: /Steps over time/ });
	await strip.focus();
	await page.keyboard.press("End");
	const text = () => strip.getAttribute("aria-valuetext");
	await expect.poll(text).toMatch(/^0\.2 s Terminal, from \d/);
	const last = await text();
	await page.keyboard.press("ArrowLeft");
	await expect.poll(text).not.toBe(last);
	const whole = await strip.locator("path.tool").getAttribute("d");
	await page.keyboard.press("+");
	await expect.poll(() => strip.locator("path.tool").getAttribute("d")).not.toBe(whole);
	await page.keyboard.press("0");
	await expect.poll(() => strip.locator("path.tool").getAttribute("d")).toBe(whole);
	await page.context().close();
});

test("the tab of files shows each file from its first to its last state", async () => {
	const { page } = await visitWithKey(browser, service.http, `${ADDRESS}?tab=files`);
	const file = page.locator("section.file");
	await file.getByRole("button", { name: "migrations/041_billing.sql" }).waitFor();
	await file.getByText("NOT NULL DEFAULT 0;").waitFor();
	await file.getByRole("link", { name: /^event \d+$/ }).click();
	await page.getByRole("tab", { name: "Timeline" }).click();
	await page.context().close();
});

test("only the steps of the timeline are printed, all of them, and none can be clicked", async () => {
	const { page } = await visitWithKey(browser, service.http, ADDRESS);
	await page.getByText("17 steps").waitFor();
	await page.emulateMedia({ media: "print" });
	await page.evaluate("dispatchEvent(new Event('beforeprint'))");
	const printed = page.locator(".printed article.step");
	expect(await printed.count()).toBe(17);
	expect(await printed.last().isVisible()).toBe(true);
	expect(await page.locator(".printed button, .printed a").count()).toBe(0);
	expect(await page.locator("section.timeline").isVisible()).toBe(false);
	expect(await page.locator("header.top").isVisible()).toBe(false);
	await page.evaluate("dispatchEvent(new Event('afterprint'))");
	await expect.poll(() => printed.count()).toBe(0);
	await page.context().close();
});

describe("an export", () => {
	const EVIL =
		"</style></title></textarea><script>document.title='injected'</script><img src=x onerror=document.title='injected'>";
	const SECRET = "never-shown-in-the-console";
	const hostile: Sample = {
		...EVERY_TOOL,
		id: sampleId(804),
		title: EVIL,
		status: "finished",
		events: [
			said(
				"user",
				`${EVIL}\n\n[click](javascript:alert(1)) ![x](https://evil.example/x.png)\n\n\`\`\`\n${EVIL}\n\`\`\``,
			),
			...EVERY_TOOL.events.slice(3),
			{ after: 1, members: { kind: EVIL, source: "environment", [EVIL]: EVIL } },
		],
	};
	let folder: string[] = [];

	beforeAll(async () => {
		await post(service.http, "conversations", recordOf(hostile));
		// Events of another conversation have the same ids.
		const text = JSON.stringify(eventsOf(hostile)).replaceAll("-aaaa-4000-", "-bbbb-4000-");
		await post(service.http, `events/${hostile.id}`, text);
	});

	async function exported(form: string): Promise<string> {
		const { page, faults } = await visitWithKey(browser, service.http, `#/conversations/${hostile.id}`);
		await page.locator("article.step").first().waitFor();
		const [download] = await Promise.all([
			page.waitForEvent("download"),
			page.getByLabel("Export", { exact: true }).selectOption(form),
		]);
		const path = await download.path();
		folder = [...folder, download.suggestedFilename()];
		const text = await readFile(path, "utf8");
		expect(faults).toEqual([]);
		await page.context().close();
		return text;
	}

	test("as HTML opens without the service, runs and loads nothing, and has each step", async () => {
		const text = await exported("HTML");
		expect(text).not.toContain("<script");
		expect(text).not.toContain(SECRET);
		expect(text).toContain(
			`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">`,
		);
		const { page, faults } = await visit(browser, "about:blank");
		const requests: string[] = [];
		page.on("request", ({ url }) => requests.push(url()));
		await page.setContent(text);
		expect(await page.title()).toBe(EVIL);
		expect(await page.locator("article.step").count()).toBe(16);
		expect(
			await page.locator("a, button, script, iframe, [onerror], img:not([src^='data:image/png;base64,'])").count(),
		).toBe(0);
		expect(await page.locator("h1").textContent()).toBe(EVIL);
		expect(await page.locator("pre", { hasText: "</style>" }).first().textContent()).toContain(EVIL);
		await page.locator("summary", { hasText: "reasoning" }).click();
		await page.getByText("then I delegate the reading.").waitFor();
		await expectAccessible(page);
		expect(requests.filter((url) => !url.startsWith("data:"))).toEqual([]);
		expect(faults).toEqual([]);
		await page.context().close();
	});

	test("as Markdown and as JSON has all texts and no secret", async () => {
		const markdown = await exported("Markdown");
		for (const part of [
			"DELETE the legacy table in production",
			"## Edit: migrations/041_billing.sql",
			"exit code 1",
			" ✗ migration 41",
			"- [x] Read the old migrations",
		])
			expect(markdown).toContain(part);
		expect(markdown).not.toContain("\u001b");
		const json: { record: { title: string }; events: unknown[] } = JSON.parse(await exported("JSON"));
		expect(json.record.title).toBe(EVIL);
		expect(json.events).toHaveLength(hostile.events.length);
		for (const text of [markdown, JSON.stringify(json)]) expect(text).not.toContain(SECRET);
		expect(folder).toContain(`conversation-${hostile.id}.md`);
		expect(folder).toContain(`conversation-${hostile.id}.json`);
	});
});

test.each([
	["light", TALL, ""],
	["dark", TALL, ""],
	["light", { ...PHONE, height: 6000 }, ""],
	["light", DESKTOP, "?tab=files"],
	["dark", PHONE, "?tab=files"],
] as const)(
	"in the theme %s at the size %o it has no violation of WCAG 2.2 AA: %s",
	async (colorScheme, viewport, tab) => {
		const { page } = await visitWithKey(browser, service.http, `${ADDRESS}${tab}`, { colorScheme, viewport });
		await page.getByText("NOT NULL DEFAULT 0;").first().waitFor();
		await expectAccessible(page);
		expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
		await page.context().close();
	},
);
