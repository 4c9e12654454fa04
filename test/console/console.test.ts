import { describe, expect, test } from "vitest";
import { cost } from "../../console/src/parts/format.ts";
import { object } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";
import { DESKTOP, PHONE } from "./browser.ts";
import { eventsOf, post, postSample, recordOf, SAMPLES, SILENT, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible, expectAccessibleAndFit, goTo } from "./visit.ts";

const SENDER = "key-of-an-agent-server-that-may-not-read";

const service = new TestedConsole({
	env: { ACCESS_KEYS: `test:${KEY}:ingest+read,sender:${SENDER}:ingest` },
	samples: [...SAMPLES, SILENT],
});

const CHECKOUT = `#/conversations/${sampleId(1)}`;

describe("the key", () => {
	test("is asked for until it is right, stays in the tab, and is forgotten by signing out", async () => {
		const page = await service.openUrl(`${service.http}/`);
		await page.getByLabel("Access key").fill("a-key-that-nobody-has-made");
		await page.keyboard.press("Enter");
		await page.getByRole("alert").getByText("The service does not accept this access key.").waitFor();
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
	});

	test("without the scope read gets a sentence that names the scope", async () => {
		const page = await service.open(undefined, {}, SENDER);
		await page.getByText('lacks the scope "read"').waitFor();
	});

	test("is taken from the address, never replaces another one without asking, and does not come back into it", async () => {
		const page = await service.openUrl(`${service.http}/#key=${KEY}`);
		const button = page.getByRole("button", { name: "error" });
		await button.click();
		await expect.poll(() => page.url()).toBe(`${service.http}/#/conversations?execution_status=error`);
		await page.evaluate("location.hash = '#key=another-key-of-somebody'");
		const question = page.getByRole("alertdialog");
		await question.waitFor();
		await expect.poll(() => page.url()).not.toContain("another-key");
		await question.getByRole("button", { name: "Keep mine" }).click();
		await question.waitFor({ state: "detached" });
		expect(await page.evaluate("sessionStorage.getItem('access-key')")).toBe(KEY);
		await button.click();
		await expect.poll(() => page.url()).toBe(`${service.http}/#/conversations?execution_status=error`);
	});
});

describe("the list", () => {
	test("changes by itself while posts arrive", async () => {
		const page = await service.open();
		await page.getByText("live", { exact: true }).waitFor();
		const id = sampleId(201);
		const record = { ...recordOf(sampleWith({ id, minutesAgo: 0 })), title: "Arrived while the page was open" };
		await post(service.http, "conversations", { ...record, execution_status: "running" });
		const row = page.getByRole("row", { name: /Arrived while the page was open/ });
		await row.getByText("running").waitFor();
		await post(service.http, "conversations", {
			...record,
			execution_status: "finished",
			updated_at: new Date().toISOString(),
		});
		await row.getByText("finished").waitFor();
	});

	test("is filtered by its buttons, its search and its address, and by the keyboard", async () => {
		const page = await service.open("#/conversations?model=model-deep-4");
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
	});

	test("tells in one step what failed and why, and in a second opens the timeline at the error", async () => {
		const page = await service.open();
		await page.getByRole("button", { name: "error" }).click();
		const row = page.getByRole("row", { name: /Fix the flaky test in checkout/ }).first();
		await row.getByText("LLMContextWindowExceedError: The prompt has 203,118 tokens").waitFor();
		await expect.poll(() => page.getByRole("row", { name: /finished/ }).count()).toBe(0);
		await row.getByRole("link").click();
		await page.locator("article.step.chosen", { hasText: "LLMContextWindowExceedError" }).waitFor();
	});

	test("tells in one step which running or waiting conversations are silent", async () => {
		const page = await service.open();
		await page.getByRole("button", { name: "silent for 10 min" }).click();
		const rows = page.locator(".list .line:not(.head)");
		await expect.poll(() => rows.count()).toBe(1);
		await rows.getByRole("link", { name: SILENT.title ?? "" }).waitFor();
	});
});

describe("a conversation", () => {
	test("shows its steps: messages, calls with their results, hooks and errors, and marks the slowest and the dearest", async () => {
		const page = await service.open(CHECKOUT);
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
		const message = page.locator("article.step.user");
		expect(await message.locator("strong, code, li").allTextContents()).toEqual([
			...["User", "checkout applies the coupon", "run it often", "do not change the coupon service", "do not"],
		]);
		const error = page.locator("article.step.failed");
		await error.getByText("LLMContextWindowExceedError").waitFor();
		await expect.poll(() => page.url()).toMatch(/event=\d+/);
		await page.getByRole("searchbox", { name: "Search in the timeline" }).fill("stub answered");
		await expect.poll(() => steps.count()).toBe(1);
	});

	test("that runs is followed, and is not scrolled under a person who reads back, until they follow it again", async () => {
		const id = sampleId(202);
		const events = Array.from({ length: 100 }, (_, index) => said("agent", `Step number ${index}`, 1));
		const running = sampleWith({ id, title: "Walk on", status: "running", minutesAgo: 0, events });
		await post(service.http, "conversations", recordOf(running));
		await post(service.http, `events/${id}`, eventsOf(running));
		const say = async (text: string): Promise<void> => {
			events.push(said("agent", text, 1));
			await post(service.http, `events/${id}`, eventsOf(running).slice(-1));
		};
		const page = await service.open();
		await page.getByRole("link", { name: "Walk on" }).click();
		await page.getByText("Step number 99", { exact: true }).waitFor();
		await say("This one is followed");
		await page.getByText("This one is followed").waitFor();
		const facts = page.getByRole("complementary", { name: "Facts" });
		const count = facts.locator("div", { hasText: "Events" }).getByRole("definition");
		await expect.poll(() => count.textContent()).toBe("101");
		const fromEnd = "document.documentElement.scrollHeight - innerHeight - scrollY";
		await expect.poll(() => page.evaluate(fromEnd)).toBeLessThan(60);
		await page.mouse.move(640, 400);
		// Until the end is far away: a turn of the wheel moves the page some time later, and not while the list moves it.
		await expect
			.poll(async () => {
				await page.mouse.wheel(0, -1000);
				return await page.evaluate(fromEnd);
			})
			.toBeGreaterThan(2000);
		const follow = page.getByRole("button", { name: "follow the newest" });
		await follow.waitFor();
		await say("This one came later");
		await page.getByText("102 steps").waitFor();
		await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
		expect(await page.getByText("This one came later").count()).toBe(0);
		await follow.click();
		await page.getByText("This one came later").waitFor();
		await expect.poll(() => follow.count()).toBe(0);
	});

	test("of an earlier day shows the day of its steps, and all of a chosen event as JSON", async () => {
		const id = sampleId(206);
		await postSample(service.http, sampleWith({ id, tags: {}, minutesAgo: 3 * 24 * 60 }));
		const page = await service.open(`#/conversations/${id}`);
		const times = page.locator("article.step .step-facts");
		await expect.poll(() => times.first().textContent()).toMatch(/^[A-Z][a-z]{2},? \d+ [A-Z][a-z]+, \d\d:\d\d:\d\d$/);
		await times.first().click();
		const chosen = page.locator("article.step.chosen");
		await chosen.getByRole("button", { name: "show the JSON" }).click();
		await chosen.getByRole("button", { name: /llm_message/ }).click();
		await chosen.getByText('"user"').first().waitFor();
		await expectAccessible(page);
	});

	test("shows what changed between two versions, by a key those of the last change, by their sequences any", async () => {
		const page = await service.open(CHECKOUT);
		await page.locator("article.step").first().waitFor();
		await page.keyboard.press("h");
		const versions = page.getByRole("region", { name: "Two versions" });
		const cells = versions.getByRole("row", { name: /\/execution_status/ }).getByRole("cell");
		await expect.poll(() => cells.allTextContents()).toEqual(["running", "error"]);
		const updates = page.locator(".history ol li .number");
		const [newest, oldest] = (await updates.allTextContents()).map(Number);
		if (newest === undefined || oldest === undefined) throw new Error("there are two versions");
		await expect.poll(() => page.url()).toContain(`sequence=${newest}`);
		await page.getByLabel("Version at sequence").fill(String(newest + 1000));
		await page.keyboard.press("Enter");
		await page.getByText("The current record did not change").waitFor();
		await page.getByLabel("compared with").fill(String(oldest));
		await page.keyboard.press("Enter");
		const headers = versions.getByRole("columnheader");
		await expect.poll(() => headers.allTextContents()).toEqual(["Member", `At ${oldest}`, `At ${newest + 1000}`]);
		await expect.poll(() => cells.allTextContents()).toEqual(["running", "error"]);
		await expect.poll(() => page.url()).toContain(`sequence=${newest + 1000}&with=${oldest}`);
	});

	test("copies ids, links, JSON and commands of what is shown", async () => {
		const page = await service.open(CHECKOUT);
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
		expect(JSON.parse(await copied(`Event ${event}`, "JSON"))).toMatchObject({
			kind: "ActionEvent",
			action: { command: expect.stringContaining("grep -n coupon") },
		});
		const run = async (command: string) => {
			const url = /^curl -sS -H "X-Access-Token: \$KEY" '(.*)'$/.exec(command)?.[1] ?? "";
			return await (await fetch(url, { headers: { "X-Access-Token": KEY } })).json();
		};
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
	});

	test("shows the record with its secrets as asterisks", async () => {
		const page = await service.open(`${CHECKOUT}?tab=record`);
		await page.getByRole("button", { name: /secret_registry/ }).click();
		await page.getByRole("button", { name: /secret_sources/ }).click();
		await page.getByRole("button", { name: /DEPLOY_TOKEN/ }).click();
		await page.getByText('"**********"').waitFor();
		expect(await page.content()).not.toContain("never-shown-in-the-console");
	});

	test("links to its parent and to its children", async () => {
		const page = await service.open(`#/conversations/${sampleId(6)}`);
		await page.getByRole("link", { name: "Collect the merged changes since 4.1" }).click();
		await page.getByRole("heading", { name: "Collect the merged changes since 4.1" }).waitFor();
		await page.getByRole("link", { name: sampleId(6).slice(0, 8) }).click();
		await page.getByRole("heading", { name: "Write the release notes for 4.2" }).waitFor();
	});
});

/** Number of models that the page of usage shows one by one. */
const SHOWN_MODELS = 7;

test("usage by model and day is what ReportUsage returns, as a table", async () => {
	const page = await service.open("#/usage");
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
	await expectAccessible(page);
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
		const spoilt = sampleWith({ id });
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
		const page = await service.open();
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
	});
});

test("the search finds what was said and done, from any page", async () => {
	const page = await service.open("#/senders");
	await page.getByRole("table").first().waitFor();
	await page.keyboard.press("/");
	await page.keyboard.type("context window");
	await page.keyboard.press("Enter");
	const hit = page.getByRole("rowgroup").filter({ hasText: "Fix the flaky test in checkout" });
	await hit.locator(".place").filter({ hasText: "error" }).first().click();
	await page.locator("article.step.chosen", { hasText: "LLMContextWindowExceedError" }).waitFor();
});

test("works below BASE_PATH", async () => {
	await using other = await startTestService({ BASE_PATH: "/bridge" });
	await postSample(`${other.http}/bridge`, sampleWith({}));
	const page = await service.open(CHECKOUT, {}, KEY, `${other.http}/bridge`);
	await page.getByRole("heading", { name: "Fix the flaky test in checkout" }).waitFor();
	await page.locator("article.step").first().waitFor();
});

test("while nothing has arrived, the list says how to point an agent server here, and the first post turns it into the list", async () => {
	await using empty = await startTestService();
	const page = await service.open(undefined, {}, KEY, empty.http);
	const setting = page.getByText(`"base_url": "${empty.http}/api/v1/webhooks"`);
	await page.getByText("No conversation yet").waitFor();
	await setting.waitFor();
	await expectAccessible(page);
	await postSample(empty.http, sampleWith({}));
	await page.getByRole("row", { name: /Fix the flaky test in checkout/ }).waitFor();
	await expect.poll(() => setting.count()).toBe(0);
	await page.getByRole("link", { name: "About" }).click();
	await setting.waitFor();
});

test("a theme is chosen by its button, stays, and changes the colours", async () => {
	const page = await service.open("#/about", { colorScheme: "dark" });
	const colour = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
	const dark = await colour();
	await page.getByRole("button", { name: "theme: system" }).click();
	await page.getByRole("button", { name: "theme: light" }).waitFor();
	await expect.poll(colour).not.toBe(dark);
	await page.reload();
	await page.getByRole("button", { name: "theme: light" }).click();
	await page.getByRole("button", { name: "theme: dark" }).waitFor();
	await expect.poll(colour).toBe(dark);
});

describe.each([
	["light", DESKTOP],
	["dark", PHONE],
] as const)("in the theme %s at the size %o", (colorScheme, viewport) => {
	test.each([
		["#/conversations", "Fix the flaky test in checkout", ""],
		[CHECKOUT, "terminal", "Fix the flaky test in checkout"],
		[`${CHECKOUT}?tab=record`, "secret_registry", "Fix the flaky test in checkout"],
		[`${CHECKOUT}?tab=history`, "started", "Fix the flaky test in checkout"],
		["#/about", "Point an agent server here", "About"],
		["#/usage", "model-large-4", "Usage"],
		["#/senders", "posts", "Senders"],
		["#/search?query=window", "Fix the flaky test in checkout", "Search: window"],
		[`#/conversations/${sampleId(999)}`, "Not found", sampleId(999)],
	])("%s has no violation of WCAG 2.2 AA, fits the width, and has its title", async (address, text, title) => {
		const page = await service.open(address, { colorScheme, viewport });
		await page.getByRole("main").getByText(text).first().waitFor();
		await expectAccessibleAndFit(page);
		expect(await page.title()).toBe([title, "Conversations"].filter(Boolean).join(" · "));
	});
});
