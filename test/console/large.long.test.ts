import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { blocksOf } from "../../console/src/parts/text-blocks.ts";
import { called, eventsOf, post, postSample, recordOf, type Sample, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible } from "./visit.ts";

/** Large texts, and large conversations that go on. */

const service = new TestedConsole({ samples: [] });

describe("the blocks of a long text", () => {
	const piece = fc.constantFrom("\n", "\n\n\n", " ", "🎉", "ж".repeat(1_999), "word ".repeat(300), "x".repeat(700));

	test("are short and hold the whole text; only ends of lines may be left out between them", () => {
		fc.assert(
			fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
				const text = pieces.join("");
				const blocks = blocksOf(text);
				let at = 0;
				for (const { text: block } of blocks) {
					expect(block.length).toBeLessThanOrEqual(2_001);
					expect(block.isWellFormed()).toBe(true);
					// An empty line at the end of a block has an end of its own.
					const shown = text.startsWith(block, at) && !/(^|\n)\n$/.test(block) ? block : block.replace(/\n$/, "");
					expect(text.slice(at, at + shown.length)).toBe(shown);
					at += shown.length;
					if (text[at] === "\n") at += 1;
				}
				expect(at).toBe(text.length);
			}),
			{ numRuns: 300 },
		);
	});
});

describe("a text of 100 KB without a space", () => {
	// Letters of several scripts take a browser the longest.
	const text = "aж漢é".repeat(25_000);
	const sample = sampleWith({
		id: sampleId(701),
		title: "Long texts",
		costs: [],
		events: [said("user", "Begin"), ...called("terminal", "cat a.bin", text, 1, 701), said("agent", text)],
	});
	beforeAll(() => postSample(service.http, sample));

	test.each([
		["the output of a tool", "Terminal"],
		["a message", "Agent"],
	])("is unfolded as %s, and only what is in view is laid out", async (_, title) => {
		const page = await service.open(`#/conversations/${sample.id}`);
		const step = page.locator("article.step").filter({ has: page.locator("header strong", { hasText: title }) });
		// The browser tells of each block that it lays out.
		await page.evaluate(`{
			globalThis.laidOut = new Set();
			addEventListener("contentvisibilityautostatechange", ({ target, skipped }) => skipped || laidOut.add(target), true);
		}`);
		await step.getByRole("button", { name: "show all 100,000 characters" }).click();
		const blocks = step.locator(".text-block");
		await expect.poll(() => blocks.count()).toBe(50);
		expect((await blocks.allTextContents()).join("")).toBe(text);
		await expect.poll(() => page.evaluate("laidOut.size")).toBeGreaterThan(0);
		expect(await page.evaluate("laidOut.size")).toBeLessThan(25);
		await expectAccessible(page);
		// By the keyboard: while blocks that come into view are laid out, the button may move under the mouse.
		await step.getByRole("button", { name: "show less" }).press("Enter");
		await expect.poll(() => blocks.count()).toBe(0);
	});
});

test("while a conversation of 6,000 events goes on, only new steps are drawn", async () => {
	const id = sampleId(702);
	const events = Array.from({ length: 6_000 }, (_, index) => said("agent", `Message ${index}`, 0.01));
	const running = sampleWith({ id, title: "Goes on", status: "running", costs: [], minutesAgo: 0, events });
	await post(service.http, "conversations", recordOf(running));
	const flat = (sample: Sample, name: string) =>
		eventsOf(sample).map((event, index) => ({ ...event, id: `${name}-${index}`, parent_id: null }));
	const all = flat(running, "many");
	for (let from = 0; from < all.length; from += 1_000)
		await post(service.http, `events/${id}`, all.slice(from, from + 1_000));
	const page = await service.open(`#/conversations/${id}`);
	await page.getByText("6,000 steps").waitFor();
	await page.getByText("Message 5999", { exact: true }).waitFor();
	expect(await page.locator("article.step").count()).toBeLessThan(100);
	// Until nothing was drawn for two seconds: the list is measured and scrolled to its end.
	await page.evaluate(`new Promise((resolve) => {
		let timer = setTimeout(resolve, 2_000);
		new MutationObserver(() => {
			clearTimeout(timer);
			timer = setTimeout(resolve, 2_000);
		}).observe(document.querySelector("section.timeline"), { subtree: true, childList: true, attributes: true });
	})`);
	// Notes the texts of the steps whose elements are made from now on, and of those whose present elements change.
	await page.evaluate(`{
		const present = new Set(document.querySelectorAll("article.step"));
		globalThis.made = [];
		globalThis.changed = [];
		const note = (node) => {
			const steps = node.matches?.("article.step") ? [node] : (node.querySelectorAll?.("article.step") ?? []);
			for (const step of steps) made.push(step.querySelector(".said").textContent);
		};
		new MutationObserver((records) => {
			for (const { target, addedNodes } of records) {
				const step = (target instanceof Element ? target : target.parentElement)?.closest("article.step");
				if (present.has(step)) changed.push(step.querySelector(".said").textContent);
				for (const node of addedNodes) note(node);
			}
		}).observe(document.querySelector("section.timeline"), { subtree: true, childList: true, characterData: true, attributes: true });
	}`);
	const texts = Array.from({ length: 120 }, (_, index) => `Later ${index}`);
	const later = flat({ ...running, events: texts.map((text) => said("agent", text, 0.01)) }, "later");
	for (let from = 0; from < later.length; from += 8)
		await post(service.http, `events/${id}`, later.slice(from, from + 8));
	await page.getByText("6,120 steps").waitFor();
	await page.getByText("Later 119", { exact: true }).waitFor();
	expect(await page.evaluate("changed")).toEqual([]);
	const made: string[] = await page.evaluate("made");
	expect(made).toContain("Later 119");
	// The list may bring a few back that had left it. With all made anew for each post, there would be more than a hundred.
	expect(made.filter((text) => text.startsWith("Message")).length).toBeLessThan(60);
});
