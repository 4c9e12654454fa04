import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePort } from "../support/free-port.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TestBrowser } from "./browser.ts";
import { eventsOf, post, postSample, recordOf, SAMPLES, type Sample, said, sampleId } from "./samples.ts";
import { expectAccessible, goTo, visitWithKey } from "./visit.ts";

/** The console in browsers with another language or time zone, and beside a service that goes away and comes back. */

let browser: TestBrowser;
let service: TestService;

/** Returns the first sample with other members. */
function sampleWith(members: Partial<Sample>): Sample {
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	return { ...sample, ...members };
}

beforeAll(async () => {
	browser = await TestBrowser.start({ LANG: "C", LC_ALL: "C" });
	service = await startTestService();
	for (const sample of SAMPLES) await postSample(service.http, sample);
});

afterAll(async () => {
	await browser?.[Symbol.asyncDispose]();
	await service?.[Symbol.asyncDispose]();
});

const CHECKOUT = `#/conversations/${sampleId(1)}`;

test("draws its charts where the language of the browser is no BCP 47 tag", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, CHECKOUT);
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
	expect(faults).toEqual([]);
	await page.context().close();
});

test("shows the timeline and the numbers when the code of the charts cannot be loaded", async () => {
	const { page, faults } = await visitWithKey(browser, service.http, "#/about");
	await page.route("**/assets/drawn-chart-*", (route) => route.abort());
	await goTo(page, CHECKOUT);
	await page.locator("article.step").first().waitFor();
	await expect.poll(() => page.getByText("The chart cannot be loaded now.").count()).toBe(3);
	await expectAccessible(page);
	expect(faults).toEqual([]);
	await page.context().close();
});

test("an error in the console is named, and is not put on the service", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/about");
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

// Each one waits for seconds until its page asks again.
describe.concurrent("a page that is opened first while the service is away is shown without a click when it is back", () => {
	test.each([
		["#/usage", "model-large-4"],
		["#/senders", "build-07"],
		["#/about", "Point an agent server here"],
		["#/search?query=coupon", "1 conversation"],
		[CHECKOUT, "LLMContextWindowExceedError"],
	])("%s", async (address, text) => {
		const env = {
			HTTP_ADDRESS: `127.0.0.1:${await freePort()}`,
			ACCESS_KEYS: `build-07:${KEY}:ingest+read`,
		};
		await using first = await startTestService(env);
		await postSample(first.http, sampleWith({}));
		const { page } = await visitWithKey(browser, first.http);
		await page.getByText("Fix the flaky test in checkout").waitFor();
		await first.stop();
		await goTo(page, address);
		await page.getByRole("heading", { name: "The service does not answer" }).waitFor();
		await using _ = await first.restart();
		await page.getByRole("main").getByText(text).first().waitFor();
		expect(new URL(page.url()).hash).toBe(address);
		await page.context().close();
	});
});

test("a page that was opened while the service was away is shown without a click when it is back", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/senders");
	await page.getByRole("table").first().waitFor();
	for (const [address, method, text] of [
		["#/about", "ServiceInfoService/GetServiceInfo", "Point an agent server here"],
		["#/conversations", "ConversationService/ListConversations", "Fix the flaky test in checkout"],
		[CHECKOUT, "ConversationService/ListConversations", "LLMContextWindowExceedError"],
		["#/usage", "ConversationReportService/ReportUsage", "model-large-4"],
		[CHECKOUT, "ConversationGapService/ListConversationGaps", "LLMContextWindowExceedError"],
	] as const) {
		await page.route(`**/conversations.v1.${method}`, (route) => route.abort());
		await goTo(page, address);
		await page.getByText("The service does not answer").waitFor();
		await page.unroute(`**/conversations.v1.${method}`);
		await page.getByRole("main").getByText(text).first().waitFor();
	}
	// What was read before the failure is not there twice.
	await page.getByRole("tab", { name: "History 2", exact: true }).waitFor();
	await page.context().close();
});

test("two versions are compared again without a click when the service is back", async () => {
	const { page } = await visitWithKey(browser, service.http, CHECKOUT);
	await page.locator("article.step").first().waitFor();
	await page.route("**/api/v1/conversations/*?sequence=*", (route) => route.abort());
	await page.keyboard.press("h");
	await page.getByText("The service does not answer").waitFor();
	await page.unroute("**/api/v1/conversations/*?sequence=*");
	const row = page.getByRole("region", { name: "Two versions" }).getByRole("row", { name: /\/execution_status/ });
	await expect.poll(() => row.getByRole("cell").allTextContents()).toEqual(["running", "error"]);
	await page.context().close();
});

test.each(["#/conversation", "#/usage/today", `${CHECKOUT}/events`])(
	"says that there is no page at %s",
	async (address) => {
		const { page } = await visitWithKey(browser, service.http, address);
		await page.getByRole("heading", { name: "Not found" }).waitFor();
		await page.getByText("The console has no page at this address.").waitFor();
		await expect.poll(() => page.title()).toBe("Not found · Conversations");
		await expectAccessible(page);
		await page.getByRole("link", { name: "All conversations" }).click();
		await page.getByText("Fix the flaky test in checkout").first().waitFor();
		await page.context().close();
	},
);

describe("a day of a filter", () => {
	/** 00:30 of the 2nd of July in Berlin is 22:30 of the day before in UTC. */
	const night: Sample = sampleWith({
		id: sampleId(801),
		title: "Begun in the night",
		minutesAgo: 0,
		costs: [],
		events: [said("user", "Begin", 0)],
	});

	beforeAll(async () => {
		const now = Date.parse("2026-07-01T22:30:00Z");
		await post(service.http, "conversations", recordOf(night, now));
		await post(service.http, `events/${night.id}`, eventsOf(night, now));
	});

	test.each([
		["Europe/Berlin", "created_from=2026-07-02&created_to=2026-07-03", true],
		["Europe/Berlin", "created_from=2026-07-01&created_to=2026-07-02", false],
		["Europe/Berlin", "activity_from=2026-07-02&activity_to=2026-07-03", true],
		["UTC", "created_from=2026-07-02&created_to=2026-07-03", false],
		["UTC", "created_from=2026-07-01&created_to=2026-07-02", true],
		["Europe/Berlin", "created_from=2026-07-01T22:30:00Z&created_to=2026-07-01T22:30:01Z", true],
		["Europe/Berlin", "created=2026-07-02", true],
		["Europe/Berlin", "created=2026-07-01", false],
		["Europe/Berlin", "created=2026-07-01&zone=utc", true],
		["Europe/Berlin", "created=2026-07-02&zone=utc", false],
		["Europe/Berlin", "activity=2026-07-01..2026-07-02&created=..2026-07-02", true],
		["Europe/Berlin", "activity=yesterday&created=2026-07-02", false],
	])("is one in %s: %s", async (timezoneId, parameters, isFound) => {
		const { page } = await visitWithKey(browser, service.http, `#/conversations?${parameters}`, { timezoneId });
		await page.getByText(isFound ? (night.title ?? "") : "No conversation matches").waitFor();
		await page.context().close();
	});

	test("is one in Berlin for the CSV of the usage, too", async () => {
		const { page } = await visitWithKey(
			browser,
			service.http,
			"#/usage?range=2026-07-01..&activity_from=2026-07-02&silent_minutes=5",
			{ timezoneId: "Europe/Berlin" },
		);
		await page.getByLabel("Range", { exact: true }).waitFor();
		const asked = page.waitForRequest(/\/api\/v1\/usage\?/);
		await page.keyboard.press("c");
		const { searchParams } = new URL((await asked).url());
		expect([searchParams.get("from"), searchParams.get("activity_from"), searchParams.has("silent_minutes")]).toEqual([
			"2026-06-30T22:00:00.000Z",
			"2026-07-01T22:00:00.000Z",
			false,
		]);
		await page.context().close();
	});

	test.each(["2026-02-30", "2026-13-01", "2026-07", "2026-07-02T25:00:00Z"])("is not %s", async (value) => {
		const { page } = await visitWithKey(browser, service.http);
		const field = page.getByRole("combobox", { name: /^Filter/ });
		await field.fill(`created_from:${value}`);
		await page.keyboard.press("Enter");
		await expect
			.poll(() => page.evaluate("document.querySelector('input[list]').validationMessage"))
			.toBe("created_from must be a day or a time such as yesterday, 2026-11-23 or 2026-11-23T08:00:00Z");
		await page.context().close();
	});
});

test("the header switches days and times to UTC; the address and the links keep it", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/conversations?created=today", {
		timezoneId: "Pacific/Auckland",
	});
	await page.getByRole("button", { name: "Created: today" }).waitFor();
	const title = () => page.locator(".list .line time").first().getAttribute("title");
	await page.locator(".list:not(.stale) .line time").first().waitFor();
	expect(await title()).not.toContain("UTC");
	await page.getByRole("button", { name: "time: local" }).click();
	await expect.poll(() => new URL(page.url()).hash).toBe("#/conversations?created=today&zone=utc");
	await expect.poll(title).toContain("UTC");
	await page.getByRole("link", { name: "Usage" }).click();
	await expect.poll(() => new URL(page.url()).hash).toBe("#/usage?zone=utc");
	await page.getByRole("row", { name: /^All/ }).waitFor();
	await page.keyboard.press("1");
	await expect.poll(() => new URL(page.url()).hash).toBe("#/conversations?zone=utc");
	await page.getByRole("button", { name: "time: UTC" }).click();
	await expect.poll(() => new URL(page.url()).hash).toBe("#/conversations");
	await page.getByLabel("Active").selectOption("last 7 days");
	await expect.poll(() => new URL(page.url()).hash).toBe("#/conversations?activity=last_7_days");
	await page.context().close();
});

test("every page that is open while the service stops shows what is new when it is back, without a click", async () => {
	const env = { HTTP_ADDRESS: `127.0.0.1:${await freePort()}`, ACCESS_KEYS: `build-07:${KEY}:ingest+read` };
	await using first = await startTestService(env);
	await postSample(first.http, sampleWith({}));
	const { page } = await visitWithKey(browser, first.http);
	const window = page.context();
	// A window of its own, whose clock the test puts forward: this page reads its report once a minute.
	const { page: usage } = await visitWithKey(browser, first.http);
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
	await usage.context().close();
	// The search is read again when it is asked for again; all other pages follow by themselves.
	for (const [index, tab] of tabs.entries()) {
		if (pages[index]?.[0].startsWith("#/search")) await tab.reload();
		await tab
			.getByRole("main")
			.getByText(pages[index]?.[1] ?? "")
			.first()
			.waitFor();
	}
	await window.close();
}, 240_000);

test("a chart whose code could not be loaded is drawn when it can", async () => {
	const { page } = await visitWithKey(browser, service.http, "#/about");
	await page.route("**/assets/drawn-chart-*.js", (route) => route.abort());
	await goTo(page, "#/usage");
	await page.getByText("The chart cannot be loaded now.").waitFor();
	await page.unroute("**/assets/drawn-chart-*.js");
	await page.locator(".chart canvas").waitFor();
	await page.context().close();
});

test("a conversation that is posted while its parent is open appears among its children", async () => {
	const { page } = await visitWithKey(browser, service.http);
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
	await page.context().close();
});
