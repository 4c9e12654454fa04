import { randomUUID } from "node:crypto";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { beforeAll, expect, test } from "vitest";
import { ListSendersResponseSchema } from "../../gen/conversations/v1/conversation_sender_service_pb.js";
import { MIN_BATCHES } from "../../src/conversations/senders.ts";
import { KEY } from "../support/service.ts";
import { eventsOf, post, postSample, SAMPLES, said, sampleId, sampleWith } from "./samples.ts";
import { TestedConsole } from "./tested-console.ts";
import { expectAccessible } from "./visit.ts";

const BROKEN = "key-of-a-server-whose-posts-are-refused";
const KEYS = { "build-07": "key-of-the-server-build-07", "build-08": "key-of-the-server-build-08" };

const service = new TestedConsole({
	env: {
		ACCESS_KEYS: [
			...Object.entries(KEYS).map(([name, key]) => `${name}:${key}:ingest`),
			...[`reader:${KEY}:read`, `broken:${BROKEN}:ingest`],
		].join(),
	},
	samples: [],
});

beforeAll(async () => {
	for (const sample of SAMPLES) await postSample(service.http, sample, KEYS["build-07"]);
});

test("the senders page tells in one step who posts, how much, and links to its conversations", async () => {
	const page = await service.open();
	await page.getByRole("link", { name: "Senders" }).click();
	const row = page.getByRole("row", { name: /build-07/ });
	await row.getByText("posts").waitFor();
	await expect.poll(() => row.getByRole("cell").nth(4).textContent()).toBe(String(2 * SAMPLES.length));
	await expectAccessible(page);
	await row.getByRole("link", { name: "build-07" }).click();
	await expect.poll(() => page.locator(".list .line:not(.head)").count()).toBe(SAMPLES.length);
});

test("the senders page tells in one step whose clock is wrong", async () => {
	for (const [name, minutes] of [
		["build-07", 0],
		["build-08", 120],
	] as const)
		for (let batch = 0; batch < MIN_BATCHES; batch += 1) {
			const event = { ...eventsOf(sampleWith({ minutesAgo: minutes, events: [said("agent", "Now", 0)] }))[0] };
			await post(service.http, `events/${sampleId(1)}`, [{ ...event, id: `${name}-${batch}` }], KEYS[name]);
		}
	const page = await service.open();
	await page.getByRole("link", { name: "Senders" }).click();
	await page
		.getByRole("row", { name: /build-08/ })
		.getByText("2 h 0 min behind: set its time zone")
		.waitFor();
	await page
		.getByRole("row", { name: /build-07/ })
		.getByText("right")
		.waitFor();
	await expectAccessible(page);
});

test("the senders page tells in one step who is silent, and since when", async () => {
	const page = await service.open();
	// A sender counts as silent only after ten minutes.
	await page.route("**/conversations.v1.ConversationSenderService/ListSenders", async (route) => {
		const response = await route.fetch();
		const message = fromBinary(ListSendersResponseSchema, await response.body());
		for (const sender of message.senders)
			if (sender.name === "build-07")
				Object.assign(sender, { silent: true, lastPostAt: timestampFromMs(Date.now() - 45.5 * 60_000) });
		await route.fulfill({ response, body: Buffer.from(toBinary(ListSendersResponseSchema, message)) });
	});
	await page.getByRole("link", { name: "Senders" }).click();
	const row = page.getByRole("row", { name: /build-07/ });
	await row.getByText("silent").waitFor();
	await row.getByText("45 min ago").waitFor();
	await expectAccessible(page);
});

test("the senders page lists what was refused and why", async () => {
	const headers = { "Content-Type": "application/json", "X-Access-Token": BROKEN };
	const id = randomUUID();
	const events = `${service.http}/api/v1/webhooks/events/${id}`;
	const body = JSON.stringify([{ id: "e", timestamp: "yesterday", source: "agent", kind: "MessageEvent" }]);
	expect((await fetch(events, { method: "POST", headers, body })).status).toBe(422);
	const page = await service.open("#/senders");
	const table = page.getByRole("region", { name: "Refused posts" });
	const refused = table.getByRole("row", { name: /broken/ });
	await refused.getByText("invalid_record").waitFor();
	await expect.poll(() => refused.textContent()).toContain("body[0].timestamp");
	expect(await refused.getByRole("link", { name: id.slice(0, 8) }).getAttribute("href")).toBe(`#/conversations/${id}`);
	await expectAccessible(page);
	// Nothing says that this key posts.
	const row = page.getByRole("region", { name: "Senders" }).getByRole("row", { name: /^broken/ });
	const told = "broken |–|nothing accepted|0|0|0|not known yet|invalid_record 1|invalid_record 1";
	await expect.poll(async () => (await row.getByRole("cell").allTextContents()).join("|")).toBe(told);
	expect(await row.getByRole("link").count()).toBe(0);
});
