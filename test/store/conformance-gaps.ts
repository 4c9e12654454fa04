import { randomUUID } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { toMicroseconds } from "../../src/record/json/scalars.ts";
import type { NewEvent } from "../../src/store/entries.ts";
import type { Gap } from "../../src/store/gaps.ts";
import type { Poster } from "../../src/store/owners.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, effectOf, event, record, stateUpdate } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

const at = (n: number) => start + BigInt(n) * second;

/** Tests of what is known to be missing of conversations. */
export function gapConformance(current: () => Store, reopen: () => Promise<Store>): void {
	let store: Store;
	beforeEach(() => {
		store = current();
	});

	/** Returns events that follow each other, a second apart. */
	const chain = (names: readonly string[], root?: string): NewEvent[] =>
		names.map((eventId, n) => event({ eventId, parentId: names[n - 1] ?? root, happenedAt: at(n + 1) }));

	/** Returns an event of a chain. */
	const one = (events: readonly NewEvent[], n: number): NewEvent => {
		const found = events[n];
		if (found === undefined) throw new Error("the chain is shorter");
		return found;
	};

	async function send(conversationId: string, events: readonly NewEvent[], seconds = 100, poster?: Poster) {
		const appended = await appendEvents(store, batch(conversationId, events, { receivedAt: at(seconds), poster }));
		for (const fork of appended?.forks ?? []) await appendEvents(store, batch(fork, []));
		return appended;
	}

	/** Posts a record with a leaf, and the conversation that it was forked from. */
	async function post(
		conversationId: string,
		seconds: number,
		names: { readonly leaf?: string; readonly source?: string; readonly poster?: Poster } = {},
	) {
		const { leaf: leafEventId, source: forkedFromConversationId, poster } = names;
		const members = record({ id: conversationId, ...(leafEventId === undefined ? {} : { leafEventId }) });
		const update = sample({
			conversationId,
			receivedAt: at(seconds),
			record: members,
			columns: { updatedAt: at(seconds) },
		});
		const of = forkedFromConversationId === undefined ? {} : { forkedFromConversationId };
		const summary = toBinary(ConversationSummarySchema, create(ConversationSummarySchema, of));
		return await append(store, {
			...update,
			summary: Buffer.concat([update.summary, summary]),
			...(poster === undefined ? {} : { poster }),
		});
	}

	/** Returns the gaps of a conversation, and asserts that its summary and the filter agree. */
	async function gapsOf(conversationId: string): Promise<readonly Gap[]> {
		const gaps = await store.listGaps(conversationId);
		const list = async (value: boolean) => {
			const page = await store.listConversations({
				conditions: [{ kind: "gaps", value }],
				limit: 1_000,
				withRecords: false,
			});
			return page.filter((found) => found.conversationId === conversationId);
		};
		const [withGaps, without] = [await list(true), await list(false)];
		const [listed] = [...withGaps, ...without];
		if (listed !== undefined) {
			expect([withGaps.length, without.length]).toEqual(gaps.length > 0 ? [1, 0] : [0, 1]);
			const shown = fromBinary(ConversationSummarySchema, listed.summary).gaps;
			const oldest = gaps.map(({ since }) => since).toSorted((a, b) => Number(a - b))[0];
			expect(shown && [shown.count, shown.since && toMicroseconds(shown.since)]).toEqual(
				gaps.length === 0 ? undefined : [BigInt(gaps.length), oldest],
			);
		}
		return gaps.toSorted((a, b) => (a.missing < b.missing ? -1 : 1));
	}

	const missing = async (id: string) => (await gapsOf(id)).map((gap) => `${gap.kind} ${gap.missing}`);

	describe("gaps", () => {
		it("are events that others follow and that are not stored, until they arrive", async () => {
			const a = randomUUID();
			const events = chain(["one", "two", "three", "four"]);
			await post(a, 1);
			await send(a, [one(events, 0)], 2);
			expect(await gapsOf(a)).toEqual([]);
			expect(await send(a, [one(events, 3)], 3)).toMatchObject({ stored: 1 });
			const gap: Gap = { kind: "missing_parent", missing: "three", after: "one", since: at(3) };
			expect(await gapsOf(a)).toEqual([gap]);
			store = await reopen();
			expect(await gapsOf(a)).toEqual([gap]);
			await send(a, [one(events, 2)], 4);
			expect(await gapsOf(a)).toEqual([{ kind: "missing_parent", missing: "two", after: "one", since: at(4) }]);
			expect(await send(a, [one(events, 1)], 5)).toEqual({ stored: 1, newest: 4n, updateSequence: undefined });
			expect(await gapsOf(a)).toEqual([]);
		});

		it("are leaves of records and of reported states that are not stored", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const events = chain(["one", "two"]);
			await send(a, [one(events, 0)], 1);
			await post(a, 2, { leaf: "one" });
			expect(await gapsOf(a)).toEqual([]);
			await post(a, 3, { leaf: "two" });
			expect(await gapsOf(a)).toEqual([{ kind: "missing_leaf", missing: "two", after: "one", since: at(3) }]);
			await send(b, [stateUpdate({ reportedLeaf: "other" }), stateUpdate({ parentId: "other" })], 4);
			await post(b, 5, { leaf: "other" });
			expect(await missing(b)).toEqual(["missing_parent other"]);
			await send(a, [one(events, 1)], 6);
			await send(b, [event({ eventId: "other" })], 6);
			expect([await gapsOf(a), await gapsOf(b)]).toEqual([[], []]);
		});

		it("are records that were made of events, until one is posted", async () => {
			const a = randomUUID();
			const made = effectOf(0n, record({ id: a, title: "reported" }));
			await appendEvents(store, batch(a, [stateUpdate()], { effect: made, receivedAt: at(1) }));
			expect(await gapsOf(a)).toEqual([{ kind: "no_record", missing: "", after: undefined, since: at(1) }]);
			await post(a, 2);
			expect(await gapsOf(a)).toEqual([]);
		});

		it("are none for events that a fork has from its source, in whatever order both arrive", async () => {
			const posts = ["source", "source's events", "fork", "fork's events"] as const;
			for (const first of posts)
				for (const second of posts)
					for (const third of posts) {
						if (new Set([first, second, third]).size < 3) continue;
						const [source, fork] = [randomUUID(), randomUUID()];
						const copied = chain(["one", "two", "three"].map((name) => `${name} of ${source}`));
						const own = chain([`four of ${fork}`, `five of ${fork}`, `six of ${fork}`], one(copied, 1).eventId);
						const steps = {
							source: () => post(source, 1),
							"source's events": () => send(source, copied),
							fork: () => post(fork, 2, { source }),
							"fork's events": () => send(fork, [one(own, 0), one(own, 2)]),
						};
						const last = posts.filter((name) => ![first, second, third].includes(name));
						for (const name of [first, second, third, ...last]) await steps[name]();
						const lost = one(own, 1).eventId;
						const found = (await missing(fork)).filter((gap) => gap !== `missing_parent ${lost}`);
						expect([first, second, third, await missing(source), found]).toEqual([first, second, third, [], []]);
						// While nothing is known of the source, what it may have is no gap.
						if (first.startsWith("source")) expect(await missing(fork)).toEqual([`missing_parent ${lost}`]);
						await send(fork, own);
						expect(await missing(fork)).toEqual([]);
					}
		});

		it("close when a fork was known by its events alone, before those of its source, and stay for another owner", async () => {
			const [red, blue] = ["red", "blue"].map((owner): Poster => ({ sender: owner, owner }));
			for (const [poster, isReported] of [
				[undefined, false],
				[red, true],
			] as const) {
				const [source, fork, stranger] = [randomUUID(), randomUUID(), randomUUID()];
				const copied = chain(["a", "b"].map((name) => `${name} of ${source}`));
				const { eventId: leaf } = one(copied, 1);
				const state = { ...stateUpdate(), reportedLeaf: leaf, isLeaf: false, happenedAt: at(3) };
				const own = event({ parentId: leaf, happenedAt: at(4) });
				await post(source, 1, poster && { poster });
				const version = isReported ? { effect: effectOf(0n, record({ id: fork })) } : {};
				await appendEvents(store, batch(fork, [state, own], { receivedAt: at(3), poster, ...version }));
				expect((await missing(fork)).toSorted()).toEqual([`missing_parent ${leaf}`, "no_record "]);
				await post(stranger, 1, blue && { poster: blue });
				await send(stranger, copied, 4, blue);
				expect((await missing(fork)).toSorted()).toEqual([`missing_parent ${leaf}`, "no_record "]);
				await send(source, copied, 5, poster);
				expect([await missing(source), await missing(fork)]).toEqual([[], []]);
			}
		});

		it("are none for what a source of another owner may have", async () => {
			const [source, fork, fork2] = [randomUUID(), randomUUID(), randomUUID()];
			const [red, blue] = ["red", "blue"].map((owner): Poster => ({ sender: owner, owner }));
			const named = [event({ parentId: "unknown" })];
			await post(source, 1, red && { poster: red });
			await post(fork, 1, { source, ...(red && { poster: red }) });
			await post(fork2, 1, { source, ...(blue && { poster: blue }) });
			await send(fork, named, 2, red);
			await send(fork2, named, 2, blue);
			expect([await missing(fork), await missing(fork2)]).toEqual([["missing_parent unknown"], []]);
		});

		it("are none for what pruning removed, and go with what they are about", async () => {
			const [a, b] = [randomUUID(), randomUUID()];
			const events = chain(["one", "two", "three"]);
			await post(a, 1);
			await send(a, [one(events, 0), one(events, 2)], 2);
			await send(b, [event({ parentId: "lost" })], 2);
			expect([await missing(a), await missing(b)]).toEqual([
				["missing_parent two"],
				["no_record ", "missing_parent lost"],
			]);
			expect(await store.pruneEvents(at(3), 10)).toBe(3);
			expect([await missing(a), await missing(b)]).toEqual([[], []]);
			await send(a, [event({ parentId: "three" }), event({ parentId: "one" })], 4);
			expect(await missing(a)).toEqual([]);
			const gone = randomUUID();
			await append(store, sample({ conversationId: gone, receivedAt: at(5), columns: { status: "deleting" } }));
			await send(gone, [event({ parentId: "lost" })], 5);
			expect(await missing(gone)).toEqual(["missing_parent lost"]);
			await store.prune({ receivedBefore: at(6), limit: 100 });
			expect(await missing(gone)).toEqual([]);
		});

		it("are exactly the events that are missing, whatever the order, the repetitions and the batches", async () => {
			const names = Array.from({ length: 8 }, (_, n) => `event ${n}`);
			const arrivals = fc.array(fc.array(fc.nat(names.length - 1), { minLength: 1, maxLength: 4 }), { maxLength: 8 });
			await fc.assert(
				fc.asyncProperty(fc.array(fc.nat(20), { minLength: 8, maxLength: 8 }), arrivals, async (parents, batches) => {
					const a = randomUUID();
					// Each event follows any earlier one, so that the conversation is a tree.
					const events = names.map((eventId, n) =>
						event({
							eventId,
							happenedAt: at(n),
							parentId: n === 0 ? undefined : names[(parents[n] ?? 0) % n],
						}),
					);
					await post(a, 1);
					const arrived = new Set<number>();
					for (const indexes of batches) {
						await send(
							a,
							[...new Set(indexes)].map((n) => one(events, n)),
						);
						for (const n of indexes) arrived.add(n);
					}
					const named = [...arrived].flatMap((n) => one(events, n).parentId ?? []);
					const stored = new Set([...arrived].map((n) => names[n]));
					const wanted = [...new Set(named.filter((id) => !stored.has(id)))].sort();
					expect((await store.listGaps(a)).map((gap) => gap.missing).toSorted()).toEqual(wanted);
				}),
				{ numRuns: 30 },
			);
		});
	});
}
