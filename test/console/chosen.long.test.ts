import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { scopes } from "../../src/access/keys.ts";
import { object } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { DESKTOP, PHONE, TestBrowser } from "./browser.ts";
import { called, postSample, SAMPLES, said, sampleId } from "./samples.ts";
import { expectAccessible, goTo, visitWithKey } from "./visit.ts";

/** What a person does with the list: choose rows, compare two, erase, download; and with access keys. */

const ERASER = "key-of-a-person-who-erases";
const ADMIN = "key-of-a-person-who-makes-keys";
const ROOT = "key-of-a-person-with-all-scopes";

let browser: TestBrowser;
let service: TestService;

beforeAll(async () => {
	browser = await TestBrowser.start();
	service = await startTestService({
		ACCESS_KEYS: `first:${KEY}:ingest+read,eraser:${ERASER}:read+erase,admin:${ADMIN}:read+keys,root:${ROOT}:${scopes.join("+")}`,
	});
	for (const sample of SAMPLES) await postSample(service.http, sample);
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

const LIST = "#/conversations?order_by=created";
const FLAKY = "Choose Fix the flaky test in checkout";
const NOTES = "Choose Write the release notes for 4.2";

test("two chosen conversations are compared side by side", async () => {
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	const edit = (path: string, number: number) => {
		const [action, result] = called("file_editor", "str_replace", "edited", 2, number);
		if (action === undefined || result === undefined) throw new Error("a call has two events");
		return [
			{ ...action, members: { ...action.members, action: { kind: "FileEditorAction", command: "str_replace", path } } },
			result,
		];
	};
	const base = { ...sample, tags: {}, minutesAgo: 300 };
	await postSample(service.http, {
		...base,
		id: sampleId(901),
		title: "First try",
		costs: [0.5, 0.25],
		events: [
			said("user", "Go"),
			...called("terminal", "ls", "a", 3, 901),
			...edit("src/a.ts", 902),
			...edit("src/b.ts", 903),
		],
	});
	await postSample(service.http, {
		...base,
		id: sampleId(902),
		title: "Second try",
		costs: [0.5],
		events: [said("user", "Go"), said("agent", "Done"), ...edit("src/a.ts", 904)],
	});
	const { page, faults } = await visitWithKey(browser, service.http, LIST);
	for (const title of ["First try", "Second try"]) await page.getByLabel(`Choose ${title}`).check();
	const bar = page.getByRole("region", { name: "Chosen conversations" });
	await bar.getByText("2 chosen").waitFor();
	expect(await bar.getByRole("button", { name: "Erase…" }).count()).toBe(0);
	await bar.getByRole("link", { name: "Compare" }).click();
	const table = page.getByRole("region", { name: "Two conversations" });
	const cells = async (name: string) =>
		(
			await table
				.getByRole("row", { name: new RegExp(`^${name}`) })
				.getByRole("cell")
				.allTextContents()
		).join(" | ");
	await table.waitFor();
	expect(await cells("Cost")).toBe("$0.75 | $0.50 | −$0.25");
	expect(await cells("Messages of the agent")).toBe("0 | 1 | +1");
	expect(await cells("Calls of terminal")).toBe("1 | 0 | −1");
	expect(await cells("Calls of file_editor")).toBe("2 | 1 | −1");
	expect(await cells("src/a.ts")).toBe("1 | 1 | ");
	expect(await cells("src/b.ts")).toBe("1 | 0 | −1");
	expect(await cells("Time in tools")).toBe("7.0 s | 2.0 s | −5.0 s");
	expect(await cells("Calls of model-large-4")).toBe("2 | 1 | −1");
	expect(faults).toEqual([]);
	await page.keyboard.press("Escape");
	await expect.poll(() => new URL(page.url()).hash).toBe(LIST);
	await page.context().close();
});

test("the chosen conversations are erased after their number was typed, and no others", async () => {
	for (const number of [911, 912, 913]) {
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		await postSample(service.http, { ...sample, tags: {}, id: sampleId(number), title: `To erase ${number}` });
	}
	const { page } = await visitWithKey(browser, service.http, "#/conversations?title_contains=To+erase", {}, ERASER);
	const rows = page.locator(".list:not(.stale) .line:not(.head)");
	await expect.poll(() => rows.count()).toBe(3);
	await page.getByLabel("Choose To erase 911").check();
	// By keys, too.
	await page.evaluate("document.activeElement.blur()");
	await page.keyboard.press("j");
	await page.keyboard.press("x");
	const bar = page.getByRole("region", { name: "Chosen conversations" });
	await bar.getByText("2 chosen").waitFor();
	await bar.getByRole("button", { name: "Erase…" }).click();
	const dialog = page.getByRole("dialog", { name: "Erase 2 conversations for good" });
	await expect.poll(() => dialog.getByRole("listitem").allTextContents()).toEqual(["To erase 911", "To erase 913"]);
	const erase = dialog.getByRole("button", { name: "Erase" });
	const typed = dialog.getByLabel("Type 2 to confirm");
	await typed.fill("3");
	expect(await erase.isDisabled()).toBe(true);
	await typed.press("Enter");
	await typed.fill("2");
	await expectAccessible(page);
	await erase.click();
	await expect.poll(() => rows.count()).toBe(1);
	await rows.getByText("To erase 912").waitFor();
	await expect.poll(() => bar.count()).toBe(0);
	const left = await fetch(`${service.http}/api/v1/conversations?title_contains=To+erase`, {
		headers: { "X-Access-Token": KEY },
	});
	const { conversations } = object(await left.json());
	expect(Array.isArray(conversations) && conversations.length).toBe(1);
	await page.context().close();
});

test("the list is downloaded as CSV with its filter and in its order, all pages of it", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/conversations?tag_key=repo&order_by=cost");
	await page.locator(".list:not(.stale)").getByText("Upgrade the base image").first().waitFor();
	// Pages of one row, so that there are several.
	await page.route("**/api/v1/conversations?*", (route) => {
		const url = new URL(route.request().url());
		url.searchParams.set("page_size", "1");
		return route.continue({ url: url.href });
	});
	const next = page.waitForEvent("download");
	await page.keyboard.press("c");
	const download = await next;
	expect(download.suggestedFilename()).toBe("conversations.csv");
	const [header, ...rows] = (await readFile(await download.path(), "utf8")).trimEnd().split("\r\n");
	// A spreadsheet needs the mark to know that the file is in UTF-8.
	expect(header?.split(",").slice(0, 3)).toEqual(["\ufeffid", "title", "execution_status"]);
	expect(rows.map((row) => row.split(",")[1])).toEqual([
		"Fix the flaky test in checkout",
		"Migrate the billing tables to the new schema",
		"Add a dark mode to the settings",
		"Upgrade the base image",
	]);
	await page.context().close();
});

test("the page About offers all scopes that the key has, and says what they allow", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/about", {}, ROOT);
	const offered = page.getByRole("group", { name: "Scopes" }).locator("label");
	await expect.poll(() => offered.locator("code").allTextContents()).toEqual([...scopes]);
	expect(await offered.locator(".muted").count()).toBe(scopes.length);
	await page.context().close();
});

test("access keys are listed, made, shown once and revoked on the page About, with the scope keys only", async () => {
	const { page: reader } = await visitWithKey(browser, service.http, "#/about");
	await reader.getByText("This service").waitFor();
	expect(await reader.getByText("Access keys").count()).toBe(0);
	await reader.context().close();
	const { page, faults } = await visitWithKey(browser, service.http, "#/about", {}, ADMIN);
	const keys = page.getByRole("region", { name: "Access keys" }).first();
	await keys.getByRole("row", { name: /^eraser read, erase in the configuration/ }).waitFor();
	await page.getByLabel("Name").fill("dashboard");
	// Nobody can give away what they do not have.
	expect(await page.getByRole("checkbox").count()).toBe(2);
	await page.getByRole("button", { name: "Make" }).click();
	const shown = page.locator(".shown-once pre");
	const key = (await shown.textContent()) ?? "";
	expect(key).toHaveLength(43);
	const asked = (of: string) =>
		fetch(`${service.http}/api/v1/senders`, { headers: { "X-Access-Token": of } }).then(({ status }) => status);
	expect(await asked(key)).toBe(200);
	await expectAccessible(page);
	await page.getByRole("button", { name: "Done" }).click();
	await expect.poll(() => page.getByText(key).count()).toBe(0);
	await page.getByRole("button", { name: "Revoke dashboard" }).click();
	await page
		.getByRole("dialog", { name: "Revoke the key dashboard for good" })
		.getByRole("button", { name: "Revoke" })
		.click();
	await keys.getByRole("row", { name: /^dashboard read .* ✕ revoked/ }).waitFor();
	expect(await asked(key)).toBe(401);
	await page.getByLabel("Name").fill("dashboard");
	await page.getByRole("button", { name: "Make" }).click();
	await page.getByRole("alert").waitFor();
	expect(faults).toEqual([]);
	await page.context().close();
});

describe.each([
	["light", DESKTOP],
	["dark", DESKTOP],
	["light", PHONE],
] as const)("in the theme %s at the size %o", (colorScheme, viewport) => {
	test("chosen rows, the comparison, two ranges and the keys have no violation of WCAG 2.2 AA, and fit the width", async () => {
		const { page } = await visitWithKey(browser, service.http, LIST, { colorScheme, viewport }, ADMIN);
		const fits = async () => {
			await expectAccessible(page);
			expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
		};
		for (const label of [FLAKY, NOTES]) await page.getByLabel(label).check();
		await page.getByRole("link", { name: "Compare" }).waitFor();
		// A row that the bar or the header covers in part is too small for axe, so the window takes the whole page.
		await page.setViewportSize({ ...viewport, height: 2_400 });
		await page.locator(".list .line").nth(SAMPLES.length).waitFor();
		await fits();
		await page.getByRole("link", { name: "Compare" }).click();
		await page.getByRole("row", { name: /^Cost [$]/ }).waitFor();
		await fits();
		await goTo(page, "#/usage?compare=before");
		await page.getByRole("row", { name: /^All/ }).waitFor();
		await fits();
		await goTo(page, "#/about");
		await page.getByRole("row", { name: /^eraser/ }).waitFor();
		await fits();
		await page.context().close();
	});
});
