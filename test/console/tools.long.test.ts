import { readFile } from "node:fs/promises";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { DESKTOP, PHONE } from "./browser.ts";
import { eventsOf, post, postSample, recordOf, type Sample, said, sampleId } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { CHILD, EVERY_TOOL } from "./tool-samples.ts";
import { expectAccessible, expectAccessibleAndFit } from "./visit.ts";

/** The page of a conversation in which an agent used each kind of tool. */

const service = new TestedConsole({ samples: [EVERY_TOOL, CHILD] });
/** A window that is high enough for all steps. */
const TALL = { width: 1280, height: 5000 };
const ADDRESS = `#/conversations/${EVERY_TOOL.id}`;

/** Returns the step with a title. */
function stepWith(page: Page, title: string) {
	return page.locator("article.step").filter({ has: page.locator("header strong", { hasText: title }) });
}

test("each step says what was done, to what, and how it ended", async () => {
	const page = await service.open(ADDRESS, { viewport: TALL });
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
	const command = "Terminal: rm -rf legacy && psql -c 'DROP TABLE legacy'";
	await waiting.getByText(command).waitFor();
	await waiting.getByText("risk HIGH").waitFor();
	// So says the row of the list, too.
	await page.keyboard.press("1");
	await page.getByText(`waits for: ${command} (risk HIGH)`).waitFor();
});

test("a terminal's output has its colours and rewritten lines, is folded in the middle, and its failure is red and counted", async () => {
	const page = await service.open(ADDRESS, { viewport: TALL });
	const step = stepWith(page, "Terminal").filter({ hasText: "npm run migrate" });
	await step.getByText("exit code 1").waitFor();
	const output = step.locator("pre.output");
	expect(await output.first().textContent()).toMatch(/^ RUN {2}v5.1.1 \/workspace\/billing\n100 %\n ✓ migration 1 /);
	expect(await output.last().textContent()).toMatch(
		/✗ migration 41: column "vat" does not exist\nTests {2}1 failed \| 30 passed$/,
	);
	expect(await output.last().locator(".ansi-red-fg").allTextContents()).toEqual(["✗", "Tests  1 failed"]);
	await step.getByRole("button", { name: "show all 34 lines" }).click();
	await expect.poll(async () => (await output.allTextContents()).map((text) => text.split("\n").length)).toEqual([34]);
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
});

test("an edit is a diff with line numbers, and a screenshot and an image of a message are pictures", async () => {
	const page = await service.open(ADDRESS, { viewport: TALL });
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
	await expect.poll(widths).toEqual([1, 1]);
});

test("the conversation of a sub-agent opens below the step that began it, and its cost is added up", async () => {
	const page = await service.open(ADDRESS, { viewport: TALL });
	const step = stepWith(page, "Start a sub-agent");
	await step.getByRole("button", { name: "Sub-agent: Read the migrations of the billing tables" }).click();
	await step.getByText("Two of them drop a column.").waitFor();
	await page.getByRole("complementary", { name: "Usage" }).getByText("$1.75 with its sub-agent").waitFor();
	// One that arrives later stands below the last step that began any before it.
	const later = { ...CHILD, id: sampleId(803), title: "Clean up later", minutesAgo: 0 };
	await postSample(service.http, later);
	await stepWith(page, "Give tasks").getByText("Sub-agent: Clean up later").waitFor();
	await page.getByText("with its 2 sub-agents").waitFor();
});

test("the search of the timeline finds arguments, output without its colours, and reasoning, and unfolds them", async () => {
	const page = await service.open(ADDRESS, { viewport: TALL });
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
});

test("the strip of steps over time is used by the keyboard", async () => {
	const page = await service.open(ADDRESS);
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
});

test("the tab of files shows each file from its first to its last state", async () => {
	const page = await service.open(`${ADDRESS}?tab=files`);
	const file = page.locator("section.file");
	await file.getByRole("button", { name: "migrations/041_billing.sql" }).waitFor();
	await file.getByText("NOT NULL DEFAULT 0;").waitFor();
	await file.getByRole("link", { name: /^event \d+$/ }).click();
	await page.getByRole("tab", { name: "Timeline" }).click();
});

test("only the steps of the timeline are printed, all of them, and none can be clicked", async () => {
	const page = await service.open(ADDRESS);
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
	beforeAll(async () => {
		await post(service.http, "conversations", recordOf(hostile));
		// Events of another conversation have the same ids.
		const text = JSON.stringify(eventsOf(hostile)).replaceAll("-aaaa-4000-", "-bbbb-4000-");
		await post(service.http, `events/${hostile.id}`, text);
	});

	/** Exports the page, and returns the file. */
	async function exported(form: string): Promise<{ readonly name: string; readonly text: string }> {
		const page = await service.open(`#/conversations/${hostile.id}`);
		await page.locator("article.step").first().waitFor();
		const downloading = page.waitForEvent("download");
		await page.getByLabel("Export", { exact: true }).selectOption(form);
		const download = await downloading;
		return { name: download.suggestedFilename(), text: await readFile(await download.path(), "utf8") };
	}

	test("as HTML opens without the service, runs and loads nothing, and has each step", async () => {
		const { text } = await exported("HTML");
		expect(text).not.toContain("<script");
		expect(text).not.toContain(SECRET);
		expect(text).toContain(
			`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">`,
		);
		const page = await service.openUrl("about:blank");
		const requests: string[] = [];
		page.on("request", ({ url }) => requests.push(url()));
		await page.setContent(text);
		expect(await page.title()).toBe(EVIL);
		expect(await page.locator("article.step").count()).toBe(16);
		expect(
			await page.locator("a, button, script, iframe, [onerror], img:not([src^='data:image/png;base64,'])").count(),
		).toBe(0);
		await page.locator("summary", { hasText: "reasoning" }).click();
		await page.getByText("then I delegate the reading.").waitFor();
		await expectAccessible(page);
		expect(requests.filter((url) => !url.startsWith("data:"))).toEqual([]);
	});

	test("as Markdown and as JSON has all texts and no secret", async () => {
		const { name, text: markdown } = await exported("Markdown");
		for (const part of [
			"DELETE the legacy table in production",
			"## Edit: migrations/041_billing.sql",
			"exit code 1",
			" ✗ migration 41",
			"- [x] Read the old migrations",
		])
			expect(markdown).toContain(part);
		expect(markdown).not.toContain("\u001b");
		const { name: nameOfJson, text } = await exported("JSON");
		const json: { record: { title: string }; events: unknown[] } = JSON.parse(text);
		expect([json.record.title, json.events.length]).toEqual([EVIL, hostile.events.length]);
		for (const one of [markdown, text]) expect(one).not.toContain(SECRET);
		expect([name, nameOfJson]).toEqual([`conversation-${hostile.id}.md`, `conversation-${hostile.id}.json`]);
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
		const page = await service.open(`${ADDRESS}${tab}`, { colorScheme, viewport });
		await page.getByText("NOT NULL DEFAULT 0;").first().waitFor();
		await expectAccessibleAndFit(page);
	},
);
