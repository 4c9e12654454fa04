import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { allEvents, eventReadClient, postEvents } from "../support/event-clients.ts";
import { Random } from "../support/random.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const CONVERSATIONS = Array.from({ length: 5 }, () => randomUUID());
const KINDS = ["MessageEvent", "ActionEvent", "ObservationEvent"];
const BATCHES = 300;
const WRITERS = 4;

/** One who watches, goes away and comes back. */
interface Watcher {
	readonly conversationId: string;
	readonly kinds: readonly string[];
	cursor: bigint;
	readonly seen: bigint[];
	readonly random: Random;
}

/** Watches for a random time, or until the watcher has received all events through `end`. Returns whether it has. */
async function watchOnce(service: TestService, watcher: Watcher, end: () => bigint | undefined): Promise<boolean> {
	const leaving = new AbortController();
	const stays = watcher.random.integer(5, 400);
	const timer = setTimeout(() => leaving.abort(), stays);
	const request = {
		start: { case: "afterSequence", value: watcher.cursor } as const,
		conversationId: watcher.conversationId,
		filter: { kinds: [...watcher.kinds] },
	};
	try {
		const stream = eventReadClient(service, KEY).watchConversationEvents(request, { signal: leaving.signal });
		for await (const { sequence, content } of stream) {
			watcher.cursor = sequence;
			if (content.case === "event") {
				expect(content.value.sequence).toBe(sequence);
				watcher.seen.push(sequence);
			}
			if (watcher.random.integer(0, 100) === 0) await sleep(watcher.random.integer(0, 50));
			const last = end();
			if (last !== undefined && sequence >= last) return true;
		}
	} catch (error) {
		if (!leaving.signal.aborted) throw error;
	} finally {
		clearTimeout(timer);
		leaving.abort();
	}
	return false;
}

test("a watcher that often disconnects and resumes receives every event that it asks for, once and in order", async () => {
	await using service = await startTestService();
	const random = Random.ofTest();
	const watchers: Watcher[] = Array.from({ length: 12 }, (_, index) => ({
		conversationId: index % 3 === 0 ? "" : (CONVERSATIONS[index % CONVERSATIONS.length] ?? ""),
		kinds: index % 2 === 0 ? [] : KINDS.slice(0, 2),
		cursor: 0n,
		seen: [],
		random: random.of(`watcher ${index}`),
	}));
	let last: bigint | undefined;
	const watching = watchers.map(async (watcher) => {
		while (!(await watchOnce(service, watcher, () => last))) await sleep(watcher.random.integer(0, 30));
	});

	let batches = 0;
	const writers = Array.from({ length: WRITERS }, async (_, index) => {
		const own = random.of(`writer ${index}`);
		while (batches < BATCHES) {
			batches += 1;
			const events = Array.from({ length: own.integer(1, 8) }, () => ({
				id: randomUUID(),
				timestamp: "2026-11-22T08:00:00",
				source: "agent",
				kind: own.pick(KINDS),
				filler: "x".repeat(own.integer(0, 3000)),
			}));
			const id = own.pick(CONVERSATIONS) ?? "";
			expect((await postEvents(service, KEY, id, JSON.stringify(events))).status).toBe(200);
			await sleep(own.integer(0, 10));
		}
	});
	await Promise.all(writers);
	const all = await allEvents(service, KEY);
	expect(all.length).toBeGreaterThan(BATCHES);
	last = all.at(-1)?.sequence;
	await Promise.all(watching);
	for (const { conversationId, kinds, seen } of watchers) {
		const wanted = all.filter(
			(entry) =>
				(conversationId === "" || entry.conversationId === conversationId) &&
				(kinds.length === 0 || kinds.includes(entry.event?.kind ?? "")),
		);
		expect(seen).toEqual(wanted.map(({ sequence }) => sequence));
	}
});
