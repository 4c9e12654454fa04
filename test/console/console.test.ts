import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cost } from "../../console/src/parts/format.ts";
import { capturedSequences, object } from "../support/fixtures.ts";
import { freePort } from "../support/free-port.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { DESKTOP, PHONE, TestBrowser } from "./browser.ts";
import { eventsOf, post, postSample, recordOf, SAMPLES, SILENT, said, sampleId } from "./samples.ts";
import { expectAccessible, goTo, visit, visitWithKey } from "./visit.ts";

let browser: TestBrowser;
let service: TestService;

beforeAll(async () => {
	browser = await TestBrowser.start();
	service = await startTestService();
	for (const sample of [...SAMPLES, SILENT]) await postSample(service.http, sample);
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

const CHECKOUT = `#/conversations/${sampleId(1)}`;

describe("the key", () => {
	test("is asked for once, stays in the tab, and is forgotten by signing out", async () => {
		const { page, faults } = await visit(browser, `${service.http}/`);
		await page.getByLabel("Access key").fill(KEY);
		await page.keyboard.press("Enter");
		await page.getByText("Fix the flaky test in checkout").waitFor();
		await page.reload();
		await page.getByText("Fix the flaky test in checkout").waitFor();
		expect(await page.evaluate("[document.cookie, localStorage.getItem('access-key')]")).toEqual(["", null]);
		await page.getByRole("button", { name: "Sign out" }).click();
		await page.getByLabel("Access key").waitFor();
		expect(await page.evaluate("sessionStorage.length")).toBe(0);
		expect(await page.title()).toBe("Conversations");
		expect(faults).toEqual([]);
		await page.context().close();
	});

	test("that is wrong is refused with a sentence", async () => {
		const { page } = await visit(browser, `${service.http}/`);
		await page.getByLabel("Access key").fill("a-key-that-nobody-has-made");
		await page.keyboard.press("Enter");
		await page.getByRole("alert").getByText("The service does not accept this access key.").waitFor();
		await page.context().close();
	});

	test("without the scope read gets a sentence that names the scope", async () => {
		await using other = await startTestService({ ACCESS_KEYS: `sender:${KEY}:ingest` });
		const { page } = await visitWithKey(browser, other.http);
		await page.getByText('lacks the scope "read"').waitFor();
		await page.context().close();
	});

	test("is taken from the address, removed from it at once, and never replaces another one without asking", async () => {
		const { page } = await visitWithKey(browser, service.http);
		expect(page.url()).not.toContain(KEY);
		await page.evaluate("location.hash = '#key=another-key-of-somebody'");
		const question = page.getByRole("alertdialog");
		await question.waitFor();
		await expect.poll(() => page.url()).not.toContain("another-key");
		await question.getByRole("button", { name: "Keep mine" }).click();
		await question.waitFor({ state: "detached" });
		expect(await page.evaluate("sessionStorage.getItem('access-key')")).toBe(KEY);
		await page.context().close();
	});
});

test("a key of the address does not come back into it when the address changes", async () => {
	const { page } = await visit(browser, `${service.http}/#key=${KEY}`);
	const button = page.getByRole("button", { name: "error" });
	await button.click();
	await expect.poll(() => page.url()).toBe(`${service.http}/#/conversations?execution_status=error`);
	await page.evaluate("location.hash = '#key=another-key-of-somebody'");
	await page.getByRole("alertdialog").getByRole("button", { name: "Keep mine" }).click();
	await button.click();
	await expect.poll(() => page.url()).toBe(`${service.http}/#/conversations?execution_status=error`);
	await page.context().close();
});

describe("the list", () => {
	test("changes by itself while posts arrive", async () => {
		const { page } = await visitWithKey(browser, service.http);
		await page.getByText("live", { exact: true }).waitFor();
		const id = sampleId(201);
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		const record = { ...recordOf({ ...sample, id, minutesAgo: 0 }), title: "Arrived while the page was open" };
		await post(service.http, "conversations", { ...record, execution_status: "running" });
		const row = page.getByRole("row", { name: /Arrived while the page was open/ });
		await row.getByText("running").waitFor();
		await post(service.http, "conversations", {
			...record,
			execution_status: "finished",
			updated_at: new Date().toISOString(),
		});
		await row.getByText("finished").waitFor();
		await page.context().close();
	});

	test("is filtered by its buttons, its search and its address, and by the keyboard", async () => {
		const { page } = await visitWithKey(browser, service.http, "#/conversations?model=model-deep-4");
		const rows = page.locator(".list .line:not(.head)");
		await expect.poll(() => rows.count()).toBe(2);
		await page.keyboard.press("Escape");
		await expect.poll(() => rows.count()).toBeGreaterThan(5);
		await page.getByRole("button", { name: "waiting" }).click();
		await expect.poll(() => rows.count()).toBe(1);
		await expect.poll(() => page.url()).toContain("execution_status=waiting_for_confirmation");
		await page.keyboard.press("Escape");
		await page.keyboard.press("f");
		await page.keyboard.type("base image");
		await page.keyboard.press("Enter");
		// Until then the only row can be that of the view before.
		await page.locator(".list:not(.stale)").getByText("Upgrade the base image").first().waitFor();
		await expect.poll(() => rows.count()).toBe(1);
		await page.keyboard.press("Tab");
		await page.keyboard.press("j");
		await page.locator(".line.chosen").waitFor();
		await page.evaluate("document.activeElement.blur()");
		await page.keyboard.press("Enter");
		await page.getByRole("heading", { name: "Upgrade the base image" }).waitFor();
		await page.context().close();
	});

	test("tells in one step what failed and why, and in a second opens the timeline at the error", async () => {
		const { page } = await visitWithKey(browser, service.http);
		await page.getByRole("button", { name: "error" }).click();
		const row = page.getByRole("row", { name: /Fix the flaky test in checkout/ }).first();
		await row.getByText("LLMContextWindowExceedError: The prompt has 203,118 tokens").waitFor();
		await expect.poll(() => page.getByRole("row", { name: /finished/ }).count()).toBe(0);
		await row.getByRole("link").click();
		await page.locator("article.step.chosen", { hasText: "LLMContextWindowExceedError" }).waitFor();
		await page.context().close();
	});

	test("tells in one step which running or waiting conversations are silent", async () => {
		const { page } = await visitWithKey(browser, service.http);
		await page.getByRole("button", { name: "silent for 10 min" }).click();
		const rows = page.locator(".list .line:not(.head)");
		await expect.poll(() => rows.count()).toBe(1);
		await rows.getByRole("link", { name: SILENT.title ?? "" }).waitFor();
		await page.context().close();
	});

	test("goes on without a gap when the service was stopped and started under it", async () => {
		await using first = await startTestService({ HTTP_ADDRESS: `127.0.0.1:${await freePort()}` });
		const { page } = await visitWithKey(browser, first.http);
		await page.getByText("live", { exact: true }).waitFor();
		await using second = await first.restart();
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		for (const number of [301, 302, 303])
			await post(
				second.http,
				"conversations",
				recordOf({ ...sample, id: sampleId(number), title: `Number ${number}` }),
			);
		for (const number of [301, 302, 303]) await page.getByText(`Number ${number}`).waitFor();
		await page.getByText("live", { exact: true }).waitFor();
		await page.context().close();
	});
});

describe("a conversation", () => {
	test("shows its steps: messages, calls with their results, hooks and errors, and marks the slowest and the dearest", async () => {
		const { page, faults } = await visitWithKey(browser, service.http, CHECKOUT);
		const steps = page.locator("article.step");
		await steps.first().waitFor();
		await page.keyboard.press("s");
		await page.locator("article.step.chosen", { hasText: "--repeat 100" }).getByText("slowest").waitFor();
		// What steps cost is known when the record has arrived.
		await page.getByRole("link", { name: /^dearest:/ }).waitFor();
		await page.keyboard.press("d");
		await page.locator("article.step.chosen", { hasText: "dearest" }).waitFor();
		await page.keyboard.press("g");
		await page.locator("article.step.failed.chosen").waitFor();
		const error = page.locator("article.step.failed");
		await error.getByText("LLMContextWindowExceedError").waitFor();
		await expect.poll(() => page.url()).toMatch(/event=\d+/);
		await page.getByRole("searchbox", { name: "Search in the timeline" }).fill("stub answered");
		await expect.poll(() => steps.count()).toBe(1);
		expect(faults).toEqual([]);
		await page.context().close();
	});

	test("is opened in one step from the list, and follows a running one, whose newest step stays in view", async () => {
		const id = sampleId(202);
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		const events = Array.from({ length: 30 }, (_, index) => said("agent", `Step number ${index}`, 1));
		const running = { ...sample, id, title: "Walk on", status: "running", minutesAgo: 0, events };
		await post(service.http, "conversations", recordOf(running));
		await post(service.http, `events/${id}`, eventsOf(running));
		const { page } = await visitWithKey(browser, service.http);
		await page.getByRole("link", { name: "Walk on" }).click();
		const facts = page.getByRole("complementary", { name: "Facts" });
		const count = facts.locator("div", { hasText: "Events" }).getByRole("definition");
		await expect.poll(() => count.textContent()).toBe("30");
		await expect.poll(() => page.locator("article.step", { hasText: "Step number 29" }).isVisible()).toBe(true);
		const more = { ...running, events: [...events, said("agent", "This one came later", 1)] };
		await post(service.http, `events/${id}`, eventsOf(more).slice(-1));
		await page.getByText("This one came later").waitFor();
		await expect.poll(() => count.textContent()).toBe("31");
		await expect
			.poll(() => page.getByText("This one came later").boundingBox())
			.toMatchObject({ y: expect.any(Number) });
		await page.context().close();
	});

	test("that runs is not scrolled under a person who reads back, until they follow it again", async () => {
		const id = sampleId(205);
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		const events = Array.from({ length: 100 }, (_, index) => said("agent", `Step number ${index}`, 1));
		const running = { ...sample, id, title: "Run on", status: "running", minutesAgo: 0, events };
		await post(service.http, "conversations", recordOf(running));
		await post(service.http, `events/${id}`, eventsOf(running));
		const { page } = await visitWithKey(browser, service.http, `#/conversations/${id}`);
		await page.getByText("Step number 99", { exact: true }).waitFor();
		const isAtEnd = "innerHeight + scrollY >= document.documentElement.scrollHeight - 60";
		await expect.poll(() => page.evaluate(isAtEnd)).toBe(true);
		await page.mouse.move(640, 400);
		// Until the end is far away: a turn of the wheel moves the page some time later, and not while the list moves it.
		const fromEnd = "document.documentElement.scrollHeight - innerHeight - scrollY";
		await expect
			.poll(async () => {
				await page.mouse.wheel(0, -1000);
				return await page.evaluate(fromEnd);
			})
			.toBeGreaterThan(2000);
		const follow = page.getByRole("button", { name: "follow the newest" });
		await follow.waitFor();
		const more = { ...running, events: [...events, said("agent", "This one came later", 1)] };
		await post(service.http, `events/${id}`, eventsOf(more).slice(-1));
		await page.getByText("101 steps").waitFor();
		await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
		expect(await page.getByText("This one came later").count()).toBe(0);
		await follow.click();
		await page.getByText("This one came later").waitFor();
		await expect.poll(() => follow.count()).toBe(0);
		await page.context().close();
	});

	test("of an earlier day shows the day of its steps, and all of a chosen event as JSON", async () => {
		const id = sampleId(206);
		const sample = SAMPLES.find(({ title }) => title === "Upgrade the base image");
		if (sample === undefined) throw new Error("there are samples");
		await postSample(service.http, { ...sample, id, minutesAgo: 3 * 24 * 60 });
		const { page } = await visitWithKey(browser, service.http, `#/conversations/${id}`);
		const times = page.locator("article.step .step-facts");
		await expect.poll(() => times.first().textContent()).toMatch(/^[A-Z][a-z]{2},? \d+ [A-Z][a-z]+, \d\d:\d\d:\d\d$/);
		await times.first().click();
		const chosen = page.locator("article.step.chosen");
		await chosen.getByRole("button", { name: "show the JSON" }).click();
		await chosen.getByRole("button", { name: /llm_message/ }).click();
		await chosen.getByText('"user"').first().waitFor();
		await expectAccessible(page);
		await page.context().close();
	});

	test("tells in one step from the list why it takes so long and costs so much", async () => {
		const { page } = await visitWithKey(browser, service.http);
		await page.getByRole("link", { name: "Fix the flaky test in checkout" }).first().click();
		const slowest = page.getByRole("link", { name: "slowest: 1 min 37 s" });
		await expect.poll(() => slowest.boundingBox()).toMatchObject({ y: expect.any(Number) });
		const dearest = page.getByRole("link", { name: /^dearest: \$0\.\d\d$/ });
		await dearest.waitFor();
		await slowest.click();
		await page.locator("article.step.chosen", { hasText: "--repeat 100" }).getByText("slowest").waitFor();
		await page.context().close();
	});

	test("shows what changed between two versions in two steps from the list", async () => {
		const { page } = await visitWithKey(browser, service.http);
		await page.getByRole("link", { name: "Fix the flaky test in checkout" }).first().click();
		await page.locator("article.step").first().waitFor();
		await page.keyboard.press("h");
		const versions = page.getByRole("region", { name: "Two versions" });
		const row = versions.getByRole("row", { name: /\/execution_status/ });
		await expect.poll(() => row.getByRole("cell").allTextContents()).toEqual(["running", "error"]);
		await page.context().close();
	});

	test("jumps to any sequence, and shows any two versions side by side", async () => {
		const { page } = await visitWithKey(browser, service.http, `${CHECKOUT}?tab=history`);
		const updates = page.locator(".history ol li .number");
		await updates.first().waitFor();
		const [newest, oldest] = (await updates.allTextContents()).map(Number);
		if (newest === undefined || oldest === undefined) throw new Error("there are two versions");
		await expect.poll(() => page.url()).toContain(`sequence=${newest}`);
		await page.getByLabel("Version at sequence").fill(String(newest + 1000));
		await page.keyboard.press("Enter");
		await page.getByText("The current record did not change").waitFor();
		await page.getByLabel("compared with").fill(String(oldest));
		await page.keyboard.press("Enter");
		const versions = page.getByRole("region", { name: "Two versions" });
		const headers = versions.getByRole("columnheader");
		await expect.poll(() => headers.allTextContents()).toEqual(["Member", `At ${oldest}`, `At ${newest + 1000}`]);
		const row = versions.getByRole("row", { name: /\/execution_status/ });
		await expect.poll(() => row.getByRole("cell").allTextContents()).toEqual(["running", "error"]);
		await expect.poll(() => page.url()).toContain(`sequence=${newest + 1000}&with=${oldest}`);
		await page.context().close();
	});

	test("copies ids, links, JSON and commands of what is shown", async () => {
		const { page, faults } = await visitWithKey(browser, service.http, CHECKOUT);
		// The clipboard of a Chromium without a window cannot be read.
		await page.evaluate("navigator.clipboard.writeText = async (text) => { globalThis.copied = text; }");
		const copied = async (group: string | undefined, form: string): Promise<string> => {
			await page.evaluate("globalThis.copied = undefined");
			const option = group === undefined ? page : page.locator(`optgroup[label="${group}"]`);
			const value = await option
				.getByRole("option", { name: form, exact: true, includeHidden: true })
				.getAttribute("value");
			await page.getByLabel("Copy", { exact: true }).selectOption(value);
			await expect.poll(() => page.evaluate("globalThis.copied")).toEqual(expect.any(String));
			return await page.evaluate("globalThis.copied");
		};
		const link = page.locator("article.step", { hasText: "grep -n coupon" }).getByRole("link");
		const address = (await link.getAttribute("href")) ?? "";
		const event = /event=(\d+)/.exec(address)?.[1];
		await link.click();
		await page.locator("article.step.chosen", { hasText: "grep -n coupon" }).waitFor();
		const said = page.getByText("Copied", { exact: true }).waitFor();
		expect(await copied(undefined, "link to what is shown")).toBe(`${service.http}/${address}`);
		await said;
		expect(await copied("Conversation", "id")).toBe(sampleId(1));
		expect(JSON.parse(await copied("Conversation", "JSON"))).toMatchObject({
			id: sampleId(1),
			execution_status: "error",
		});
		expect(JSON.parse(await copied(`Event ${event}`, "JSON"))).toMatchObject({
			kind: "ActionEvent",
			action: { command: expect.stringContaining("grep -n coupon") },
		});
		const run = async (command: string) => {
			const url = /^curl -sS -H "X-Access-Token: \$KEY" '(.*)'$/.exec(command)?.[1] ?? "";
			return await (await fetch(url, { headers: { "X-Access-Token": KEY } })).json();
		};
		expect(await run(await copied("Conversation", "curl"))).toMatchObject({ id: sampleId(1) });
		const page1 = object(await run(await copied(`Event ${event}`, "curl")));
		expect(page1.events).toMatchObject([{ event: { kind: "ActionEvent" } }]);
		expect(await copied(`Event ${event}`, "grpcurl")).toBe(
			`grpcurl -plaintext -H "X-Access-Token: $KEY" -d '${JSON.stringify({
				conversation_id: sampleId(1),
				after_sequence: String(Number(event) - 1),
				page_size: 1,
			})}' "$GRPC_ADDRESS" conversations.v1.ConversationEventService/ListConversationEvents`,
		);
		await page.keyboard.press("h");
		const started = page.getByRole("button", { name: /started/ });
		await started.click();
		const first = await started.locator(".number").textContent();
		expect(await run(await copied(`Version ${first}`, "curl"))).toMatchObject({ execution_status: "running" });
		expect(faults).toEqual([]);
		await page.context().close();
	});

	test("shows the record with its secrets as asterisks", async () => {
		const { page } = await visitWithKey(browser, service.http, `${CHECKOUT}?tab=record`);
		await page.getByRole("button", { name: /secret_registry/ }).click();
		await page.getByRole("button", { name: /secret_sources/ }).click();
		await page.getByRole("button", { name: /DEPLOY_TOKEN/ }).click();
		await page.getByText('"**********"').waitFor();
		expect(await page.content()).not.toContain("never-shown-in-the-console");
		await page.context().close();
	});

	test("links to its parent and to its children", async () => {
		const { page } = await visitWithKey(browser, service.http, `#/conversations/${sampleId(6)}`);
		await page.getByRole("link", { name: "Collect the merged changes since 4.1" }).click();
		await page.getByRole("heading", { name: "Collect the merged changes since 4.1" }).waitFor();
		await page.getByRole("link", { name: sampleId(6).slice(0, 8) }).click();
		await page.getByRole("heading", { name: "Write the release notes for 4.2" }).waitFor();
		await page.context().close();
	});

	test.each([
		["acp-full", ["User", "System prompt", "Status: running", "Read file", "Finish", "Status: finished"]],
		[
			"hooks-full",
			[
				...["Status: paused", "Paused", "Hook SessionStart", "System prompt", "Hook UserPromptSubmit", "User"],
				...["Status: running", "Finish", "Status: finished", "Hook Stop"],
			],
		],
		[
			"resume-cycle",
			[
				...["System prompt", "User", "Status: running", "Status: paused", "Interrupted", "Status: running"],
				...["Status: paused", "Interrupted", "Status: running", "Finish", "Status: finished"],
			],
		],
		[
			"confirm-ConfirmRisky-LOW",
			[...["System prompt", "User", "Status: running", "Terminal", "Risk judged"], "Status: waits for a confirmation"],
		],
	])("captured from a real agent server is shown step by step: %s", async (name, titles) => {
		const sequence = capturedSequences().find((one) => one.name === name);
		if (sequence === undefined) throw new Error(`there is no ${name}`);
		const { conversationId, posts } = sequence;
		for (const { webhook, body } of posts)
			await post(service.http, webhook === "events" ? `events/${conversationId}` : webhook, body);
		const viewport = { width: 1280, height: 2400 };
		const { page, faults } = await visitWithKey(browser, service.http, `#/conversations/${conversationId}`, {
			viewport,
		});
		const shown = page.locator("article.step header strong");
		await expect.poll(() => shown.allTextContents()).toEqual(titles);
		await expectAccessible(page);
		expect(faults).toEqual([]);
		await page.context().close();
	});

	test("opens at an event of the address", async () => {
		const { page } = await visitWithKey(browser, service.http, CHECKOUT);
		const link = page.locator("article.step", { hasText: "grep -n coupon" }).getByRole("link");
		await link.click();
		await expect.poll(() => page.url()).toMatch(/event=\d+$/);
		const other = await visitWithKey(browser, service.http, new URL(page.url()).hash);
		await other.page.locator("article.step.chosen", { hasText: "grep -n coupon" }).waitFor();
		await page.context().close();
		await other.page.context().close();
	});

	test("of 10,000 events shows its newest and its oldest step", async () => {
		const id = sampleId(203);
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		const events = Array.from({ length: 10_000 }, (_, index) => said("agent", `Message ${index} of many`, 0.1));
		const long = { ...sample, id, events };
		await post(service.http, "conversations", recordOf(long));
		const all = eventsOf(long).map((event, index) => ({ ...event, id: `many-${index}`, parent_id: null }));
		for (let from = 0; from < all.length; from += 1000)
			await post(service.http, `events/${id}`, all.slice(from, from + 1000));
		const { page } = await visitWithKey(browser, service.http, `#/conversations/${id}`);
		await page.getByText("10,000 steps").waitFor();
		await page.getByText("Message 0 of many").waitFor();
		await page.keyboard.press("g");
		await page.getByText("Message 9999 of many").waitFor();
		expect(await page.locator("article.step").count()).toBeLessThan(100);
		await page.context().close();
	});
});

/** Number of models that the page of usage shows one by one. */
const SHOWN_MODELS = 7;

test("usage by model and day is what ReportUsage returns, as a table", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, "#/usage");
	const all = page.getByRole("row", { name: /^All/ });
	await all.waitFor();
	// The page has the last seven days of the browser's time zone.
	const from = await page.evaluate(() => {
		const now = new Date();
		return new Date(now.getFullYear(), now.getMonth(), now.getDate() - 6).toISOString();
	});
	const response = await fetch(`${service.http}/conversations.v1.ConversationReportService/ReportUsage`, {
		method: "POST",
		headers: { "Content-Type": "application/json", "X-Access-Token": KEY },
		body: JSON.stringify({ from, groupBy: ["model"], top: SHOWN_MODELS }),
	});
	const report = object(await response.json());
	const rows: unknown = report.rows;
	if (!Array.isArray(rows)) throw new Error("a report has rows");
	expect(rows.length).toBeGreaterThan(3);
	for (const row of rows.map(object).filter(({ isRest }) => isRest !== true)) {
		const usage = object(row.usage);
		const shown = page.getByRole("row", { name: new RegExp(`${String(row.group)}`) });
		await shown.getByText(cost(Number(usage.cost ?? 0)), { exact: true }).waitFor();
	}
	expect(faults).toEqual([]);
	await expectAccessible(page);
	await page.context().close();
});

describe("what others wrote is only text", () => {
	const RUN = "document.title='injected'";
	const EVIL = [
		`<img src=x onerror="${RUN}"><script>${RUN}</script><svg/onload="${RUN}"><iframe srcdoc="<script>${RUN}</script>">`,
		`[link](javascript:${RUN}) ![image](https://example.com/x.png) <https://example.com> <a href="javascript:${RUN}">a</a>`,
		"```html",
		`<script>${RUN}</script>`,
		"```",
		`- **<img src=x onerror="${RUN}">** &lt;script&gt; \`<b>\``,
	].join("\n");

	/** Returns a value with markup at the beginning of every string that may be any text. */
	function spoil(value: unknown): unknown {
		if (Array.isArray(value)) return value.map(spoil);
		if (typeof value !== "object" || value === null) return value;
		return Object.fromEntries(
			Object.entries(value).map(([name, member]) => [
				name,
				typeof member === "string" && !/(^id|_id|kind|timestamp|source|type|role|status|_at)$/.test(name)
					? `${EVIL} ${member}`
					: spoil(member),
			]),
		);
	}

	test("in every string of records, events and addresses, with no violation of the policy", async () => {
		const id = sampleId(204);
		const [sample] = SAMPLES;
		if (sample === undefined) throw new Error("there are samples");
		const spoilt = { ...sample, id };
		// A tag has at most 256 characters, and its key only small letters and digits.
		const tags = {
			[EVIL.toLowerCase()
				.replace(/[^a-z0-9]/g, "")
				.slice(0, 200)]: EVIL.slice(0, 256),
		};
		const kinds = [
			{ kind: EVIL, source: "agent", text: EVIL },
			{ kind: "ConversationStateUpdateEvent", key: EVIL, value: EVIL },
		];
		const events = [...eventsOf(spoilt), ...kinds].map((event, index) => ({
			timestamp: new Date().toISOString().replace("Z", ""),
			source: "environment",
			...event,
			id: `evil-${index}`,
			parent_id: null,
		}));
		const record = { ...object(spoil(recordOf(spoilt))), tags };
		await post(service.http, "conversations", JSON.stringify({ ...record, execution_status: "running" }));
		await post(service.http, "conversations", JSON.stringify(record));
		await post(service.http, `events/${id}`, JSON.stringify(spoil(events)));
		const { page, faults } = await visitWithKey(browser, service.http);
		const requests: string[] = [];
		page.on("request", (request) => requests.push(request.url()));
		await page.evaluate(
			`localStorage.setItem("saved-views", ${JSON.stringify(JSON.stringify({ [EVIL]: "model=x" }))})`,
		);
		await page.reload();
		const shows = "<img src=x onerror=";
		for (const [address, shown] of [
			["#/conversations", shows],
			[`#/conversations?${new URLSearchParams({ model: EVIL })}`, shows],
			[`#/conversations/${id}`, shows],
			[`#/conversations/${id}?tab=record`, shows],
			[`#/conversations/${id}?tab=history`, "started"],
			[`#/conversations/${id}?${new URLSearchParams({ tab: EVIL, event: EVIL })}`, shows],
			[`#/conversations/${encodeURIComponent(EVIL)}`, "cannot be shown"],
			["#/usage", shows],
			[`#/usage?${new URLSearchParams({ group_by: EVIL, range: EVIL, step: EVIL })}`, "cannot be shown"],
			["#/senders", "test"],
			[`#/${encodeURIComponent(EVIL)}`, "no page at this address"],
		] as const) {
			await goTo(page, address);
			await page.getByRole("main").getByText(shown).first().waitFor({ state: "attached" });
			if (address.endsWith("history")) await page.getByRole("button", { name: /failed/ }).click();
			expect(await page.title()).not.toBe("injected");
			expect(await page.locator("img, body script, iframe, body svg:not(.strip > svg), object, embed").count()).toBe(0);
			const links: string[] = await page.evaluate("[...document.links].map(({ href }) => href)");
			expect(links.filter((link) => !link.startsWith(`${service.http}/`))).toEqual([]);
		}
		expect(requests.filter((url) => !url.startsWith(service.http))).toEqual([]);
		expect(faults).toEqual([]);
		await page.context().close();
	});

	test("messages in Markdown become elements", async () => {
		const { page } = await visitWithKey(browser, service.http, CHECKOUT);
		const message = page.locator("article.step.user");
		await expect.poll(() => message.locator("code").textContent()).toBe("checkout applies the coupon");
		expect(await message.getByRole("listitem").allTextContents()).toEqual([
			"run it often",
			"do not change the coupon service",
		]);
		expect(await message.locator("strong").allTextContents()).toEqual(["User", "do not"]);
		await page.context().close();
	});
});

test("each page has a title of its own", async () => {
	const { page } = await visitWithKey(browser, service.http);
	for (const [address, title] of [
		["#/usage", "Usage · Conversations"],
		[CHECKOUT, "Fix the flaky test in checkout · Conversations"],
		["#/senders", "Senders · Conversations"],
		["#/about", "About · Conversations"],
		["#/search?query=coupon", "Search: coupon · Conversations"],
		["#/conversations", "Conversations"],
	] as const) {
		await goTo(page, address);
		await expect.poll(() => page.title()).toBe(title);
	}
	await page.context().close();
});

test("the search finds what was said and done, from any page", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, "#/senders");
	await page.getByRole("table").first().waitFor();
	await page.keyboard.press("/");
	await page.keyboard.type("context window");
	await page.keyboard.press("Enter");
	const hit = page.getByRole("rowgroup").filter({ hasText: "Fix the flaky test in checkout" });
	await hit.locator(".place").filter({ hasText: "error" }).first().click();
	await page.locator("article.step.chosen", { hasText: "LLMContextWindowExceedError" }).waitFor();
	expect(faults).toEqual([]);
	await page.context().close();
});

test("works below BASE_PATH", async () => {
	await using other = await startTestService({ BASE_PATH: "/bridge" });
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	await postSample(`${other.http}/bridge`, sample);
	const { page, faults } = await visitWithKey(browser, `${other.http}/bridge`, CHECKOUT);
	await page.getByRole("heading", { name: "Fix the flaky test in checkout" }).waitFor();
	await page.locator("article.step").first().waitFor();
	expect(faults).toEqual([]);
	await page.context().close();
});

test("while nothing has arrived, the list says how to point an agent server here, and the first post turns it into the list", async () => {
	await using empty = await startTestService();
	const { page } = await visitWithKey(browser, empty.http);
	const setting = page.getByText(`"base_url": "${empty.http}/api/v1/webhooks"`);
	await page.getByText("No conversation yet").waitFor();
	await setting.waitFor();
	await expectAccessible(page);
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	await postSample(empty.http, sample);
	await page.getByRole("row", { name: /Fix the flaky test in checkout/ }).waitFor();
	await expect.poll(() => setting.count()).toBe(0);
	await page.getByRole("link", { name: "About" }).click();
	await setting.waitFor();
	await page.context().close();
});

test("a theme is chosen by its button, stays, and changes the colours", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/about", { colorScheme: "dark" });
	const colour = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
	const dark = await colour();
	await page.getByRole("button", { name: "theme: system" }).click();
	await page.getByRole("button", { name: "theme: light" }).waitFor();
	await expect.poll(colour).not.toBe(dark);
	await page.reload();
	await page.getByRole("button", { name: "theme: light" }).click();
	await page.getByRole("button", { name: "theme: dark" }).waitFor();
	await expect.poll(colour).toBe(dark);
	await page.context().close();
});

describe.each([
	["light", DESKTOP],
	["dark", PHONE],
] as const)("in the theme %s at the size %o", (colorScheme, viewport) => {
	test.each([
		["#/conversations", "Fix the flaky test in checkout"],
		[CHECKOUT, "terminal"],
		[`${CHECKOUT}?tab=record`, "secret_registry"],
		[`${CHECKOUT}?tab=history`, "started"],
		["#/about", "Point an agent server here"],
		["#/usage", "model-large-4"],
		["#/senders", "posts"],
		["#/search?query=window", "Fix the flaky test in checkout"],
		[`#/conversations/${sampleId(999)}`, "Not found"],
	])("%s has no violation of WCAG 2.2 AA, and fits the width", async (address, text) => {
		const { page } = await visitWithKey(browser, service.http, address, { colorScheme, viewport });
		await page.getByRole("main").getByText(text).first().waitFor();
		await expectAccessible(page);
		expect(await page.evaluate("document.documentElement.scrollWidth - innerWidth")).toBeLessThanOrEqual(0);
		await page.context().close();
	});
});
