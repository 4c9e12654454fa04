import { readFile } from "node:fs/promises";
import type { Locator } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { ScoreService, ScoreSource } from "../../gen/conversations/v1/score_service_pb.js";
import { clientOf } from "../support/clients.ts";
import { KEY } from "../support/service.ts";
import { DESKTOP } from "./browser.ts";
import { acted, eventsOf, post, postSample, recordOf, type Sample, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible, expectAccessibleAndFit, goTo, hashOf } from "./visit.ts";

const ANN = "key-of-a-person-who-gives-scores";
const JOB = "key-of-a-job-that-gives-scores";
const READER = "key-of-a-reader-of-conversations";
const service = new TestedConsole({
	env: {
		ACCESS_KEYS: `test:${KEY}:ingest+read,ann:${ANN}:read+score,job:${JOB}:read+score,reader:${READER}:read`,
	},
	samples: [],
});

const listing = { kind: "TerminalAction", command: "ls" };
const listed = { kind: "TerminalObservation", content: [{ type: "text", text: "orders" }], is_error: false };
const critic = { score: 0.35, message: "The agent did not ask.", metadata: null };

/** A conversation with two messages of the agent, and a critic's result between them. */
const RENAMED: Sample = sampleWith({
	id: sampleId(601),
	title: "Rename the tables",
	events: [
		said("user", "Rename the tables"),
		said("agent", "I look at them first"),
		...acted("terminal", listing, listed, 1, 601, { critic_result: critic }),
		said("agent", "They are renamed"),
	],
});

beforeAll(async () => {
	await postSample(service.http, RENAMED);
	const given = [
		[621, "model-a", 2, 1, true, "tool_failed"],
		[622, "model-a", 1, 0.5, false, "misread_task"],
		[623, "model-b", 0.5, 0.25, true, "tool_failed"],
	] as const;
	for (const [number, model, cost, passed, thumb, cause] of given) {
		const title = `Reported ${number}`;
		const own = { id: sampleId(number), title, model, costs: [cost], tags: { reported: "yes" } };
		await postSample(service.http, sampleWith(own));
		await give(number, ["tests_passed", passed], ["thumbs", thumb], ["cause", cause]);
	}
});

/** Gives scores with the key of a job, such as `["tests_passed", 0.5]` for the conversation of a number. */
async function give(number: number, ...given: readonly (readonly [name: string, value: number | boolean | string])[]) {
	const kindOf = (value: number | boolean | string) =>
		typeof value === "number"
			? { case: "numberValue" as const, value }
			: typeof value === "boolean"
				? { case: "boolValue" as const, value }
				: { case: "stringValue" as const, value };
	const scores = given.map(([name, value]) => ({
		...{ conversationId: sampleId(number), name, value: { kind: kindOf(value) }, comment: `${name} by a job` },
	}));
	await clientOf(ScoreService, service, "connect", JOB).setScores({ scores });
}

/** Returns the scores that a person gave the conversation of a number and its events. */
async function thumbs(number: number) {
	const { scores } = await clientOf(ScoreService, service, "connect", KEY).listScores({
		conversationId: sampleId(number),
		name: "thumbs",
	});
	return scores.map(({ eventId, value, giver, source, comment }) => [
		eventId,
		value?.kind.value,
		giver,
		ScoreSource[source],
		comment,
	]);
}

test("a key gives a thumb for the conversation, turns it with its note, and takes it back", async () => {
	const page = await service.open(`#/conversations/${RENAMED.id}`, {}, ANN);
	const group = page.getByRole("group", { name: "Score of the conversation" });
	await group.waitFor();
	const pressed = () =>
		group.getByRole("button", { pressed: true }).evaluateAll((all) => all.map((one) => one.ariaLabel));
	await page.keyboard.press("+");
	await expect.poll(pressed).toEqual(["Thumbs up"]);
	expect(await thumbs(601)).toEqual([["", true, "ann", "PERSON", ""]]);
	// A key that is held does not take back what it gave.
	const calls: (string | undefined)[] = [];
	page.on("request", (request) => {
		const [, call] = /ScoreService\/((?:Set|Delete)\w+)/.exec(request.url()) ?? [];
		if (call !== undefined) calls.push(call);
	});
	await page.keyboard.down("-");
	await page.keyboard.down("-");
	await page.keyboard.up("-");
	await expect.poll(pressed).toEqual(["Thumbs down"]);
	await page.keyboard.press("+");
	await expect.poll(pressed).toEqual(["Thumbs up"]);
	expect(calls).toEqual(["SetScores", "SetScores"]);
	await page.keyboard.press("m");
	const dialog = page.getByRole("dialog", { name: "Note on the conversation" });
	await dialog.getByLabel("Note").fill("It asked first\nand was right");
	await expectAccessible(page);
	await dialog.getByRole("button", { name: "Save" }).click();
	await dialog.waitFor({ state: "detached" });
	expect(await thumbs(601)).toEqual([["", true, "ann", "PERSON", "It asked first\nand was right"]]);
	await page.keyboard.press("-");
	await expect.poll(pressed).toEqual(["Thumbs down"]);
	expect(await thumbs(601)).toEqual([["", false, "ann", "PERSON", "It asked first\nand was right"]]);
	const card = page.getByRole("region", { name: "Scores" });
	await card.getByText("and was right").waitFor();
	await page.keyboard.press("-");
	await expect.poll(pressed).toEqual([]);
	expect(await thumbs(601)).toEqual([]);
	await expect.poll(() => card.getByText("and was right").count()).toBe(0);
});

test("the keys score the chosen message of the agent, whose step shows it, and the help names them", async () => {
	const [, , , , last] = eventsOf(RENAMED);
	const page = await service.open(`#/conversations/${RENAMED.id}`, {}, ANN);
	await page.getByText("They are renamed").waitFor();
	await page.keyboard.press("g");
	const step = page.locator("article.step.chosen", { hasText: "They are renamed" });
	const group = step.getByRole("group", { name: "Score of the message" });
	await group.waitFor();
	await page.keyboard.press("?");
	await page.getByRole("row", { name: "+ thumbs up for the chosen message, or take it back" }).waitFor();
	await page.keyboard.press("Escape");
	await page.keyboard.press("+");
	await step.getByText(/^thumbs\s+up\s+ann \(you\)/).waitFor();
	expect(await thumbs(601)).toEqual([[last?.id, true, "ann", "PERSON", ""]]);
	// A step that is no message of the agent has no thumbs of its own.
	await page.keyboard.press("k");
	const call = page.locator("article.step.chosen", { hasText: "orders" });
	await call.getByText("critic 35 %").waitFor();
	await call.getByText("The agent did not ask.").waitFor();
	expect(await page.getByRole("group", { name: "Score of the message" }).count()).toBe(0);
	await page.keyboard.press("j");
	await page.keyboard.press("+");
	await expect.poll(() => thumbs(601)).toEqual([]);
});

test("the scores of others are listed with who gave them, those of events lead to them, and arrive by themselves", async () => {
	const page = await service.open(`#/conversations/${RENAMED.id}`, {}, READER);
	const card = page.getByRole("region", { name: "Scores" });
	await card.getByRole("link", { name: "critic" }).waitFor();
	await give(601, ["tests_passed", 0.875], ["thumbs", false], ["cause", "misread_task"]);
	const items = async () =>
		(await card.getByRole("listitem").allTextContents()).map((text) => text.replace(/\d+ (s|min) ago|now/, "…"));
	await expect
		.poll(items)
		.toEqual([
			"cause misread_task job · …cause by a job",
			"tests_passed 0.875 job · …tests_passed by a job",
			"thumbs  down job · …thumbs by a job",
			"critic 0.35 …The agent did not ask.",
		]);
	expect(await page.getByRole("group", { name: /^Score of/ }).count()).toBe(0);
	await page.keyboard.press("+");
	await page.keyboard.press("?");
	await page.getByRole("row", { name: /newest step/ }).waitFor();
	expect(await page.getByRole("row", { name: /thumbs|note/ }).count()).toBe(0);
	await page.keyboard.press("Escape");
	await card.getByRole("link", { name: "critic" }).click();
	await page.locator("article.step.chosen", { hasText: "orders" }).waitFor();
	expect(await thumbs(601)).toEqual([["", false, "job", "PROGRAM", "thumbs by a job"]]);
});

test("a score that is refused leaves the button as it was, and says why", async () => {
	await postSample(service.http, sampleWith({ id: sampleId(602), title: "Refused", tags: {} }));
	const page = await service.open("#/about", {}, ANN);
	// Before the page of the conversation: the browser lets a call pass that it sends right after this.
	await page.route("**/*ScoreService/SetScores", (route) => route.abort());
	await goTo(page, `#/conversations/${sampleId(602)}`);
	const group = page.getByRole("group", { name: "Score of the conversation" });
	await group.waitFor();
	await page.keyboard.press("+");
	await page.getByRole("alert").getByText("The service cannot be reached.").waitFor();
	expect(await group.getByRole("button", { pressed: true }).count()).toBe(0);
	await page.unroute("**/*ScoreService/SetScores");
	await page.keyboard.press("+");
	await expect.poll(() => group.getByRole("button", { pressed: true }).count()).toBe(1);
	expect(await page.getByRole("alert").count()).toBe(0);
});

test("a list shows chosen scores as columns, is filtered and ordered by them, and is downloaded with them", async () => {
	for (const number of [611, 612, 613])
		await postSample(service.http, sampleWith({ id: sampleId(number), title: `Run ${number}`, tags: { run: "yes" } }));
	await give(611, ["tests_passed", 0.5], ["thumbs", true]);
	await give(612, ["tests_passed", 0.9], ["thumbs", false]);
	const page = await service.open("#/conversations?tag=run:yes", {}, ANN);
	const list = page.locator(".list:not(.stale)");
	const rows = async () =>
		await list
			.locator(".line:not(.head)")
			.evaluateAll((all) =>
				all.map((row) =>
					[row.querySelector(".label > a"), ...row.querySelectorAll(".score")].map((one) => one?.textContent),
				),
			);
	await page.getByRole("combobox", { name: /^Scores/ }).fill("thumbs, tests_passed");
	await page.keyboard.press("Enter");
	await expect.poll(() => hashOf(page)).toBe("#/conversations?tag=run%3Ayes&score_name=thumbs&score_name=tests_passed");
	const [best, good, none] = [
		["Run 612", " down", "0.9"],
		["Run 611", " up", "0.5"],
		["Run 613", "–", "–"],
	];
	await expect.poll(rows).toEqual([none, best, good]);
	await page.getByLabel("Order").selectOption("score tests_passed");
	await expect.poll(rows).toEqual([best, good, none]);
	const downloading = page.waitForEvent("download");
	await page.keyboard.press("c");
	const text = await readFile(await (await downloading).path(), "utf8");
	const scores = [...text.matchAll(/,(score:thumbs|true|false|),(score:tests_passed|[\d.]*)\r?$/gm)];
	expect(scores.map(([, ...cells]) => cells)).toEqual([
		["score:thumbs", "score:tests_passed"],
		["false", "0.9"],
		["true", "0.5"],
		["", ""],
	]);
	const filter = async (text: string) => {
		await page.getByRole("combobox", { name: /^Filter/ }).fill(text);
		await page.keyboard.press("Enter");
	};
	await page.getByLabel("Order").selectOption("newest update");
	await filter("score:tests_passed>=0.8");
	await expect.poll(rows).toEqual([best]);
	await page.getByRole("button", { name: "Score: tests_passed>=0.8" }).click();
	await filter("score:none:thumbs");
	await expect.poll(rows).toEqual([none]);
	await page.getByRole("button", { name: "Score: none:thumbs" }).click();
	await filter("score:thumbs:true");
	await expect.poll(rows).toEqual([good]);
	await expect.poll(() => hashOf(page)).toContain("score=thumbs%3Atrue");
	await expectAccessible(page);
	await page.reload();
	await expect.poll(rows).toEqual([good]);
	// What changes stays out while its score does not meet the filter, and comes back when it does.
	await page.getByText("live", { exact: true }).waitFor();
	for (const number of [612, 611])
		await post(service.http, "conversations", {
			...recordOf(sampleWith({ id: sampleId(number), title: `Later run ${number}`, tags: { run: "yes" } })),
			updated_at: new Date().toISOString(),
		});
	await expect.poll(rows).toEqual([["Later run 611", " up", "0.5"]]);
	await list.getByRole("link", { name: "Later run 611" }).click();
	await page.getByRole("group", { name: "Score of the conversation" }).waitFor();
	await page.keyboard.press("-");
	await page.getByRole("button", { name: "Thumbs down", pressed: true }).waitFor();
	await page.keyboard.press("Escape");
	await page.getByText("No conversation matches").waitFor();
});

test("the names of columns and the conditions on scores that are none are told", async () => {
	const page = await service.open();
	const told = (name: RegExp) => page.getByLabel(name).evaluate((input) => Reflect.get(input, "validationMessage"));
	const names = page.getByRole("combobox", { name: /^Scores/ });
	await page.getByText("live", { exact: true }).waitFor();
	await names.fill("Thumbs Up");
	// What is typed stays while the list changes.
	await postSample(service.http, sampleWith({ id: sampleId(641), title: "Arrives meanwhile", tags: {} }));
	await page.getByRole("link", { name: "Arrives meanwhile" }).waitFor();
	expect(await names.inputValue()).toBe("Thumbs Up");
	await names.press("Enter");
	await expect.poll(() => told(/^Scores/)).toBe("This must be at most 4 names of scores, such as tests_passed");
	await page.getByRole("combobox", { name: /^Filter/ }).fill("score:tests_passed>=many");
	await page.keyboard.press("Enter");
	await expect
		.poll(() => told(/^Filter/))
		.toBe("score must be a condition such as thumbs:true, tests_passed>=0.8 or none:thumbs");
	expect(hashOf(page)).toBe("#/conversations");
});

describe("the report", () => {
	/** Returns the texts of a table's rows. */
	async function rowsOf(table: Locator) {
		const rows = await table
			.getByRole("row")
			.evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent?.trim())));
		return rows;
	}

	test("sums up a score of any kind by what is chosen, beside the cost, as a table, a chart and CSV", async () => {
		const page = await service.open(undefined, {}, READER);
		await page.keyboard.press("5");
		const name = page.getByRole("combobox", { name: /^Score that is reported/ });
		await name.waitFor();
		await page.getByRole("combobox", { name: /^Filter/ }).fill("tag:reported:yes");
		await page.keyboard.press("Enter");
		const numbers = page.locator("[aria-busy=false]").getByRole("region", { name: "Numbers" });
		await expect
			.poll(() => rowsOf(numbers))
			.toEqual([
				["model", "Scores", "True", "Conversations", "Cost", "Cost of one"],
				["model-a", "2", "50 %", "2", "$3.00", "$1.50"],
				["model-b", "1", "100 %", "1", "$0.50", "$0.50"],
				["All", "3", "67 %", "3", "$3.50", "$1.17"],
			]);
		await page.getByRole("heading", { name: "Share of true of thumbs by model and day (UTC)" }).waitFor();
		await name.fill("tests_passed");
		await name.press("Enter");
		await expect.poll(() => hashOf(page)).toBe("#/scores?tag=reported%3Ayes&name=tests_passed");
		await expect
			.poll(() => rowsOf(numbers))
			.toEqual([
				["model", "Scores", "Mean", "Conversations", "Cost", "Cost of one"],
				["model-a", "2", "0.75", "2", "$3.00", "$1.50"],
				["model-b", "1", "0.25", "1", "$0.50", "$0.50"],
				["All", "3", "0.583", "3", "$3.50", "$1.17"],
			]);
		const chart = page.getByRole("img", { name: "Mean of tests_passed over time; the table below has the numbers" });
		await chart.locator("canvas").waitFor();
		const downloading = page.waitForEvent("download");
		await page.keyboard.press("c");
		const download = await downloading;
		expect(download.suggestedFilename()).toBe("scores-tests_passed-by-model.csv");
		expect((await readFile(await download.path(), "utf8")).replace("\ufeff", "").split("\r\n")).toEqual([
			"model,count,mean,share_true,categories,conversations,cost,conversations_without_cost",
			"model-a,2,0.75,,,2,3,0",
			"model-b,1,0.25,,,1,0.5,0",
			"",
		]);
		await name.fill("cause");
		await name.press("Enter");
		await page.getByRole("combobox", { name: "By" }).selectOption("tag reported");
		await expect
			.poll(() => rowsOf(numbers))
			.toEqual([
				["tag reported", "Scores", "Spread", "Conversations", "Cost", "Cost of one"],
				["yes", "3", "tool_failed 2 67 % misread_task 1 33 %", "3", "$3.50", "$1.17"],
				["All", "3", "tool_failed 2 67 % misread_task 1 33 %", "3", "$3.50", "$1.17"],
			]);
		await page.getByRole("heading", { name: "Scores of cause by category and day (UTC)" }).waitFor();
		await page.getByRole("combobox", { name: "By" }).selectOption("day");
		await page.getByRole("combobox", { name: "Chart" }).selectOption("number of scores");
		await page.getByRole("heading", { name: "Scores of cause by day (UTC)" }).waitFor();
		await expectAccessible(page);
		await page.getByRole("combobox", { name: "By" }).selectOption("model");
		await numbers.getByRole("link", { name: "model-b" }).click();
		await page.locator(".list:not(.stale)").getByText("Reported 623").waitFor();
		expect(hashOf(page)).toBe("#/conversations?tag=reported%3Ayes&model=model-b&score_name=cause");
	});

	test("says that there is no such score, and that a name is none", async () => {
		const page = await service.open("#/scores?name=unheard_of", {}, READER);
		await page.getByText("No score “unheard_of” in this range").waitFor();
		await expectAccessible(page);
		await goTo(page, "#/scores?name=Thumbs");
		await page.getByText("This view cannot be shown").waitFor();
		await page.getByText("name must be a small letter and at most 63 small letters").waitFor();
	});

	test("has a comparison of two conversations, where their scores stand beside each other", async () => {
		const page = await service.open(`#/compare?a=${sampleId(621)}&b=${sampleId(622)}`, {}, READER);
		const scores = page.locator("tbody").filter({ has: page.getByRole("rowheader", { name: "Scores" }) });
		await expect
			.poll(() => rowsOf(scores))
			.toEqual([
				["Scores"],
				["cause", "tool_failed", "misread_task", ""],
				["tests_passed", "1", "0.5", "−0.5"],
				["thumbs", "up", "down", ""],
			]);
	});
});

/** The narrow one takes the whole page, because a button that the window cuts is too small for axe. */
const LOOKS = [
	["light", DESKTOP],
	["dark", { width: 390, height: 1800 }],
] as const;

test.each(LOOKS)(
	"in the theme %s at the size %o scores are accessible, and fit the width",
	async (colorScheme, viewport) => {
		const page = await service.open(`#/conversations/${RENAMED.id}`, { colorScheme, viewport }, ANN);
		await page.getByText("They are renamed").waitFor();
		await page.keyboard.press("g");
		await page.locator("article.step.chosen").getByRole("group", { name: "Score of the message" }).waitFor();
		await expectAccessibleAndFit(page);
		await goTo(
			page,
			"#/conversations?score_name=thumbs&score_name=tests_passed&score=cause:misread_task&tag=reported:yes",
		);
		await page.locator(".list:not(.stale)").getByText("0.5", { exact: true }).waitFor();
		await expectAccessibleAndFit(page);
		await goTo(page, "#/scores?name=cause");
		await page.getByRole("row", { name: /^All/ }).waitFor();
		await expectAccessibleAndFit(page);
		await goTo(page, `#/compare?a=${sampleId(621)}&b=${sampleId(622)}`);
		await page.getByRole("row", { name: /^tests_passed/ }).waitFor();
		await expectAccessibleAndFit(page);
	},
);
