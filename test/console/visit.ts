import axe from "axe-core";
import type { Page } from "playwright-core";
import { expect } from "vitest";
import { KEY } from "../support/service.ts";
import type { TestBrowser } from "./browser.ts";

export type WindowOptions = Parameters<TestBrowser["window"]>[0];

/** What a page has reported that it must not: uncaught errors, and violations of the policy. */
export interface Visit {
	readonly page: Page;
	readonly faults: readonly string[];
}

/** Opens a window of its own on an address of the console. */
export async function visit(browser: TestBrowser, url: string, options: WindowOptions = {}): Promise<Visit> {
	const window = await browser.window(options);
	await window.addInitScript(
		"addEventListener('securitypolicyviolation', (event) => console.error('policy: ' + event.violatedDirective))",
	);
	const page = await window.newPage();
	const faults: string[] = [];
	page.on("pageerror", (error) => faults.push(error.message));
	page.on("console", (message) => {
		if (/policy|Content.Security/i.test(message.text())) faults.push(message.text());
	});
	await page.goto(url);
	return { page, faults };
}

/** Opens a page of the console with a key, which arrives in the address. */
export async function visitWithKey(
	browser: TestBrowser,
	http: string,
	address = "#/conversations",
	options: WindowOptions = {},
	key = KEY,
): Promise<Visit> {
	const opened = await visit(browser, `${http}/#key=${key}`, options);
	await opened.page.getByRole("navigation", { name: "Pages" }).waitFor();
	await goTo(opened.page, address);
	return opened;
}

/** Goes to an address of the console, such as `#/usage`. Resolves when the page has taken it. */
export async function goTo(page: Page, address: string): Promise<void> {
	await page.evaluate(`new Promise((resolve) => {
		const before = location.href;
		addEventListener("hashchange", resolve, { once: true });
		location.hash = ${JSON.stringify(address)};
		if (location.href === before) resolve();
	})`);
}

/** Returns the parameters of the page's address. */
export function hashOf(page: Page): string {
	return new URL(page.url()).hash;
}

/** Asserts that axe-core finds no violation of WCAG 2.2 AA. */
export async function expectAccessible(page: Page): Promise<void> {
	// What is being loaded anew is pale for a moment.
	await expect.poll(() => page.locator(".stale").count()).toBe(0);
	await page.evaluate(axe.source);
	// As text, because the page's own types are not those of Node.js.
	const found: string = await page.evaluate(`axe
		.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] })
		.then(({ violations }) => JSON.stringify(violations, ["id", "nodes", "html", "failureSummary"]))`);
	expect(JSON.parse(found)).toEqual([]);
}

/** Asserts the same, and that nothing is wider than the window. */
export async function expectAccessibleAndFit(page: Page): Promise<void> {
	await expectAccessible(page);
	expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
}
