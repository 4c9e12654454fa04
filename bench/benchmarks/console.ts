import type { Page } from "playwright-core";
import { z } from "zod";
import { TestBrowser } from "../../test/console/browser.ts";
import { eventsOf, post, recordOf, SAMPLES, said, sampleId } from "../../test/console/samples.ts";
import type { Benchmark } from "../benchmark.ts";
import { type Figure, median, round } from "../figures.ts";
import { type ConsolesPlan, consolesProgress } from "../load/consoles-plan.ts";
import { ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { processorSeconds } from "../processes/usage.ts";
import { eventsRequest } from "../requests.ts";
import { fillVariety, type Report, webhookLoad } from "./parts.ts";

const MANY = 100_000;
/** Number of conversations of which open consoles show the list. */
const FEW = 10_000;
const RARE_COUNT = 100;
const POSTS = 10;
const EVENTS = 10_000;
const CONSOLES = 60;
/** Posts a second: half of them records, half of them batches of five events. */
const RATE = 50;
const LOAD_MILLISECONDS = 15_000;
/** Number of times that the posts are measured with and without consoles; each takes 40 seconds. */
const MOST_ROUNDS = 3;
const [SAMPLE] = SAMPLES;

/** How fast the console is with many conversations and with many events. */
export const consolePages: Benchmark = {
	name: "console",
	about: `the console in a Chromium with ${MANY} conversations stored and a conversation of ${EVENTS} events`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await fillVariety(folder.database, MANY, RARE_COUNT, report);
		await using service = await Service.start({ database: folder.database, profile: settings.profile });
		const http = `http://127.0.0.1:${service.httpPort}`;
		const figures: Figure[] = [];
		{
			await using browser = await TestBrowser.start();
			figures.push(...(await measureList(browser, http, service.key, settings.rounds, report)));
			figures.push(...(await measureEvents(browser, http, service.key, settings.rounds, report)));
		}
		return figures;
	},
};

/** What open consoles cost the service. */
export const openConsoles: Benchmark = {
	name: "consoles",
	about: `the processor time of ${CONSOLES} open consoles at ${RATE} posts a second with ${FEW} conversations stored`,
	async run(settings, report) {
		await using folder = await DiskFolder.create(settings.folder);
		await fillVariety(folder.database, FEW, RARE_COUNT, report);
		await using service = await Service.start({ database: folder.database, profile: settings.profile });
		return [await measureConsoles(service, settings.rounds, report)];
	},
};

/** Opens a page of the console in a window of its own that has the key already. */
async function open(browser: TestBrowser, http: string, key: string, address: string): Promise<Page> {
	const window = await browser.window();
	await window.addInitScript(`sessionStorage.setItem("access-key", ${JSON.stringify(key)})`);
	const page = await window.newPage();
	await page.goto(`${http}/${address}`);
	return page;
}

/** Returns the milliseconds from the start of the navigation until a text was drawn, measured in the page. */
async function drawn(page: Page, text: string): Promise<number> {
	const time: number = await page.evaluate(`new Promise((resolve) => {
		const look = () => document.querySelector("main")?.textContent.includes(${JSON.stringify(text)})
			? setTimeout(() => resolve(performance.now())) : requestAnimationFrame(look);
		look();
	})`);
	return time;
}

async function measureList(browser: TestBrowser, http: string, key: string, rounds: number, report: Report) {
	const rows: number[] = [];
	const firsts: number[] = [];
	const posts: number[] = [];
	for (let n = 0; n < rounds; n += 1) {
		const page = await open(browser, http, key, "#/conversations");
		rows.push(await drawn(page, " of "));
		firsts.push(await drawn(page, " of 100,"));
		await page.getByText("live", { exact: true }).waitFor();
		for (let number = 0; number < POSTS; number += 1) {
			const title = `Post ${n} ${number}`;
			const seen: Promise<number> = page.evaluate(`new Promise((resolve) => {
				const look = () => document.querySelector("main").textContent.includes(${JSON.stringify(title)})
					? resolve(Date.now()) : requestAnimationFrame(look);
				look();
			})`);
			const sent = Date.now();
			await post(http, "conversations", { ...newRecord(n * POSTS + number), title }, key);
			posts.push((await seen) - sent);
		}
		await page.context().close();
		report(
			`  ${n + 1}/${rounds} first page ${round(rows.at(-1) ?? 0)} ms, its counts ${round(firsts.at(-1) ?? 0)} ms, posts ${posts.slice(-POSTS).join(", ")} ms`,
		);
	}
	return [
		figure("first page, from the start of its load to its rows", rows, "ms", 1_000),
		figure("first page, to its counts", firsts, "ms", undefined),
		figure("a new post, from its sending to its row", posts, "ms", 500),
	];
}

function newRecord(number: number) {
	if (SAMPLE === undefined) throw new Error("there are samples");
	return recordOf({ ...SAMPLE, id: sampleId(number), minutesAgo: 0 });
}

async function measureEvents(browser: TestBrowser, http: string, key: string, rounds: number, report: Report) {
	if (SAMPLE === undefined) throw new Error("there are samples");
	const id = sampleId(1_000);
	const events = Array.from({ length: EVENTS }, (_, n) => said("agent", `Message ${n}\n\n- of **many**`, 0.1));
	const sample = { ...SAMPLE, id, status: "running", events };
	await post(http, "conversations", recordOf(sample), key);
	const all = eventsOf(sample).map((event, n) => ({ ...event, id: `many-${n}`, parent_id: null }));
	for (let from = 0; from < all.length; from += 1_000)
		await post(http, `events/${id}`, all.slice(from, from + 1_000), key);
	const times: number[] = [];
	const complete: number[] = [];
	const heaps: number[] = [];
	for (let n = 0; n < rounds; n += 1) {
		const page = await open(browser, http, key, `#/conversations/${id}`);
		times.push(await drawn(page, `Message ${EVENTS - 1}`));
		complete.push(await drawn(page, "10,000 steps"));
		const session = await page.context().newCDPSession(page);
		await session.send("HeapProfiler.collectGarbage");
		heaps.push((await session.send("Runtime.getHeapUsage")).usedSize / 2 ** 20);
		await page.context().close();
		report(`  ${n + 1}/${rounds} newest ${round(times.at(-1) ?? 0)} ms, all ${round(complete.at(-1) ?? 0)} ms`);
	}
	return [
		figure(`a conversation of ${EVENTS} events, until its newest step`, times, "ms", 1_000),
		figure(`a conversation of ${EVENTS} events, until all are loaded`, complete, "ms", undefined),
		figure(`a conversation of ${EVENTS} events, heap`, heaps, "MiB", 150),
	];
}

async function measureConsoles(service: Service, rounds: number, report: Report): Promise<Figure> {
	await using recordClient = await Child.start("load/http.ts", z.unknown());
	await using eventClient = await Child.start("load/http.ts", z.unknown());
	const records = new ServerTarget(recordClient, { ...(await webhookLoad("small", service)), conversations: CONSOLES });
	const batch = { name: "events", pid: service.pid, port: service.httpPort };
	const template = await eventsRequest("usual", service.key);
	const events = new ServerTarget(eventClient, { ...batch, template, conversations: CONSOLES });
	const usedBy = async (milliseconds: number): Promise<number> => {
		const used = await processorSeconds(service.pid);
		const load = { concurrency: 8, milliseconds, rate: RATE / 2 };
		await Promise.all([records.load(load), events.load(load)]);
		return ((await processorSeconds(service.pid)) - used) / (milliseconds / 1000);
	};
	await usedBy(LOAD_MILLISECONDS / 4);
	const costs: number[] = [];
	const notes: string[] = [];
	// Times with and without consoles alternate, so that what else the machine does disturbs both.
	for (let n = 0; n < Math.min(rounds, MOST_ROUNDS); n += 1) {
		const alone = await usedBy(LOAD_MILLISECONDS);
		await using consoles = await Child.start("load/consoles.ts", z.unknown());
		const plan: ConsolesPlan = { kind: "start", port: service.httpPort, key: service.key, consoles: CONSOLES };
		await consoles.ask(plan, consolesProgress);
		await usedBy(LOAD_MILLISECONDS / 4);
		const progress = () => consoles.ask({ kind: "progress" } satisfies ConsolesPlan, consolesProgress);
		const before = await progress();
		const watched = await usedBy(LOAD_MILLISECONDS);
		const after = await progress();
		if (after.failure !== undefined) throw new Error(after.failure);
		const [received, counts, lists] = [
			after.received - before.received,
			after.counts - before.counts,
			after.lists - before.lists,
		];
		if (received === 0) throw new Error("the consoles received nothing");
		costs.push(watched - alone);
		notes.push(`posts alone ${round(alone)} cores; ${received} messages, ${counts} counts, ${lists} lists`);
		report(`  ${n + 1} ${round(watched)} cores; ${notes.at(-1)}`);
	}
	return {
		...figure(`${CONSOLES} open consoles at ${RATE} posts a second`, costs, "cores", 0.25),
		note: notes.at(-1) ?? "",
	};
}

function figure(name: string, values: readonly number[], unit: string, most: number | undefined): Figure {
	return {
		name: `console: ${name}`,
		value: median(values),
		unit,
		spread: [Math.min(...values), Math.max(...values)],
		...(most === undefined ? {} : { target: { at: "most", value: most } }),
		note: "",
	};
}
