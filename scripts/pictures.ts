import { join } from "node:path";
import { MIN_BATCHES } from "../src/conversations/senders.ts";
import { DESKTOP, TestBrowser } from "../test/console/browser.ts";
import { eventsOf, post, postSample, recordOf, SAMPLES, type Sample, said, sampleId } from "../test/console/samples.ts";
import { visitWithKey } from "../test/console/visit.ts";
import { ServiceProcess } from "../test/support/child.ts";
import { KEY } from "../test/support/service.ts";
import { TempFolder } from "../test/support/temp.ts";

/** Takes the pictures of docs/console.md with invented conversations. `npm run pictures` runs it. */

const FOLDER = join(import.meta.dirname, "..", "docs", "pictures");
const SEARCH = "#/search?query=coupon";
const CONVERSATION = `#/conversations/${sampleId(1)}`;

/** Title of the conversation of which an event is missing. */
const LOSSY = "Add a dark mode to the settings";
const LOSSY_CONVERSATION = `#/conversations/${SAMPLES.find(({ title }) => title === LOSSY)?.id}`;

/** Days before today from which there are finished conversations, too. */
const DAYS = 6;

/** A picture: its file, the address, a text to wait for, and how the window looks. */
const PICTURES = [
	["list-light", "#/conversations", "Upgrade the base image", "light", DESKTOP],
	["search-light", SEARCH, "src/checkout.test.ts", "light", DESKTOP],
	["conversation-dark", CONVERSATION, "show all 43 lines", "dark", DESKTOP],
	["history-light", `${CONVERSATION}?tab=history`, "started", "light", DESKTOP],
	["gaps-light", LOSSY_CONVERSATION, "An event is missing here", "light", DESKTOP],
	["usage-light", "#/usage", "model-large-4", "light", DESKTOP],
	["senders-light", "#/senders", "build-07", "light", DESKTOP],
] as const;

using folder = new TempFolder();
const KEY_2 = "key-of-the-server-build-08";
const keys = { ACCESS_KEYS: `build-07:${KEY}:ingest+read,build-08:${KEY_2}:ingest` };
await using service = await ServiceProcess.start(folder.file("conversations.db"), keys);
for (let day = DAYS; day > 0; day -= 1)
	for (const [index, sample] of SAMPLES.entries()) {
		// Each day lacks other ones, so that the days differ.
		if ((index * 7 + day * 5) % 4 === 0) continue;
		const minutesAgo = sample.minutesAgo + day * 24 * 60;
		await postSample(service.http, { ...sample, id: sampleId(100 * day + index), status: "finished", minutesAgo });
	}
await postFromWrongClock();
for (const sample of SAMPLES.toReversed())
	if (sample.title === LOSSY) await postLossy(sample);
	else await postSample(service.http, sample);
await postRefused();
await using browser = await TestBrowser.start();
for (const [name, address, text, colorScheme, viewport] of PICTURES) {
	const { page } = await visitWithKey(browser, service.http, address, { colorScheme, viewport });
	await page.getByRole("main").getByText(text).first().waitFor();
	// Pages that follow something show the present state.
	if (/^(list|conversation|gaps|history)/.test(name)) await page.getByText("live", { exact: true }).waitFor();
	if (name.startsWith("conversation-")) await page.getByRole("link", { name: /^dearest/ }).waitFor();
	if (name.startsWith("conversation-")) await page.locator(".chart canvas").first().waitFor({ state: "attached" });
	if (name.startsWith("history")) await page.getByRole("region", { name: "Two versions" }).waitFor();
	if (name.startsWith("senders")) await page.getByRole("heading", { name: "Refused posts" }).waitFor();
	await page.evaluate("document.fonts.ready.then(() => new Promise(requestAnimationFrame))");
	await page.screenshot({ path: join(FOLDER, `${name}.png`), animations: "disabled" });
	await page.context().close();
}

/** Posts a sample without one of its events. */
async function postLossy(sample: Sample): Promise<void> {
	const [first, ...later] = sample.events;
	if (first === undefined) throw new Error("the sample has events");
	const whole = { ...sample, events: [first, said("agent", "I look at the settings first."), ...later] };
	await post(service.http, `events/${sample.id}`, eventsOf(whole).toSpliced(1, 1));
	await post(service.http, "conversations", recordOf(whole));
}

/** Posts enough of a server whose clock is two hours behind that its clock is judged. */
async function postFromWrongClock(): Promise<void> {
	const [sample] = SAMPLES;
	if (sample === undefined) throw new Error("there are samples");
	const own = {
		...sample,
		id: sampleId(100 * DAYS + 99),
		title: "Sort the imports",
		status: "finished",
		minutesAgo: 120,
	};
	const events = Array.from({ length: MIN_BATCHES }, () => said("agent", "One more file is sorted.", 0));
	await post(service.http, "conversations", recordOf({ ...own, costs: [] }), KEY_2);
	for (const event of eventsOf({ ...own, events })) await post(service.http, `events/${own.id}`, [event], KEY_2);
}

/** Posts what the service refuses: a batch with a wrong time, and one with an unknown key. */
async function postRefused(): Promise<void> {
	const event = { id: "e", timestamp: "yesterday", source: "agent", kind: "MessageEvent" };
	for (const key of [KEY, "an-unknown-key", "an-unknown-key"]) {
		const response = await fetch(`${service.http}/api/v1/webhooks/events/${sampleId(9)}`, {
			method: "POST",
			headers: { "Content-Type": "application/json", "X-Access-Token": key },
			body: JSON.stringify([event]),
		});
		if (response.ok) throw new Error("the post was not refused");
	}
}
