import { expect, test } from "vitest";
import { freePort } from "../support/free-port.ts";
import { KEY, startTestService } from "../support/service.ts";
import { eventsOf, post, postSample, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible, goTo, hashOf, visitWithKey } from "./visit.ts";

/** The console in a browser with another language or time zone, and beside a service that goes away and comes back. */

const service = new TestedConsole({ browserEnv: { LANG: "C", LC_ALL: "C" } });

const CHECKOUT = `#/conversations/${sampleId(1)}`;

test("draws its charts where the language of the browser is no BCP 47 tag", async () => {
	const page = await service.open(CHECKOUT);
	expect(await page.evaluate("navigator.language")).toBe("en-US@posix");
	await page
		.getByRole("img", { name: /^Cost over time/ })
		.locator("canvas")
		.waitFor();
	await goTo(page, "#/usage");
	await page
		.getByRole("img", { name: /^cost over time/ })
		.locator("canvas")
		.waitFor();
});

test("shows the timeline and the numbers while the code of the charts cannot be loaded, and then the charts", async () => {
	const page = await service.open("#/about");
	await page.route("**/assets/drawn-chart-*", (route) => route.abort());
	await goTo(page, CHECKOUT);
	await page.locator("article.step").first().waitFor();
	await expect.poll(() => page.getByText("The chart cannot be loaded now.").count()).toBe(3);
	await expectAccessible(page);
	await goTo(page, "#/usage");
	await page.getByText("The chart cannot be loaded now.").waitFor();
	await page.unroute("**/assets/drawn-chart-*");
	await page.locator(".chart canvas").waitFor();
});

test("an error in the console is named, and is not put on the service", async () => {
	// This page has a fault.
	const { page } = await visitWithKey(service.browser, service.http, "#/about");
	await page.getByText("Point an agent server here").waitFor();
	await page.evaluate(`Object.defineProperty(Intl.NumberFormat.prototype, "format", {
		get() { throw new Error("made by the test"); }
	})`);
	await goTo(page, "#/usage");
	await page.getByText("An error occurred in the console: made by the test").waitFor();
	await page.getByRole("button", { name: "Load the console again" }).click();
	await page.getByRole("row", { name: /^All/ }).waitFor();
	await page.context().close();
});

test("a page that is opened while the service is away is shown without a click when it is back", async () => {
	const page = await service.open("#/senders");
	let failing: string | undefined;
	// Once and before the calls: the browser lets a call pass that it sends right after this.
	await page.route("**/conversations.v1.*/*", (route) =>
		failing !== undefined && route.request().url().endsWith(failing) ? route.abort() : route.continue(),
	);
	await page.getByRole("table").first().waitFor();
	for (const [address, method, text] of [
		["#/about", "ServiceInfoService/GetServiceInfo", "Point an agent server here"],
		["#/conversations", "ConversationService/ListConversations", "Fix the flaky test in checkout"],
		[CHECKOUT, "ConversationService/ListConversations", "LLMContextWindowExceedError"],
		["#/usage", "ConversationReportService/ReportUsage", "model-large-4"],
		["#/search?query=coupon", "ConversationSearchService/SearchConversations", "1 conversation"],
		["#/senders", "ConversationSenderService/ListSenders", "posts"],
		[CHECKOUT, "ConversationGapService/ListConversationGaps", "LLMContextWindowExceedError"],
	] as const) {
		failing = method;
		await goTo(page, address);
		await page.getByText("The service does not answer").waitFor();
		failing = undefined;
		await page.getByRole("main").getByText(text).first().waitFor();
		expect(hashOf(page)).toBe(address);
	}
	// What was read before the failure is not there twice.
	await page.getByRole("tab", { name: "History 2", exact: true }).waitFor();
});

test("two versions are compared again without a click when the service is back", async () => {
	const page = await service.open("#/about");
	await page.route("**/api/v1/conversations/*?sequence=*", (route) => route.abort());
	await goTo(page, CHECKOUT);
	await page.locator("article.step").first().waitFor();
	await page.keyboard.press("h");
	await page.getByText("The service does not answer").waitFor();
	await page.unroute("**/api/v1/conversations/*?sequence=*");
	const row = page.getByRole("region", { name: "Two versions" }).getByRole("row", { name: /\/execution_status/ });
	await expect.poll(() => row.getByRole("cell").allTextContents()).toEqual(["running", "error"]);
});

test("says that there is no page at an address", async () => {
	const page = await service.open("#/usage/today");
	await page.getByRole("heading", { name: "Not found" }).waitFor();
	await page.getByText("The console has no page at this address.").waitFor();
	await expect.poll(() => page.title()).toBe("Not found · Conversations");
	await expectAccessible(page);
	await page.getByRole("link", { name: "All conversations" }).click();
	await page.getByText("Fix the flaky test in checkout").first().waitFor();
});

test("the header switches days and times to UTC; the address and the links keep it", async () => {
	const page = await service.open("#/conversations?created=today", {
		timezoneId: "Pacific/Auckland",
	});
	await page.getByRole("button", { name: "Created: today" }).waitFor();
	const title = () => page.locator(".list .line time").first().getAttribute("title");
	await page.locator(".list:not(.stale) .line time").first().waitFor();
	expect(await title()).not.toContain("UTC");
	await page.getByRole("button", { name: "time: local" }).click();
	await expect.poll(() => hashOf(page)).toBe("#/conversations?created=today&zone=utc");
	await expect.poll(title).toContain("UTC");
	await page.getByRole("link", { name: "Usage" }).click();
	await expect.poll(() => hashOf(page)).toBe("#/usage?zone=utc");
	await page.getByRole("row", { name: /^All/ }).waitFor();
	await page.keyboard.press("1");
	await expect.poll(() => hashOf(page)).toBe("#/conversations?zone=utc");
	await page.getByRole("button", { name: "time: UTC" }).click();
	await expect.poll(() => hashOf(page)).toBe("#/conversations");
	await page.getByLabel("Active").selectOption("last 7 days");
	await expect.poll(() => hashOf(page)).toBe("#/conversations?activity=last_7_days");
});

test("every page that is open while the service stops shows what is new when it is back, without a click", async () => {
	const env = { HTTP_ADDRESS: `127.0.0.1:${await freePort()}`, ACCESS_KEYS: `build-07:${KEY}:ingest+read` };
	await using first = await startTestService(env);
	await postSample(first.http, sampleWith({}));
	const page = await service.open(undefined, {}, KEY, first.http);
	const window = page.context();
	// A window of its own, whose clock the test puts forward: this page reads its report once a minute.
	const usage = await service.open(undefined, {}, KEY, first.http);
	await usage.clock.install();
	await goTo(usage, "#/usage");
	await usage.getByRole("row", { name: /^All/ }).waitFor();
	const pages = [
		["#/conversations", "Arrived later"],
		["#/senders", "build-07"],
		["#/about", "Point an agent server here"],
		["#/search?query=coupon", "2 conversations"],
		[`#/compare?a=${sampleId(1)}&b=${sampleId(2)}`, "Arrived later"],
		[`#/conversations/${sampleId(1)}`, "Said later"],
	] as const;
	const tabs = await Promise.all(
		pages.map(async ([address]) => {
			const tab = await window.newPage();
			await tab.goto(`${first.http}/${address}`);
			await tab.getByRole("navigation", { name: "Pages" }).waitFor();
			return tab;
		}),
	);
	await tabs[0]?.getByText("Fix the flaky test in checkout").waitFor();
	await tabs.at(-1)?.getByText("LLMContextWindowExceedError").first().waitFor();
	await first.stop();
	for (const tab of [tabs[0], tabs.at(-1)]) await tab?.getByText("not live, reconnecting").waitFor();
	await using second = await first.restart();
	await postSample(second.http, sampleWith({ id: sampleId(2), title: "Arrived later", model: "another-model" }));
	const sample = sampleWith({});
	const more = { ...sample, minutesAgo: 0, events: [...sample.events, said("agent", "Said later")] };
	await post(second.http, `events/${sample.id}`, eventsOf(more).slice(-1));
	await usage.clock.fastForward(60_000);
	await usage.getByRole("main").getByText("another-model").first().waitFor();
	// The search is read again when it is asked for again; all other pages follow by themselves.
	for (const [index, tab] of tabs.entries()) {
		if (pages[index]?.[0].startsWith("#/search")) await tab.reload();
		await tab
			.getByRole("main")
			.getByText(pages[index]?.[1] ?? "")
			.first()
			.waitFor();
	}
}, 240_000);

test("a conversation that is posted while its parent is open appears among its children", async () => {
	const page = await service.open();
	// The page reads its relatives every 5 seconds of a clock that the test puts forward.
	await page.clock.install();
	await goTo(page, `#/conversations/${sampleId(5)}`);
	await page.getByRole("heading", { name: "Add a dark mode to the settings" }).waitFor();
	const facts = page.getByRole("complementary", { name: "Facts" });
	await facts.getByText("Started").waitFor();
	expect(await facts.getByText("Children").count()).toBe(0);
	await postSample(service.http, sampleWith({ id: sampleId(802), title: "Find the colours", parent: sampleId(5) }));
	await page.clock.fastForward(5_000);
	await facts.getByRole("link", { name: "Find the colours" }).waitFor();
	await postSample(service.http, sampleWith({ id: sampleId(803), title: "Another way", forkedFrom: sampleId(5) }));
	await page.clock.fastForward(5_000);
	await facts.getByRole("link", { name: "Another way" }).waitFor();
});
