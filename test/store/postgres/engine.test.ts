import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { Store } from "../../../src/store/store.ts";
import type { ThreadObserver } from "../../../src/threads/worker-thread.ts";
import { appendEvents, batch, event, storedEvent } from "../event-samples.ts";
import { append, type Columns, type Filter, pages, sample, stored } from "../samples.ts";
import { Databases, openStore, sqlOn } from "./databases.ts";

let databases: Databases;
beforeAll(async () => {
	databases = await Databases.start();
});
afterAll(() => databases[Symbol.asyncDispose]());

/** Opens a store in a new database, and closes it when the test ends. */
async function opened(): Promise<{ store: Store; url: string; sql: (text: string) => ReturnType<typeof sqlOn> }> {
	const url = await databases.createMigrated();
	const store = await openStore(url);
	onTestFinished(() => store.close());
	return { store, url, sql: (text) => sqlOn(url, text) };
}

const odd = "a\0b\u0001c\u0002\u0003";
const long = "very long, ".repeat(1_000);

test.each([
	["U+0000 and the characters of its stored form", odd],
	["more bytes than an index entry can hold", long],
])("texts with %s are stored, and filters find them", async (_, text) => {
	const { store } = await opened();
	const columns: Partial<Columns> = {
		agentKind: text,
		model: text,
		parentId: text,
		title: `title ${text}`,
		tags: { [text]: text, plain: text },
	};
	const [update, other] = [sample({ columns }), sample({ columns: { title: "title a", tags: { plain: "a" } } })];
	const outcome = await append(store, update);
	await append(store, other);
	expect(await store.get(update.conversationId)).toEqual(stored(update, outcome));
	const filters: Filter[] = [
		{ agentKind: text },
		{ model: text },
		{ parentId: text },
		{ titleContains: text },
		{ tagKey: text },
		{ tags: { plain: text, [text]: text } },
	];
	for (const filter of filters) {
		const found = (await pages(store, filter, 10)).flat();
		expect(found.map(({ sequence }) => sequence)).toEqual([outcome.sequence]);
	}
	expect((await pages(store, { titleContains: "\u0001\u0002\u0002" }, 10)).flat()).toEqual([]);
	expect((await pages(store, { titleContains: "TITLE A" }, 10)).flat()).toHaveLength(text === odd ? 2 : 1);

	const events = [
		event({ eventId: text, kind: text, source: text, message: text, secrets: [`/${text}`] }),
		event({ eventId: `${text}.`, text: Buffer.from(JSON.stringify({ text })) }),
	];
	const made = batch(update.conversationId, events);
	expect(await appendEvents(store, made)).toMatchObject({ stored: 2 });
	expect(await appendEvents(store, made)).toMatchObject({ stored: 0 });
	const expected = events.map((one, n) => storedEvent(made, one, BigInt(n + 1)));
	expect(await store.events.list({ after: 0n, limit: 10 })).toEqual(expected);
	const ofKind = { kind: "one_of", field: "kind", values: [text] } as const;
	expect(await store.events.list({ after: 0n, limit: 10, conditions: [ofKind] })).toEqual(expected.slice(0, 1));
	expect((await store.getRecordState(update.conversationId, [text, "a", `${text}.`])).knownIds).toEqual([
		text,
		`${text}.`,
	]);
});

test("an observer is notified of a thread `writer`, of its queue and of groups of appends", async () => {
	const reports: unknown[] = [];
	let queue = () => ({ calls: -1, age: -1 });
	const observer: ThreadObserver = {
		onThread: (name, figures) => {
			reports.push(["added", name]);
			queue = figures;
		},
		onGroup: ({ size, duration }) => {
			reports.push(["grouped", size]);
			expect(duration).toBeGreaterThan(0);
		},
	};
	const store = await openStore(await databases.createMigrated(), { observer });
	onTestFinished(() => store.close());
	expect(queue()).toEqual({ calls: 0, age: 0 });
	const [first, bad, last] = [sample(), sample({ redactionVersion: 0.5 }), sample()];
	const appends = [append(store, first), append(store, bad)];
	expect(queue()).toEqual({ calls: 2, age: expect.any(Number) });
	expect((await Promise.allSettled(appends)).map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
	await appendEvents(store, batch(last.conversationId, [event()]));
	await expect(append(store, last, { aborted: true })).rejects.toThrow();
	expect(queue()).toEqual({ calls: 0, age: 0 });
	expect(reports).toEqual([
		["added", "writer"],
		["grouped", 2],
		["grouped", 1],
		["grouped", 1],
		["grouped", 1],
		["grouped", 1],
	]);
});

test("a group is repeatedly halved around an update that cannot be written", async () => {
	const sizes: number[] = [];
	const observer: ThreadObserver = {
		onThread: () => undefined,
		onGroup: ({ size }) => sizes.push(size),
	};
	const store = await openStore(await databases.createMigrated(), { observer });
	onTestFinished(() => store.close());
	const updates = Array.from({ length: 64 }, (_, n) => sample(n === 20 ? { redactionVersion: 0.5 } : {}));
	const outcomes = await Promise.allSettled(updates.map((update) => append(store, update)));
	expect(outcomes.flatMap(({ status }, n) => (status === "rejected" ? [n] : []))).toEqual([20]);
	expect(sizes).toEqual([64, 32, 16, 16, 8, 4, 4, 2, 1, 1, 2, 8, 32]);
	const kept = await store.updates.list({ after: 0n, limit: 100, withRecords: false });
	expect(kept.map(({ conversationId }) => conversationId)).toEqual(
		updates.filter((_, n) => n !== 20).map(({ conversationId }) => conversationId),
	);
});
