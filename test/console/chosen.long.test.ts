import { readFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { scopes } from "../../src/access/keys.ts";
import { object } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { DESKTOP, PHONE } from "./browser.ts";
import { called, postSample, SAMPLES, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible, expectAccessibleAndFit, goTo, hashOf } from "./visit.ts";

/** What a person does with the list: choose rows, compare two, erase, download; and with access keys. */

const ERASER = "key-of-a-person-who-erases";
const ADMIN = "key-of-a-person-who-makes-keys";
const ROOT = "key-of-a-person-with-all-scopes";

const service = new TestedConsole({
	env: {
		ACCESS_KEYS: `first:${KEY}:ingest+read,eraser:${ERASER}:read+erase,admin:${ADMIN}:read+keys,root:${ROOT}:${scopes.join("+")}`,
	},
});

const LIST = "#/conversations?order_by=created";
const FLAKY = "Choose Fix the flaky test in checkout";
const NOTES = "Choose Write the release notes for 4.2";

test("two chosen conversations are compared side by side", async () => {
	const edit = (path: string, number: number) => {
		const [action, result] = called("file_editor", "str_replace", "edited", 2, number);
		if (action === undefined || result === undefined) throw new Error("a call has two events");
		const members = { ...action.members, action: { kind: "FileEditorAction", command: "str_replace", path } };
		return [{ ...action, members }, result];
	};
	const begin = said("user", "Go");
	for (const [number, title, costs, events] of [
		[
			901,
			"First try",
			[0.5, 0.25],
			[...called("terminal", "ls", "a", 3, 901), ...edit("a.ts", 902), ...edit("b.ts", 903)],
		],
		[902, "Second try", [0.5], [said("agent", "Done"), ...edit("a.ts", 904)]],
	] as const)
		await postSample(
			service.http,
			sampleWith({ id: sampleId(number), title, costs, tags: {}, minutesAgo: 300, events: [begin, ...events] }),
		);
	const page = await service.open(LIST);
	for (const title of ["First try", "Second try"]) await page.getByLabel(`Choose ${title}`).check();
	const bar = page.getByRole("region", { name: "Chosen conversations" });
	await bar.getByText("2 chosen").waitFor();
	expect(await bar.getByRole("button", { name: "Erase…" }).count()).toBe(0);
	await bar.getByRole("link", { name: "Compare" }).click();
	const table = page.getByRole("region", { name: "Two conversations" });
	await table.waitFor();
	const rows = await table
		.getByRole("row")
		.evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent?.trim())));
	for (const row of [
		["Cost", "$0.75", "$0.50", "−$0.25"],
		["Messages of the agent", "0", "1", "+1"],
		["Calls of terminal", "1", "0", "−1"],
		["Calls of file_editor", "2", "1", "−1"],
		["a.ts", "1", "1", ""],
		["b.ts", "1", "0", "−1"],
		["Time in tools", "7.0 s", "2.0 s", "−5.0 s"],
		["Calls of model-large-4", "2", "1", "−1"],
	])
		expect(rows).toContainEqual(row);
	await page.keyboard.press("Escape");
	await expect.poll(() => hashOf(page)).toBe(LIST);
});

test("the chosen conversations are erased after their number was typed, and no others", async () => {
	for (const number of [911, 912, 913])
		await postSample(service.http, sampleWith({ tags: {}, id: sampleId(number), title: `To erase ${number}` }));
	const page = await service.open("#/conversations?title_contains=To+erase", {}, ERASER);
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
});

test("the list is downloaded as CSV with its filter and in its order, all pages of it", async () => {
	const page = await service.open("#/conversations?tag_key=repo&order_by=cost");
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
});

test("access keys are listed, made, shown once and revoked on the page About, with the scope keys only", async () => {
	const reader = await service.open("#/about");
	await reader.getByText("This service").waitFor();
	expect(await reader.getByText("Access keys").count()).toBe(0);
	// Offered are the scopes that the key has, with what they allow.
	const root = await service.open("#/about", {}, ROOT);
	const offered = root.getByRole("group", { name: "Scopes" }).locator("label");
	await expect.poll(() => offered.locator("code").allTextContents()).toEqual([...scopes]);
	expect(await offered.locator(".muted").count()).toBe(scopes.length);
	const page = await service.open("#/about", {}, ADMIN);
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
});

describe.each([
	["light", DESKTOP],
	["dark", DESKTOP],
	["light", PHONE],
] as const)("in the theme %s at the size %o", (colorScheme, viewport) => {
	test("chosen rows, the comparison, two ranges and the keys have no violation of WCAG 2.2 AA, and fit the width", async () => {
		const page = await service.open(LIST, { colorScheme, viewport }, ADMIN);
		for (const label of [FLAKY, NOTES]) await page.getByLabel(label).check();
		await page.getByRole("link", { name: "Compare" }).waitFor();
		// A row that the bar or the header covers in part is too small for axe, so the window takes the whole page.
		await page.setViewportSize({ ...viewport, height: 2_400 });
		await page.locator(".list .line").nth(SAMPLES.length).waitFor();
		await expectAccessibleAndFit(page);
		await page.getByRole("link", { name: "Compare" }).click();
		await page.getByRole("row", { name: /^Cost [$]/ }).waitFor();
		await expectAccessibleAndFit(page);
		await goTo(page, "#/usage?compare=before");
		await page.getByRole("row", { name: /^All/ }).waitFor();
		await expectAccessibleAndFit(page);
		await goTo(page, "#/about");
		await page.getByRole("row", { name: /^eraser/ }).waitFor();
		await expectAccessibleAndFit(page);
	});
});
