import { fromBinary, toBinary } from "@bufbuild/protobuf";
import type { Page } from "playwright-core";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { SearchConversationsResponseSchema } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { object } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { DESKTOP, PHONE } from "./browser.ts";
import { called, failed, post, postSample, recordOf, type Sample, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessibleAndFit, goTo, hashOf } from "./visit.ts";

const RED = "key-of-a-reader-and-sender-of-red";
const RPC = "**/conversations.v1.ConversationSearchService/SearchConversations";

function conversation(
	number: number,
	title: string | null,
	events: Sample["events"],
	more: Partial<Sample> = {},
): Sample {
	const own = { id: sampleId(number), title, events, status: "finished", costs: [0.5], minutesAgo: 9, tags: {} };
	return sampleWith({ ...own, ...more });
}

const LOG = Array.from({ length: 300 }, (_, line) => `line ${line} of the log`).join("\n");

/** A tool's result that says it has failed. */
const [FAILING, FAILURE] = called("terminal", "make deploy", `${LOG}\nquokka is not reachable`, 3, 77);
const EDIT = {
	...{ kind: "ActionEvent", source: "agent", tool_name: "file_editor", tool_call_id: "edit", thought: [] },
	action: { kind: "FileEditorAction", command: "view", path: "src/Wombat.ts", file_text: null },
};

const EVIL = "<img src=x onerror=document.title='injected'><script>1</script>";

const CONVERSATIONS: readonly Sample[] = [
	conversation(
		1,
		"Fix the login page",
		[
			said("user", "The login fails with 😀 after a café visit: 登录页面 cannot be opened"),
			...called("terminal", "grep -rn login src/app.ts", "nothing", 1, 1),
			failed("LoginError", "The login was refused."),
		],
		{ status: "error" },
	),
	conversation(2, "Login by passkey", [said("agent", "The login by passkey works.")], { model: "model-fast-5" }),
	conversation(3, null, [said("user", "an example without a title, with Łódź and crème brûlée")], { kind: "ACPAgent" }),
	conversation(4, "Deploy", [
		FAILING ?? said("user", ""),
		{
			after: 1,
			members: { ...FAILURE?.members, observation: { ...object(FAILURE?.members.observation), is_error: true } },
		},
		{ after: 1, members: EDIT },
	]),
	conversation(5, "Long", [
		said("user", `Where is the bandicoot?\n\n${LOG}\n\nAnd the second **bandicoot**?`),
		...Array.from({ length: 1500 }, (_, index) => said("agent", `Message ${index} of many\n\nwith two lines`, 0.1)),
	]),
	conversation(6, EVIL, [said("user", `said ${EVIL}`)]),
];
const MANY = Array.from({ length: 23 }, (_, index) => conversation(100 + index, `Platypus ${index}`, []));

const service = new TestedConsole({
	env: { ACCESS_KEYS: `all:${KEY}:ingest+read,red:${RED}:ingest+read@red` },
	samples: CONVERSATIONS,
});
let page: Page;

beforeAll(async () => {
	for (const one of MANY) await post(service.http, "conversations", recordOf(one));
	await postSample(service.http, conversation(900, "Login of red", [said("user", "the login of red")]), RED);
	// Words of the last event, because titles can be found before the events that came earlier.
	await vi.waitUntil(async () => (await found({ query: '"the login of red"' })).length === 1, { timeout: 60_000 });
	page = await service.open();
});

beforeEach(async () => {
	await goTo(page, "#/about");
	await page.getByText("Point an agent server here").waitFor();
});

/** Returns the ids of the conversations that the JSON search finds. */
async function found(parameters: Record<string, string>): Promise<string[]> {
	const url = `${service.http}/api/v1/search?${new URLSearchParams(parameters)}`;
	const { hits } = object(await (await fetch(url, { headers: { "X-Access-Token": KEY } })).json());
	if (!Array.isArray(hits)) throw new Error(`${url} finds nothing`);
	return hits.map((hit) => String(object(object(hit).summary).id));
}

/** Returns the ids of the conversations that the page shows. */
async function shown(): Promise<string[]> {
	const links = await page.locator(".hits .line:not(.head) .label > a").evaluateAll((all) => all.map(String));
	return links.map((link) => /conversations\/([-0-9a-f]+)/.exec(link)?.[1] ?? link);
}

async function search(parameters: Record<string, string>): Promise<void> {
	await goTo(page, `#/search?${new URLSearchParams(parameters)}`);
}

/** Returns the texts that the timeline marks, and whether the first one can be seen below the header. */
const marked = async (): Promise<{ texts: string[]; isSeen: boolean }> =>
	JSON.parse(
		await page.evaluate(`(() => {
			const ranges = [...(CSS.highlights.get("found") ?? [])];
			const box = ranges[0]?.getBoundingClientRect();
			const covered = document.querySelector("header.top").getBoundingClientRect().bottom;
			const isSeen = box !== undefined && box.height > 0 && box.top >= covered && box.bottom <= innerHeight;
			return JSON.stringify({ texts: ranges.map(String), isSeen });
		})()`),
	);

test("/ leads to the box, and Enter to hits with marked places", async () => {
	await page.keyboard.press("/");
	const focused = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.tagName";
	await expect.poll(() => page.evaluate(focused)).toBe("Search in all conversations");
	await page.keyboard.press("Escape");
	await expect.poll(() => page.evaluate(focused)).toBe("BODY");
	await page.keyboard.press("/");
	await page.keyboard.type("login / ");
	await page.keyboard.press("Enter");
	await expect.poll(shown).toEqual(await found({ query: "login" }));
	await expect.poll(() => hashOf(page)).toBe("#/search?query=login+%2F");
	const hit = page.getByRole("rowgroup").filter({ hasText: "Fix the login page" });
	const row = hit.getByRole("row").first();
	expect(await row.getByRole("cell").allTextContents()).toEqual([
		"✕error",
		expect.stringContaining("Fix the login page"),
		"Agentmodel-large-4",
		"$0.50",
		"129.5K",
		expect.stringMatching(/^\d+ min ago$/),
		"all",
	]);
	expect(await row.locator("mark").allTextContents()).toEqual(["login"]);
	const places = hit.locator(".place");
	expect(await places.allTextContents()).toEqual([
		expect.stringMatching(/^errorThe login was refused\.event [\d,]+$/),
		expect.stringMatching(/^commandgrep -rn login src\/app\.tsevent [\d,]+$/),
	]);
});

test("the places of a query are marked by characters", async () => {
	for (const [query, marks] of [
		["登录", ["登录"]],
		['"login fails" opened', ["login fails", "opened"]],
		["lodz CREME", ["Łódź", "crème"]],
	] as const) {
		await search({ query });
		await expect.poll(() => page.locator(".place").first().locator("mark").allTextContents()).toEqual(marks);
	}
});

describe("a place opens the timeline at its event, with its words in view and marked:", () => {
	test.each([
		["quokka", "an error within the folded output of an action", "Terminal", ["quokka"]],
		["wombat", "the file name of an action", "View", ["Wombat"]],
		["second bandicoot", "a long message far above", "User", ["bandicoot", "second", "bandicoot"]],
	])("%j, %s", async (query, _, title, texts) => {
		await search({ query });
		await page.locator(".place").first().click();
		const step = page.locator("article.step.chosen");
		await expect.poll(() => step.locator("header strong").textContent()).toBe(title);
		await expect.poll(marked).toEqual({ texts, isSeen: true });
		await expect.poll(() => step.getByRole("button", { name: /^show all/ }).count()).toBe(0);
		await page.evaluate("document.activeElement.blur()");
		await page.keyboard.press("Escape");
		await page.locator(".place").first().waitFor();
	});

	test("the words of the step before are marked when k chooses it, and the header does not cover it", async () => {
		const covered = async () => {
			const top = (await page.locator("header.top").boundingBox())?.height ?? 0;
			return ((await page.locator("article.step.chosen").boundingBox())?.y ?? -1) < top;
		};
		await search({ query: '"100 of many"' });
		await page.locator(".place").first().click();
		for (let number = 100; number > 85; number -= 1) {
			await page.locator("article.step.chosen", { hasText: `Message ${number} of many` }).waitFor();
			await page.keyboard.press("k");
		}
		await expect.poll(covered).toBe(false);
		await goTo(page, String(await page.evaluate("location.hash")).replace(/query=.*/, "query=many*"));
		for (let number = 85; number > 82; number -= 1) {
			await page.locator("article.step.chosen", { hasText: `Message ${number} of many` }).waitFor();
			await expect.poll(marked).toEqual({ texts: ["many"], isSeen: true });
			await page.keyboard.press("k");
		}
	});

	test("an event that was removed is missed", async () => {
		await goTo(page, `#/conversations/${sampleId(1)}?event=999999`);
		await page.getByText("The timeline has no event 999999").waitFor();
	});
});

test("the address has the filter and the order, and more results follow", async () => {
	const parameters = { query: "login -by", execution_status: "error", model: "model-large-4", title_contains: "page" };
	expect(await found(parameters)).toEqual([sampleId(1)]);
	await search(parameters);
	await expect.poll(shown).toEqual([sampleId(1)]);
	await search({ query: "login", owner: "red" });
	await expect.poll(shown).toEqual([sampleId(900)]);
	await page.getByRole("button", { name: "error" }).click();
	await page.getByText("Nothing found").waitFor();
	await page.getByRole("button", { name: "Remove all filters" }).click();
	await expect.poll(shown).toEqual(await found({ query: "login" }));
	await page.getByLabel("Order").selectOption("relevance");
	await expect.poll(shown).toEqual(await found({ query: "login", order_by: "relevance" }));
	await expect.poll(() => hashOf(page)).toBe("#/search?query=login&order_by=relevance");
	await search({ query: "platypus" });
	await page.getByText("The first 20 conversations").waitFor();
	await page.getByRole("button", { name: "More results" }).click();
	await page.getByText("23 conversations", { exact: true }).waitFor();
	expect(await shown()).toEqual(await found({ query: "platypus" }));
	expect(await page.getByRole("button", { name: "More results" }).count()).toBe(0);
});

test("who comes back from a place finds all pages, the chosen place and the scrolled page again, until searching anew", async () => {
	await search({ query: "platypus" });
	await page.getByText("The first 20 conversations").waitFor();
	await page.getByRole("button", { name: "More results" }).click();
	await page.getByText("23 conversations", { exact: true }).waitFor();
	for (let number = 0; number < 23; number += 1) await page.keyboard.press("j");
	const chosen = page.locator(".line.chosen");
	const title = page.getByRole("link", { name: /^Platypus \d+$/ }).last();
	await expect.poll(() => chosen.getByRole("link").textContent()).toBe(await title.textContent());
	// The page hears of a scroll with the next frame.
	const scrolled = await page.evaluate("new Promise((resolve) => requestAnimationFrame(() => resolve(scrollY)))");
	expect(scrolled).toBeGreaterThan(100);
	let searches = 0;
	await page.route(RPC, async (route) => {
		searches += 1;
		await route.continue();
	});
	await page.keyboard.press("Enter");
	await page.getByRole("heading", { name: "Platypus" }).waitFor();
	await page.goBack();
	await page.getByText("23 conversations", { exact: true }).waitFor();
	await expect.poll(() => page.evaluate("scrollY")).toBe(scrolled);
	await expect.poll(() => chosen.getByRole("link").textContent()).toBe(await title.textContent());
	expect(searches).toBe(0);
	await page.goForward();
	await page.getByRole("heading", { name: "Platypus" }).waitFor();
	const box = page.getByRole("searchbox", { name: "Search in all conversations" });
	await box.fill("platypus");
	await box.press("Enter");
	await page.getByText("The first 20 conversations").waitFor();
	expect(searches).toBe(1);
	await page.unroute(RPC);
});

test("j, k and Enter choose and open a hit or a place, and Esc leaves", async () => {
	await search({ query: "login" });
	await page.locator(".place").first().waitFor();
	for (const [key, chosen] of [
		["j", ".line.chosen"],
		["j", ".place.chosen"],
		["k", ".line.chosen"],
		["j", ".place.chosen"],
		["Enter", "article.step.chosen"],
	] as const) {
		await page.keyboard.press(key);
		await page.locator(chosen).waitFor();
		expect(await page.locator(".chosen").count()).toBe(1);
	}
	await page.keyboard.press("Escape");
	await page.locator(".place").first().waitFor();
	await page.keyboard.press("Escape");
	await page.getByRole("table", { name: "Conversations" }).waitFor();
});

test("says what is wrong with a query, and how to search", async () => {
	await search({ query: '"open' });
	await page.getByText("The query has a quotation mark without a second one.").waitFor();
	await page.getByText("words that begin like this").waitFor();
	await search({ query: "nowhere" });
	await page.getByText("Nothing found").waitFor();
});

test("shows no answer of an older query", async () => {
	let release = (): void => undefined;
	const released = new Promise<void>((resolve) => {
		release = resolve;
	});
	let isFirst = true;
	const late = Promise.withResolvers<void>();
	await page.route(RPC, async (route) => {
		if (!isFirst) return await route.continue();
		isFirst = false;
		const response = await route.fetch();
		await released;
		await route.fulfill({ response }).catch(() => undefined);
		late.resolve();
	});
	const box = page.getByRole("searchbox", { name: "Search in all conversations" });
	await box.fill("platypus");
	await box.press("Enter");
	await page.getByText("Searching…").waitFor();
	await box.fill("passkey");
	await box.press("Enter");
	await expect.poll(shown).toEqual([sampleId(2)]);
	release();
	await late.promise;
	expect(await shown()).toEqual([sampleId(2)]);
	expect(await box.inputValue()).toBe("passkey");
	await page.unroute(RPC);
});

test("says up to which event the index reaches when it lags, and searches again", async () => {
	await page.route(RPC, async (route) => {
		const response = await route.fetch();
		const message = fromBinary(SearchConversationsResponseSchema, await response.body());
		message.indexedThroughSequence = 7n;
		await route.fulfill({ response, body: Buffer.from(toBinary(SearchConversationsResponseSchema, message)) });
	});
	await search({ query: "passkey" });
	await page.getByText(/^The index reaches up to event 7 of 1,5\d\d\./).waitFor();
	await page.unroute(RPC);
	await page.getByRole("button", { name: "Search again" }).click();
	await page.getByText(/^The index reaches/).waitFor({ state: "detached" });
	await expect.poll(shown).toEqual([sampleId(2)]);
	// The same words again find what has come since.
	await post(service.http, "conversations", {
		...recordOf(conversation(5, "passkey too", [])),
		updated_at: new Date().toISOString(),
	});
	await expect.poll(() => found({ query: "passkey" })).toHaveLength(2);
	const box = page.getByRole("searchbox", { name: "Search in all conversations" });
	await box.press("Enter");
	await expect.poll(shown).toEqual(await found({ query: "passkey" }));
});

test("what others wrote is only text", async () => {
	await search({ query: "onerror", sender: EVIL });
	await page.getByRole("button", { name: EVIL }).click();
	const hit = page.getByRole("rowgroup").filter({ has: page.locator(".place") });
	expect(await hit.locator(".place .snippet").textContent()).toBe(`said ${EVIL}`);
	expect(await hit.locator(".label > a").textContent()).toBe(EVIL);
	expect(await page.locator("img, body script").count()).toBe(0);
	await search({ query: `"${EVIL}` });
	await page.getByText("This cannot be searched").waitFor();
	expect(await page.locator("img, body script").count()).toBe(0);
});

test("has no violation of WCAG 2.2 AA in both themes, and fits a phone", async () => {
	for (const [colorScheme, viewport, query, text] of [
		["light", DESKTOP, "login", "passkey works"],
		["dark", DESKTOP, "login", "passkey works"],
		["dark", DESKTOP, '"open', "This cannot be searched"],
		["light", PHONE, "quokka", "is not reachable"],
	] as const) {
		await page.emulateMedia({ colorScheme });
		await page.setViewportSize(viewport);
		await search({ query });
		await page.getByRole("main").getByText(text).first().waitFor();
		await expectAccessibleAndFit(page);
	}
});
