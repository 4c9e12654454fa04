import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Receiver } from "../forward/receiver.ts";
import { KEY } from "../support/service.ts";
import { DESKTOP, PHONE } from "./browser.ts";
import { postSample, SAMPLES } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessibleAndFit, goTo } from "./visit.ts";

const READER = "key-of-a-reader-of-conversations";
const service = new TestedConsole({
	env: {
		ACCESS_KEYS: `test:${KEY}:ingest+read+forward,reader:${READER}:read`,
		ENCRYPTION_KEY: randomBytes(32).toString("base64"),
		FORWARD_PRIVATE: "on",
	},
	samples: [],
});
let receiver: Receiver;

beforeAll(async () => {
	receiver = await Receiver.start();
});

afterAll(async () => {
	await receiver?.[Symbol.asyncDispose]();
});

test("an endpoint is created, paused, resumed, tested, replayed and retried in the console", async () => {
	const page = await service.open();
	await page.getByRole("link", { name: "Forwarding" }).click();
	await page.getByText("No endpoint yet").waitFor();
	await page.getByLabel("Name").fill("hook");
	await page.getByLabel("Address").fill(receiver.url);
	await page.getByLabel("STARTED").check();
	await page.getByRole("button", { name: "Create" }).click();
	await page.getByText(/^whsec_/).waitFor();
	await page.getByRole("button", { name: "Done" }).click();
	for (const sample of SAMPLES.slice(0, 2)) await postSample(service.http, sample, KEY);
	const log = page.getByRole("region", { name: "Deliveries" });
	await log.getByText("delivered").first().waitFor({ timeout: 60_000 });
	const first = log.getByRole("row").nth(1);
	await first.locator("summary").click();
	await first.locator("pre").getByText("ok").waitFor();
	const said = page.locator("p[role=status]");
	const before = receiver.received.length;
	await first.getByRole("button", { name: /^Retry/ }).click();
	await expect.poll(() => said.textContent()).toBe("It is sent again.");
	await receiver.count(before + 1);
	await page.getByRole("button", { name: "Pause" }).click();
	await expect.poll(() => said.textContent()).toBe("It is paused.");
	await page.getByRole("region", { name: "Endpoints" }).getByText("paused").waitFor();
	const button = await page.getByRole("button", { name: "Test", exact: true }).elementHandle();
	await page.getByRole("button", { name: "Resume", exact: true }).click();
	await expect.poll(() => said.textContent()).toBe("It goes on from its position.");
	await page.getByRole("button", { name: "Pause" }).waitFor();
	expect(await button?.textContent()).toBe("Test");
	await page.getByRole("button", { name: "Test", exact: true }).click();
	await expect.poll(() => said.textContent()).toMatch(/^The test was accepted after \d+ ms\.$/);
	await page.getByLabel("Replay from sequence").fill("1");
	await page.getByRole("button", { name: "Replay" }).click();
	await expect.poll(() => said.textContent()).toMatch(/^[1-9]\d* are sent again\.$/);
	await page.getByRole("button", { name: "New secret" }).click();
	await page.getByText(/^whsec_/).waitFor();
	receiver.answer = (_, response) => void response.writeHead(500).end();
	await page.getByRole("button", { name: "Test", exact: true }).click();
	await expect.poll(() => said.textContent()).toBe("The test failed: the status is 500.");
});

test.each([
	["light", DESKTOP],
	["dark", PHONE],
] as const)(
	"in the theme %s at the size %o the page is accessible, and fits the width",
	async (colorScheme, viewport) => {
		const page = await service.open("#/forwarding?endpoint=hook", { colorScheme, viewport });
		await page.getByRole("region", { name: "Deliveries" }).getByText("delivered").first().waitFor();
		await expectAccessibleAndFit(page);
	},
);

test("an endpoint is edited and deleted in the console", async () => {
	const page = await service.open("#/forwarding");
	await page.getByLabel("Name").fill("short");
	await page.getByLabel("Address").fill(receiver.url);
	await page.getByLabel("Only conversations with").fill('{"tags": {"team": "a"}}');
	await page.getByLabel("messages").check();
	await page.getByRole("button", { name: "Create" }).click();
	await page.getByRole("button", { name: "Done" }).click();
	const shown = page.getByRole("region", { name: "short" });
	await shown.getByRole("button", { name: "Edit" }).click();
	await expect.poll(() => shown.getByLabel("Only conversations with").inputValue()).toBe('{"tags":{"team":"a"}}');
	await shown.getByLabel("Only conversations with").fill('{"tags": 1}');
	await shown.getByRole("button", { name: "Save" }).click();
	await shown
		.getByRole("alert")
		.getByText(/^The filter: .*tags/)
		.waitFor();
	await shown.getByLabel("Only conversations with").fill("");
	await shown.getByLabel("Form").selectOption("chat");
	await shown.getByLabel("WAITING").uncheck();
	await shown.getByLabel("GAP").check();
	await shown.getByRole("button", { name: "Save" }).click();
	await shown.getByText("It is changed.").waitFor();
	const address = `${service.http}/api/v1/endpoints/short`;
	const headers = { "X-Access-Token": KEY };
	expect(await (await fetch(address, { headers })).json()).toMatchObject({
		endpoint: {
			...{ url: receiver.url, form: "chat", changes: ["FINISHED", "FAILED", "STUCK", "GAP"], include: ["messages"] },
			filter: { tags: {} },
		},
	});
	await shown.getByRole("button", { name: "Delete…" }).click();
	await page
		.getByRole("dialog", { name: "Delete the endpoint short for good" })
		.getByRole("button", { name: "Delete" })
		.click();
	await shown.waitFor({ state: "detached" });
	expect((await fetch(address, { headers })).status).toBe(404);
});

test("a key without the scope has no such page in its navigation", async () => {
	const page = await service.open("#/about", {}, READER);
	await page.getByText("Point an agent server here").first().waitFor();
	expect(await page.getByRole("link", { name: "Forwarding" }).count()).toBe(0);
	await goTo(page, "#/forwarding");
	await page
		.getByText(/forward/)
		.first()
		.waitFor();
});
