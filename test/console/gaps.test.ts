import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { beforeAll, expect, test } from "vitest";
import { object } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { eventsOf, post, recordOf, SAMPLES, type Sample, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible } from "./visit.ts";

const ENCRYPTION_KEY = Buffer.alloc(32, 7).toString("base64");
const service = new TestedConsole({ env: { ACCEPT_REFUSED: "on", ENCRYPTION_KEY } });

beforeAll(async () => {
	const [first, , ...later] = eventsOf(LOSSY);
	await post(service.http, `events/${LOSSY.id}`, [...(first ? [first] : []), ...later]);
	await post(service.http, "conversations", { ...recordOf(LOSSY), parent_conversation_id: UNKNOWN });
});

const UNKNOWN = randomUUID();

/** A conversation whose second event is not posted at first. */
const LOSSY: Sample = sampleWith({
	id: sampleId(501),
	title: "Rename the tables",
	tags: {},
	events: [said("user", "Rename the tables"), said("agent", "I look at them first"), said("agent", "They are renamed")],
});

async function read(path: string): Promise<JsonObject> {
	const response = await fetch(`${service.http}/api/v1/conversations${path}`, { headers: { "X-Access-Token": KEY } });
	expect(response.status).toBe(200);
	return object(await response.json());
}

test("conversations with gaps are found in one step, with their count and age", async () => {
	const page = await service.open();
	const button = page.getByRole("button", { name: "has gaps" });
	const { total } = await read("/counts?has_gaps=true");
	await expect.poll(() => button.locator("strong").textContent()).toBe(String(total));
	await button.click();
	const row = page.getByRole("row", { name: /Rename the tables/ });
	await row.getByText(/1 gap, (now|\d+ s ago|[1-9] min ago)/).waitFor();
	await expect.poll(() => page.url()).toContain("has_gaps=true");
	const rows = page.locator(".list .line:not(.head)");
	await expect.poll(() => rows.count()).toBe(Number(total));
	await expectAccessible(page);
	await page.reload();
	await row.waitFor();
	await page.getByRole("button", { name: "has gaps", pressed: true }).waitFor();
	await page.getByRole("button", { name: /^all/ }).click();
	await expect.poll(() => rows.count()).toBe(SAMPLES.length + 1);
	await expect.poll(() => page.url()).not.toContain("has_gaps");
});

test("a conversation lists what is missing, and its timeline shows where, until the missing event arrives", async () => {
	const page = await service.open(`#/conversations/${LOSSY.id}`);
	const { gaps } = await read(`/${LOSSY.id}/gaps`);
	if (!Array.isArray(gaps)) throw new Error("gaps are a list");
	const [gap] = gaps.map(object);
	const missing = String(gap?.missing_event_id);
	const after = String(gap?.after_event_id);
	expect(gaps).toHaveLength(1);
	const list = page.getByRole("region", { name: "Gaps: 1" });
	await list.getByText("An event is missing").waitFor();
	const ids = list.locator("code");
	await expect
		.poll(() => ids.evaluateAll((all) => all.map((code) => Reflect.get(code, "title"))))
		.toEqual([missing, after]);
	const timeline = page.getByRole("region", { name: "Timeline" });
	const parts = timeline.locator("article, .gap-mark");
	await expect
		.poll(() => parts.evaluateAll((all) => all.map(({ className }) => className)))
		.toEqual(["step user", "gap-mark small", "step agent"]);
	await expectAccessible(page);
	await list.getByRole("link", { name: "show the place" }).click();
	await page.locator("article.step.chosen", { hasText: "They are renamed" }).waitFor();
	const facts = page.getByRole("complementary", { name: "Facts" });
	await facts.getByText(`${UNKNOWN.slice(0, 8)} is not known here`).waitFor();
	expect(await facts.getByRole("link", { name: UNKNOWN.slice(0, 8) }).count()).toBe(0);
	await post(service.http, `events/${LOSSY.id}`, eventsOf(LOSSY).slice(1, 2));
	await timeline.getByText("I look at them first").waitFor();
	await expect.poll(() => page.locator(".gap-mark, .missing").count()).toBe(0);
	await page.goto(`${service.http}/#/conversations?has_gaps=true`);
	await page.getByText("No conversation matches").waitFor();
});

test("a conversation says that no record was posted, and that events were refused", async () => {
	const id = sampleId(502);
	const [first] = eventsOf({ ...LOSSY, id });
	const state = { kind: "ConversationStateUpdateEvent", source: "environment", key: "full_state" };
	await post(service.http, `events/${id}`, [{ ...first, ...state, id: "first", value: recordOf({ ...LOSSY, id }) }]);
	await post(service.http, `events/${id}`, [{ ...first, id: "second", timestamp: "yesterday" }]);
	const page = await service.open(`#/conversations/${id}`);
	const list = page.getByRole("region", { name: "Gaps: 2" });
	await list.getByText("No record was posted").waitFor();
	await list.getByText("Events were refused").waitFor();
	await expectAccessible(page);
	await list.getByRole("link", { name: "why it was refused" }).click();
	await page.getByRole("region", { name: "Refused posts" }).getByText("body[0].timestamp").waitFor();
});
