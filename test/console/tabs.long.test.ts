import type { BrowserContext, Page } from "playwright-core";
import { expect, test } from "vitest";
import { object } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { eventsOf, post, recordOf, SAMPLES, type Sample, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";

/** Several tabs of one browser. */

const ADMIN = "key-of-a-person-who-revokes";

const service = new TestedConsole({
	env: { ACCESS_KEYS: `first:${KEY}:ingest+read,admin:${ADMIN}:keys+read` },
});

/** Opens another tab by an address that has no key. */
async function newTab(window: BrowserContext, address = "#/conversations"): Promise<Page> {
	const page = await window.newPage();
	await page.goto(`${service.http}/${address}`);
	return page;
}

const isSignedIn = (page: Page) => page.getByRole("navigation", { name: "Pages" }).waitFor();
const isSignedOut = (page: Page) => page.getByLabel("Access key").waitFor();

/**
 * Ctrl+clicks what opens a conversation, and waits until another tab has the key and has read the conversation with it.
 * This looks at responses, because the driver does not report each tab that the browser opens this way.
 */
async function ctrlClick(page: Page, selector: string): Promise<void> {
	const address = page.url();
	const isRead = page.context().waitForEvent("response", (response) => {
		const path = /\/api\/v1\/conversations\/[-0-9a-f]{36}$/;
		const key = response.request().headers()["x-access-token"];
		return path.test(response.url()) && key === KEY && response.status() === 200;
	});
	const target = page.locator(selector).first();
	await Promise.all([isRead, target.click({ modifiers: ["Control"] })]);
	expect(page.url()).toBe(address);
}

test("a new tab gets the key from an open one, by any link that is opened in it; nothing else keeps the key", async () => {
	const page = await service.open();
	const window = page.context();
	await isSignedIn(await newTab(window, "#/usage"));
	await ctrlClick(page, ".list .line:not(.head) .label > a");
	// The whole row opens it, also where it says more on hover.
	await ctrlClick(page, ".list .line:not(.head) time");
	const search = await newTab(window, "#/search?query=coupon");
	for (const link of [".hit .line .label > a", ".hit .place"]) await ctrlClick(search, link);
	expect(await window.cookies()).toEqual([]);
	expect(await page.evaluate("JSON.stringify(localStorage)")).not.toContain(KEY);
	expect(await page.evaluate("indexedDB.databases().then((all) => all.length)")).toBe(0);
});

test("with the last tab the key is gone", async () => {
	const page = await service.open();
	const window = page.context();
	const second = await newTab(window);
	await isSignedIn(second);
	const last = await window.newPage();
	await page.close();
	await second.close();
	await last.goto(`${service.http}/`);
	await isSignedOut(last);
});

test("signing out ends all tabs, also one that was elsewhere meanwhile; signing in brings the open ones back", async () => {
	const page = await service.open();
	const window = page.context();
	const second = await newTab(window, "#/usage");
	const elsewhere = await newTab(window);
	await isSignedIn(second);
	await isSignedIn(elsewhere);
	await elsewhere.goto("about:blank");
	await page.getByRole("button", { name: "Sign out" }).click();
	await isSignedOut(page);
	await second.getByText("You signed out in another tab.").waitFor();
	expect(await second.evaluate("JSON.stringify(sessionStorage)")).not.toContain(KEY);
	await elsewhere.goBack();
	await isSignedOut(elsewhere);
	await second.getByLabel("Access key").fill(KEY);
	await second.keyboard.press("Enter");
	for (const tab of [page, second, elsewhere]) await isSignedIn(tab);
	await page.reload();
	await isSignedIn(page);
});

test("a key in the address of a new tab is that tab's own; a key that is revoked ends only the tabs that have it", async () => {
	const call = async (method: string, request: object) => {
		const response = await fetch(`${service.http}/conversations.v1.AccessKeyService/${method}`, {
			method: "POST",
			headers: { "Content-Type": "application/json", "X-Access-Token": ADMIN },
			body: JSON.stringify(request),
		});
		expect(response.status).toBe(200);
		return object(await response.json());
	};
	const { key } = await call("CreateAccessKey", { name: "visitor", scopes: ["read"] });
	const page = await service.open();
	const window = page.context();
	const visitor = await newTab(window, `#key=${String(key)}`);
	await isSignedIn(visitor);
	await visitor.getByText("live", { exact: true }).waitFor();
	await page.getByText("live", { exact: true }).waitFor();
	await call("RevokeAccessKey", { name: "visitor" });
	await visitor.getByText("The service does not accept this access key.").waitFor();
	await page.getByText("live", { exact: true }).waitFor();
});

test("20 tabs of one browser stay live", { timeout: 240_000 }, async () => {
	const page = await service.open();
	const window = page.context();
	// A busy machine takes long to open as many pages.
	window.setDefaultTimeout(100_000);
	const open = [page];
	// More conversations than there can be streams of their own, and several tabs of some.
	for (let index = 0; index < 15; index += 1)
		open.push(await newTab(window, `#/conversations/${sampleId(1 + (index % SAMPLES.length))}`));
	for (let index = 0; index < 4; index += 1) open.push(await newTab(window, "#/conversations?order_by=cost"));
	expect(open).toHaveLength(20);
	for (const tab of open) await tab.getByText("live", { exact: true }).waitFor();
	for (const sample of SAMPLES) {
		const more = said("agent", `News of ${sample.id}`);
		const now: Sample = { ...sample, minutesAgo: 0, events: [...sample.events, more] };
		await post(service.http, `events/${sample.id}`, eventsOf(now).slice(-1));
	}
	for (const tab of open) {
		const id = /conversations\/([-0-9a-f]+)/.exec(tab.url())?.[1];
		// The list shows the last message of each that has not failed.
		for (const one of id === undefined ? SAMPLES.slice(1, 4).map((sample) => sample.id) : [id])
			await tab.getByRole("main").getByText(`News of ${one}`).first().waitFor();
	}
	await post(service.http, "conversations", recordOf(sampleWith({ id: sampleId(901), title: "Arrived in all lists" })));
	for (const tab of open.filter((one) => !one.url().includes("conversations/")))
		await tab.getByText("Arrived in all lists").waitFor();
});
