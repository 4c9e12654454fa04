import { afterAll, beforeAll, expect, test } from "vitest";
import { MIN_BATCHES } from "../../src/conversations/senders/clock-skew.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { eventsOf, post, postSample, SAMPLES, said } from "./samples.ts";
import { expectAccessible, visitWithKey } from "./visit.ts";

const KEYS = { "build-07": "key-of-the-server-build-07", "build-08": "key-of-the-server-build-08" };

let browser: TestBrowser;
let service: TestService;

beforeAll(async () => {
	browser = await TestBrowser.start();
	const keys = Object.entries(KEYS).map(([name, key]) => `${name}:${key}:ingest`);
	service = await startTestService({ ACCESS_KEYS: [...keys, `reader:${KEY}:read`].join() });
	for (const sample of SAMPLES) await postSample(service.http, sample, KEYS["build-07"]);
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

test("the senders page tells in one step who posts, how much, and links to its conversations", async () => {
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

test("the senders page tells in one step whose clock is wrong", async () => {
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	for (const [name, minutes] of [
		["build-07", 0],
		["build-08", 120],
	] as const)
		for (let batch = 0; batch < MIN_BATCHES; batch += 1) {
			const event = { ...eventsOf({ ...sample, minutesAgo: minutes, events: [said("agent", "Now", 0)] })[0] };
			await post(service.http, `events/${sample.id}`, [{ ...event, id: `${name}-${batch}` }], KEYS[name]);
		}
	const { page } = await visitWithKey(browser, service.http);
	await page.getByRole("link", { name: "Senders" }).click();
	await page
		.getByRole("row", { name: /build-08/ })
		.getByText("2 h 0 min behind: set its time zone")
		.waitFor();
	await page
		.getByRole("row", { name: /build-07/ })
		.getByText("right")
		.waitFor();
	await expectAccessible(page);
	await page.context().close();
});
