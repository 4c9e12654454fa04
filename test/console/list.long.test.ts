import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import {
	ListConversationsRequestSchema,
	ListConversationsResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { object, record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";
import {
	eventsOf,
	failed,
	post,
	postSample,
	recordOf,
	SAMPLES,
	SILENT,
	said,
	sampleId,
	sampleWith,
} from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { goTo, hashOf } from "./visit.ts";

const RED = "key-of-an-agent-server-of-red";
const ERASE = "key-of-a-person-who-erases";
const RED_READER = "key-of-a-person-who-reads-red";

const service = new TestedConsole({
	env: {
		ACCESS_KEYS: `first:${KEY}:ingest+read,third:${RED}:ingest@red,eraser:${ERASE}:read+erase,red:${RED_READER}:read@red`,
	},
	samples: [],
});
let page: Page;

beforeAll(async () => {
	for (const [index, sample] of [...SAMPLES, SILENT].entries())
		await postSample(service.http, sample, index % 3 === 2 ? RED : KEY);
	page = await service.open();
});

const minutesAgo = (minutes: number): string => new Date(Date.now() - minutes * 60_000).toISOString();

/** Returns the ids of the conversations that the page shows, in order. */
async function shown(): Promise<string[]> {
	const links = await page
		.locator(".list:not(.stale) .line:not(.head) .label > a")
		.evaluateAll((all) => all.map(String));
	return links.map((link) => /conversations\/([-0-9a-f]+)/.exec(link)?.[1] ?? link);
}

/** Returns the ids of the conversations that the JSON API lists for the same parameters. */
async function listed(parameters: string): Promise<string[]> {
	const url = `${service.http}/api/v1/conversations?${parameters}`;
	const response = await fetch(url, { headers: { "X-Access-Token": KEY } });
	const { conversations } = object(await response.json());
	if (!Array.isArray(conversations)) throw new Error(`${url} lists nothing`);
	return conversations.map((entry: unknown) => String(object(object(entry).summary).id));
}

async function openList(parameters: string): Promise<void> {
	await goTo(page, `#/conversations?${parameters}`);
}

test("the address selects and orders what the API selects and orders by the same parameters", async () => {
	for (const parameters of [
		"agent_kind=Agent&execution_status=finished&order_by=cost",
		"tag=team:core&tag=repo:billing",
		...["updated", "activity", "created", "cost", "tokens"].map((order) => `order_by=${order}`),
	]) {
		const expected = await listed(parameters);
		await openList(parameters);
		await expect.poll(shown).toEqual(expected);
		await page.getByText(`${expected.length} of ${expected.length}`).waitFor();
	}
	await openList("");
	await page.getByLabel("Order").selectOption("cost");
	await expect.poll(() => hashOf(page)).toBe("#/conversations?order_by=cost");
	// What is not valid has a button, and selects nothing.
	await openList("execution_status=foo&created_from=banana&model=model-deep-4");
	await expect.poll(shown).toEqual(await listed("model=model-deep-4"));
	for (const name of ["Status: foo", "Created from: banana"])
		expect(await page.getByRole("button", { name }).count()).toBe(1);
});

test("a cost and tokens that were not reported are a dash, and come last", async () => {
	const free = {
		usage_to_metrics: { agent: { accumulated_cost: 0, accumulated_token_usage: { prompt_tokens: 0 } } },
	};
	for (const [n, members] of [{}, { stats: free }].entries())
		await post(service.http, "conversations", record({ id: sampleId(301 + n), tags: { free: "yes" }, ...members }));
	await openList("tag_key=free&order_by=cost");
	const lines = page.locator(".list:not(.stale) .line:not(.head)");
	await expect.poll(() => lines.count()).toBe(2);
	const numbers = await lines.evaluateAll((all) =>
		all.map((line) => [...line.querySelectorAll(".number")].slice(0, 2).map((cell) => cell.textContent)),
	);
	expect(numbers).toEqual([
		["$0.00", "0"],
		["–", "–"],
	]);
	await goTo(page, `#/conversations/${sampleId(301)}`);
	const figures = page.locator(".figure");
	await expect.poll(async () => (await figures.allTextContents()).slice(0, 2)).toEqual(["–", "–"]);
});

test("the filter field takes filters of the API and titles, says what is wrong, and suggests values that there are", async () => {
	await openList("");
	const field = page.getByRole("combobox", { name: /^Filter/ });
	for (const [text, parameters] of [
		["execution_status_not: finished", "execution_status_not=finished"],
		["tag:repo:shop", "tag=repo:shop"],
		["model-large: what", "title_contains=model-large: what"],
	] as const) {
		await openList("");
		await field.fill(text);
		await page.keyboard.press("Enter");
		await expect.poll(() => hashOf(page).split("?")[1]).toBe(new URLSearchParams(parameters).toString());
		await expect.poll(shown).toEqual(await listed(parameters));
	}
	await openList("");
	await field.fill("has_error:yes");
	await page.keyboard.press("Enter");
	const fault = () => page.evaluate("document.querySelector('input[list]').validationMessage");
	await expect.poll(fault).toBe("has_error must be true or false");
	expect(hashOf(page)).toBe("#/conversations?");
	await field.fill("has_error:true");
	await page.keyboard.press("Enter");
	await expect.poll(() => hashOf(page)).toBe("#/conversations?has_error=true");
	await openList("");
	await field.focus();
	const suggested = () => page.locator("datalist option").evaluateAll((all) => all.map((one) => one.outerHTML));
	await expect.poll(suggested).toContain('<option value="model:model-deep-4">2</option>');
	// What a browser does when a person chooses a suggestion.
	await page.evaluate(`{
		const field = document.querySelector("input[list]");
		field.value = "model:model-deep-4";
		field.dispatchEvent(new InputEvent("input", { inputType: "insertReplacementText", bubbles: true }));
	}`);
	await expect.poll(shown).toEqual(await listed("model=model-deep-4"));
	await page.getByRole("button", { name: "Model: model-deep-4" }).click();
	await expect.poll(() => hashOf(page)).toBe("#/conversations");
});

test("who comes back from a conversation finds the view, the chosen row and the scrolled page as they were", async () => {
	const address = "#/conversations?order_by=created";
	const viewport = { width: 1280, height: 400 };
	const own = await service.open(address, { viewport });
	const ids = await listed("order_by=created");
	await expect.poll(() => own.getByLabel("Order").inputValue()).toBe("created");
	await own.locator(".list:not(.stale)").waitFor();
	const chosen = async () =>
		/conversations\/([-0-9a-f]+)/.exec((await own.locator(".line.chosen .label > a").getAttribute("href")) ?? "")?.[1];
	await own.keyboard.press("j");
	await expect.poll(chosen).toBe(ids[0]);
	await own.keyboard.press("j");
	await expect.poll(chosen).toBe(ids[1]);
	await own.keyboard.press("Enter");
	await own.getByRole("tab", { name: "Timeline" }).waitFor();
	expect(own.url()).toContain(`/conversations/${ids[1]}`);
	await own.keyboard.press("Escape");
	await expect.poll(chosen).toBe(ids[1]);
	expect(hashOf(own)).toBe(address);
	await own.locator(".list:not(.stale)").waitFor();
	await own.keyboard.press("j");
	await expect.poll(chosen).toBe(ids[2]);
	// The key before may still bring its row into view.
	const scrollSteadily = `new Promise((resolve) => {
		scrollTo(0, 150);
		const wait = (frames) => (frames === 0 ? resolve(scrollY) : requestAnimationFrame(() => wait(frames - 1)));
		wait(10);
	})`;
	await expect.poll(() => own.evaluate(scrollSteadily)).toBe(150);
	await own.keyboard.press("Enter");
	await own.getByRole("tab", { name: "Timeline" }).waitFor();
	await own.goBack();
	await expect.poll(chosen).toBe(ids[2]);
	await expect.poll(() => own.evaluate("scrollY")).toBe(150);
});

test("the chosen conversation stays chosen while others arrive above it", async () => {
	const own = await service.open();
	await own.getByText("live", { exact: true }).waitFor();
	const first = own.locator(".line:not(.head) .label > a").first();
	const before = await first.getAttribute("href");
	await own.keyboard.press("j");
	const chosen = own.locator(".line.chosen .label > a");
	await expect.poll(() => chosen.getAttribute("href")).toBe(before);
	await post(service.http, "conversations", recordOf(sampleWith({ id: sampleId(601), title: "Arrived above" })));
	await expect.poll(() => first.textContent()).toBe("Arrived above");
	expect(await chosen.getAttribute("href")).toBe(before);
});

test("another key does not go on with the list of the key before", async () => {
	const own = await service.open("#/conversations?title_contains=e");
	const titles = own.locator(".list:not(.stale) .line:not(.head) .label > a");
	await expect.poll(() => titles.count()).toBeGreaterThan(3);
	await own.evaluate(`location.hash = "#key=${RED_READER}"`);
	await own.getByRole("button", { name: "Use the new key" }).click();
	await expect.poll(() => titles.count()).toBe((await listed("owner=red")).length);
});

test("the buttons agree with CountConversations and with the list", async () => {
	const rest = "agent_kind=Agent";
	const headers = { "X-Access-Token": KEY };
	const url = `${service.http}/api/v1/conversations/counts?group_by=status&${rest}`;
	const { total } = object(await (await fetch(url, { headers })).json());
	// A list that was open before counts rarely on a busy machine; a new one counts at once.
	await openList("order_by=cost");
	await expect.poll(() => page.getByLabel("Order").inputValue()).toBe("cost");
	await openList(`${rest}&execution_status=error`);
	const buttons = page.getByRole("group", { name: "Status" });
	await expect.poll(() => buttons.getByRole("button", { name: /^all/ }).textContent()).toBe(`all ${total}`);
	const silent = `execution_status=running&execution_status=waiting_for_confirmation&activity_to=${minutesAgo(10)}`;
	for (const [word, parameters] of [
		["running", "execution_status=running"],
		["waiting", "execution_status=waiting_for_confirmation"],
		["deleting", "execution_status=deleting"],
		["silent", silent],
	] as const) {
		const expected = await listed(`${rest}&${parameters}`);
		const button = buttons.getByRole("button", { name: new RegExp(`^${word}`) });
		await expect.poll(() => button.locator("strong").textContent()).toBe(String(expected.length));
		await button.click();
		await expect.poll(shown).toEqual(expected);
	}
});

test("a view is kept under a name in the browser, opened by it, and forgotten", async () => {
	await openList("agent_kind=ACPAgent&order_by=cost");
	await expect.poll(shown).toEqual(await listed("agent_kind=ACPAgent&order_by=cost"));
	page.once("dialog", (dialog) => void dialog.accept("Dear helpers"));
	const views = page.getByLabel("Saved views");
	await views.selectOption("Save this view…");
	await expect.poll(() => views.inputValue()).toBe("Dear helpers");
	await openList("");
	await expect.poll(() => views.inputValue()).toBe("");
	await page.reload();
	await views.selectOption("Dear helpers");
	await expect.poll(shown).toEqual(await listed("agent_kind=ACPAgent&order_by=cost"));
	await expect.poll(() => hashOf(page)).toBe("#/conversations?agent_kind=ACPAgent&order_by=cost");
	await views.selectOption("Forget “Dear helpers”");
	await expect.poll(() => views.locator("option").allTextContents()).toEqual(["View", "Save this view…"]);
});

describe("while only events arrive, the list", () => {
	/** Posts a conversation whose record of 40 minutes ago never changes, and returns what posts an event of now. */
	async function quiet(number: number) {
		const events = [said("user", `Start of ${number}`)];
		const title = `Quiet ${number}`;
		const sample = sampleWith({ id: sampleId(number), title, status: "running", costs: [], minutesAgo: 40, events });
		await postSample(service.http, sample);
		return async (event: (typeof events)[number]): Promise<void> => {
			const now = { ...sample, minutesAgo: 0, events: [...events, event] };
			await post(service.http, `events/${sample.id}`, eventsOf(now).slice(1));
		};
	}

	test("moves a conversation to its place by activity, with its last message", async () => {
		const happens = await quiet(401);
		await openList("order_by=activity");
		const row = page.getByRole("row", { name: /Quiet 401/ });
		await row.getByText("40 min ago").waitFor();
		expect((await shown())[0]).not.toBe(sampleId(401));
		await happens(said("agent", "Nobody posted a record with this"));
		await row.getByText("Nobody posted a record with this").waitFor();
		await expect.poll(async () => (await shown())[0]).toBe(sampleId(401));
		await expect.poll(shown).toEqual(await listed("order_by=activity"));
	});

	test("takes a conversation in, and leaves it out, when its events make it meet the filter or not", async () => {
		const fails = await quiet(403);
		await openList("has_error=true");
		await expect.poll(shown).toEqual([sampleId(1)]);
		await fails(failed("LLMTimeoutError", "The model did not answer."));
		await expect.poll(shown).toEqual([sampleId(403), sampleId(1)]);
		await openList("execution_status=running&silent_minutes=10&title_contains=Quiet 404");
		const goesOn = await quiet(404);
		await expect.poll(shown).toEqual([sampleId(404)]);
		await goesOn(said("agent", "I go on."));
		await page.getByText("No conversation matches").waitFor();
	});
});

async function erase(number: number): Promise<void> {
	const response = await fetch(`${service.http}/api/v1/conversations/${sampleId(number)}`, {
		method: "DELETE",
		headers: { "X-Access-Token": ERASE },
	});
	expect(await response.json()).toEqual({ erased: 1 });
}

test("an erased conversation leaves the list, which is not read again and again", async () => {
	for (const [number, title] of [
		[501, "Stays"],
		[502, "Is erased"],
	] as const)
		await postSample(service.http, sampleWith({ id: sampleId(number), title }));
	let opened = 0;
	page.on("request", (request) => {
		const body = request.postDataBuffer();
		if (!request.url().endsWith("/ListConversations") || body === null) return;
		if (fromBinary(ListConversationsRequestSchema, body).filter?.titleContains === "s") opened += 1;
	});
	await openList("title_contains=s");
	await expect.poll(async () => (await shown()).slice(0, 2)).toEqual([sampleId(502), sampleId(501)]);
	await page.getByText("live", { exact: true }).waitFor();
	expect(opened).toBe(1);
	await erase(502);
	await expect.poll(async () => (await shown())[0]).toBe(sampleId(501));
	// It follows what comes after the erasure, which is newer than every conversation that is left.
	await postSample(service.http, sampleWith({ id: sampleId(506), title: "Arrives after the erasure" }));
	await expect.poll(async () => (await shown()).slice(0, 2)).toEqual([sampleId(506), sampleId(501)]);
	expect(opened).toBe(2);
});

test("a list that cannot be read again after an erasure follows again once the service answers", async () => {
	await postSample(service.http, sampleWith({ id: sampleId(504), title: "Is erased while the list fails" }));
	const own = await service.open("#/conversations?title_contains=list");
	await own.getByText("Is erased while the list fails").waitFor();
	await own.getByText("live", { exact: true }).waitFor();
	await own.route("**/ListConversations", (route) => route.abort());
	await erase(504);
	await own.getByRole("heading", { name: "The service does not answer" }).waitFor();
	await own.unroute("**/ListConversations");
	await expect.poll(() => own.getByText("Is erased while the list fails").count()).toBe(0);
	await own.getByText("live", { exact: true }).waitFor();
	await postSample(service.http, sampleWith({ id: sampleId(505), title: "Arrives when the list follows again" }));
	await own.getByText("Arrives when the list follows again").waitFor();
});

test("the open page of a conversation that is erased shows it no longer", async () => {
	const id = sampleId(503);
	await postSample(service.http, sampleWith({ id, title: "Is erased while it is open" }));
	const own = await service.open(`#/conversations/${id}`);
	await own.getByRole("heading", { name: "Is erased while it is open" }).waitFor();
	await own.getByText("live", { exact: true }).waitFor();
	await erase(503);
	await own.getByRole("heading", { name: "Not found" }).waitFor();
	await expect.poll(() => own.getByText("Fix the flaky test").count()).toBe(0);
	await expect.poll(() => own.getByText("Is erased while it is open").count()).toBe(0);
});

test("100,000 conversations scroll to the end, and only the rows in view are elements", async () => {
	const COUNT = 100_000;
	// What other tests posted and erased is not part of this list.
	await using empty = await startTestService();
	const long = await service.open("#/about", {}, KEY, empty.http);
	// Storing as many would take minutes on a busy machine; bench/benchmarks/console.ts does.
	await long.route("**/conversations.v1.ConversationService/ListConversations", async (route) => {
		const { pageSize, pageToken } = fromBinary(
			ListConversationsRequestSchema,
			route.request().postDataBuffer() ?? new Uint8Array(),
		);
		const from = Number(pageToken);
		const to = Math.min(from + pageSize, COUNT);
		const conversations = Array.from({ length: to - from }, (_, index) => ({
			summary: {
				id: sampleId(from + index),
				title: `Number ${from + index}`,
				executionStatus: ConversationExecutionStatus.IDLE,
			},
		}));
		const response = { conversations, nextPageToken: to === COUNT ? "" : String(to) };
		const body = toBinary(ListConversationsResponseSchema, create(ListConversationsResponseSchema, response));
		await route.fulfill({ contentType: "application/proto", body: Buffer.from(body) });
	});
	await goTo(long, "#/conversations");
	const rows = long.locator(".list .line:not(.head)");
	await long.getByText("Number 0", { exact: true }).waitFor();
	const most = await rows.count();
	expect(most).toBeLessThan(60);
	// To the end again and again, until all pages are loaded. Keys would scroll smoothly, which takes four times as long.
	await long.evaluate(`new Promise((resolve) => {
		const scroll = () => {
			scrollTo(0, document.documentElement.scrollHeight);
			if (document.querySelector("main > p:last-of-type")?.textContent === "100,000 of 100,000") resolve();
			else requestAnimationFrame(scroll);
		};
		scroll();
	})`);
	expect(await rows.count()).toBeLessThan(60);
	const scrollTo = async (key: string, row: string, isThere: string): Promise<void> => {
		await long.keyboard.press(key);
		await long.getByText(row, { exact: true }).waitFor();
		// A key that is pressed while the page still scrolls has no effect.
		await long.waitForFunction(isThere);
		expect(await rows.count()).toBeLessThan(60);
	};
	const top = "scrollY === 0";
	await scrollTo("Home", "Number 0", top);
	await scrollTo("End", "Number 99999", "scrollY + innerHeight >= document.documentElement.scrollHeight - 1");
	await scrollTo("Home", "Number 0", top);
});
