import { expect, test } from "vitest";
import { KEY, startTestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { postSample, SAMPLES } from "./samples.ts";
import { expectAccessible, visitWithKey } from "./visit.ts";

test("the senders page tells in one step who posts, how much, and links to its conversations", async () => {
	await using browser = await TestBrowser.start();
	const key = "key-of-the-server-build-07";
	await using service = await startTestService({ ACCESS_KEYS: `build-07:${key}:ingest,reader:${KEY}:read` });
	for (const sample of SAMPLES) await postSample(service.http, sample, key);
	const { page, faults } = await visitWithKey(browser, service.http);
	await page.getByRole("link", { name: "Senders" }).click();
	const row = page.getByRole("row", { name: /build-07/ });
	await row.getByText("posts").waitFor();
	await expect.poll(() => row.getByRole("cell").nth(4).textContent()).toBe(String(2 * SAMPLES.length));
	await expectAccessible(page);
	await row.getByRole("link", { name: "build-07" }).click();
	await expect.poll(() => page.locator(".list .line:not(.head)").count()).toBe(SAMPLES.length);
	expect(faults).toEqual([]);
	await page.context().close();
});
