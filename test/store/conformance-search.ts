import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SearchOrder } from "../../gen/conversations/v1/conversation_search_service_pb.js";
import { type SearchRequest, searchConversations } from "../../src/conversations/read/search.ts";
import { visibleStore } from "../../src/conversations/read/visible-store.ts";
import type { CallSignal } from "../../src/errors.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { TextIndexer } from "../../src/search/indexer.ts";
import type { EventQuery } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { NO_PROGRESS } from "../../src/store/text-index.ts";
import type { StoreHarness } from "./conformance.ts";
import { appendEvents, batch, event, stateUpdate } from "./event-samples.ts";
import { append, sample, second, start } from "./samples.ts";

const format = new EventFormat(new RecordFormat(), [], "UTC");

/** A word of a text or a query: as it is written, and the words that it stands for, each with all its forms. */
interface Atom {
	readonly text: string;
	/** Words that follow each other. */
	readonly words: readonly (readonly string[])[];
}

const atom = (text: string, ...words: readonly (readonly string[])[]): Atom => ({ text, words });
const ATOMS: readonly Atom[] = [
	atom("alpha", ["alpha"]),
	atom("ALPHA,", ["alpha"]),
	atom("alphabet", ["alphabet"]),
	atom("beta", ["beta"]),
	atom("naïve", ["naive"]),
	atom("Straße", ["strasse"]),
	atom("read_file", ["read"], ["file"]),
	atom("file", ["file"]),
	atom("FooBar", ["foobar", "foo", "bar"]),
	atom("bar", ["bar"]),
	atom("src/app.ts", ["src"], ["app"], ["ts"]),
	atom("app", ["app"]),
	atom("登录页面", ["登"], ["录"], ["页"], ["面"]),
	atom("页面", ["页"], ["面"]),
	atom("録", ["録"]),
	atom("ภาษาไทย", ["ภ"], ["า"], ["ษ"], ["า"], ["ไ"], ["ท"], ["ย"]),
	atom("ไทย", ["ไ"], ["ท"], ["ย"]),
	atom("🚀", ["🚀"]),
	atom("✓", ["✓"]),
];
const PREFIXES = [
	atom("al", ["al"]),
	atom("alp", ["alp"]),
	atom("fo", ["fo"]),
	atom("str", ["str"]),
	atom("src/a", ["src"], ["a"]),
];
const OWNERS = [undefined, "red", "blue"] as const;

const text = fc.array(fc.constantFrom(...ATOMS), { minLength: 1, maxLength: 5 });
const conversation = fc.nat(4);
const step = fc.oneof(
	{
		weight: 4,
		arbitrary: fc.record({ kind: fc.constant("event" as const), conversation, text, isAdded: fc.boolean() }),
	},
	{ weight: 3, arbitrary: fc.record({ kind: fc.constant("record" as const), conversation, text }) },
	{ weight: 1, arbitrary: fc.record({ kind: fc.constant("prune" as const), count: fc.integer({ min: 1, max: 3 }) }) },
	{
		weight: 1,
		arbitrary: fc.record({ kind: fc.constant("assign" as const), conversation, owner: fc.constantFrom("red", "blue") }),
	},
	{ weight: 2, arbitrary: fc.record({ kind: fc.constant("index" as const), steps: fc.integer({ min: 1, max: 3 }) }) },
	{ weight: 1, arbitrary: fc.constant({ kind: "reopen" as const }) },
	{ weight: 1, arbitrary: fc.constant({ kind: "reset" as const }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const term = fc.oneof(
	fc.record({ kind: fc.constant("word" as const), of: fc.constantFrom(...ATOMS).map((one) => [one]) }),
	fc.record({
		kind: fc.constant("phrase" as const),
		of: fc.array(fc.constantFrom(...ATOMS), { minLength: 1, maxLength: 2 }),
	}),
	fc.record({ kind: fc.constant("prefix" as const), of: fc.constantFrom(...PREFIXES).map((one) => [one]) }),
);
type Term = typeof term extends fc.Arbitrary<infer T> ? T : never;
const search = fc.record({
	required: fc.array(term, { minLength: 1, maxLength: 2 }),
	excluded: fc.array(term, { maxLength: 1 }),
	owner: fc.constantFrom(...OWNERS),
	pageSize: fc.integer({ min: 1, max: 4 }),
});
type Search = typeof search extends fc.Arbitrary<infer T> ? T : never;

const id = (n: number) => `00000000-0000-4000-8000-00000000000${n}`;
const written = ({ kind, of }: Term) => {
	const words = of.map((one) => one.text).join(" ");
	return kind === "phrase" ? `"${words}"` : `${words}${kind === "prefix" ? "*" : ""}`;
};
const queryOf = ({ required, excluded }: Search) =>
	[...required.map(written), ...excluded.map((one) => `-${written(one)}`)].join(" ");

/** What is stored of a text. */
interface Document {
	readonly conversation: number;
	readonly atoms: readonly Atom[];
	/** When it was received, as a number of the step. */
	readonly at: number;
	/** Undefined for a title. */
	readonly sequence: bigint | undefined;
}

/** Everything that is stored, searched without any index. */
class Model {
	events: Document[] = [];
	readonly titles = new Map<number, Document>();
	readonly owners = new Map<number, string>();

	/** Returns ids and places of the hits. */
	find({ required, excluded, owner }: Search, order: SearchOrder): [string, string[]][] {
		const visible = (one: Document) => owner === undefined || this.owners.get(one.conversation) === owner;
		const meets = ({ atoms }: Document) =>
			required.every((one) => has(atoms, one)) && !excluded.some((one) => has(atoms, one));
		const found = [...this.events, ...this.titles.values()].filter((one) => visible(one) && meets(one));
		const hits = [...Map.groupBy(found, (one) => one.conversation)].map(([of, documents]) => {
			const newest = documents.toSorted((a, b) => this.#placeOf(b) - this.#placeOf(a));
			const weight = documents.reduce((sum, one) => sum + (one.sequence === undefined ? 10 : 1), 0);
			const places = newest.toSorted((a, b) => Number(a.sequence !== undefined) - Number(b.sequence !== undefined));
			const [first] = newest;
			return {
				of,
				at: first === undefined ? 0 : this.#placeOf(first),
				weight,
				places: places.map((one) => String(one.sequence ?? 0n)),
			};
		});
		const byWeight = order === SearchOrder.RELEVANCE;
		hits.sort((a, b) => (byWeight ? b.weight - a.weight : 0) || b.at - a.at);
		return hits.map(({ of, places }) => [id(of), places.slice(0, 3)]);
	}

	/** A title stands after the newest event of its conversation; titles without one in the order of their records. */
	#placeOf({ conversation, at, sequence }: Document): number {
		if (sequence !== undefined) return Number(sequence);
		const events = this.events.filter((one) => one.conversation === conversation);
		return Math.max(0, ...events.map((one) => Number(one.sequence))) + at / 1_000;
	}
}

/** Returns whether the words of a text contain those of a term, one after the other. */
function has(atoms: readonly Atom[], { kind, of }: Term): boolean {
	const words = atoms.flatMap((one) => one.words);
	const wanted = of.flatMap((one) => one.words.map((forms) => forms[0] ?? ""));
	const isSymbol = (word: string | undefined) => word === "🚀" || word === "✓";
	return words.some((_, at) => {
		let next = at;
		return wanted.every((word, n) => {
			while (n > 0 && !isSymbol(word) && isSymbol(words[next]?.[0])) next += 1;
			const forms = words[next++] ?? [];
			const isBegin = kind === "prefix" && n === wanted.length - 1;
			return forms.some((form) => (isBegin ? form.startsWith(word) : form === word));
		});
	});
}

/** Tests of the index of search. Each engine must find what a model finds that reads all texts. */
export function searchConformance(harness: StoreHarness, factor: number): void {
	const open = () => harness.open(async () => false);
	const indexerOf = (store: Store) => new TextIndexer({ store, format });

	async function indexAll(store: Store): Promise<void> {
		const indexer = indexerOf(store);
		while (await indexer.step());
		await indexer.release();
	}

	function searchOf(store: Store, owner?: string) {
		const fail = ({ error }: { readonly error: Error }) => {
			throw error;
		};
		const searched = { store: visibleStore(store, owner), format, onUnreadable: fail };
		return {
			search: (request: SearchRequest, signal?: CallSignal) => searchConversations(searched, request, signal),
		};
	}

	/** Returns ids and places of all pages. */
	async function findAll(
		store: Store,
		request: Pick<SearchRequest, "query" | "orderBy"> & { readonly pageSize?: number },
		owner?: string,
	): Promise<[string, string[]][]> {
		const found: [string, string[]][] = [];
		for (let pageToken = ""; ; ) {
			const page = await searchOf(store, owner).search({ pageSize: 1000, ...request, pageToken });
			for (const { summary, places } of page.hits)
				found.push([summary.id, places.map(({ sequence }) => String(sequence))]);
			if (page.nextPageToken === "") return found;
			pageToken = page.nextPageToken;
		}
	}

	const message = (content: string) =>
		Buffer.from(JSON.stringify({ kind: "MessageEvent", llm_message: { content: [{ type: "text", text: content }] } }));

	/** Returns a store that does something before it lists events. */
	function listing(store: Store, onList: (query: EventQuery) => Promise<unknown>): Store {
		const list: typeof store.events.list = async (query) => {
			await onList(query);
			return await store.events.list(query);
		};
		return { ...store, events: { ...store.events, list } };
	}

	async function post(store: Store, of: number, at: number, title: string): Promise<void> {
		const receivedAt = start + BigInt(at) * second;
		await append(store, sample({ conversationId: id(of), receivedAt, columns: { title, updatedAt: receivedAt } }));
	}

	async function say(store: Store, of: number, at: number, content: string): Promise<bigint> {
		const receivedAt = start + BigInt(at) * second;
		const one = event({ eventId: `event ${at}`, happenedAt: receivedAt, text: message(content) });
		const appended = await appendEvents(store, batch(id(of), [one], { receivedAt }));
		return appended?.newest ?? 0n;
	}

	/** Does a step. Some events are handed to the indexer, the others it has to read. */
	async function act(store: Store, indexer: TextIndexer, model: Model, one: Step, at: number): Promise<Store> {
		switch (one.kind) {
			case "event": {
				const content = one.text.map((of) => of.text).join(" ");
				const sequence = await say(store, one.conversation, at, content);
				if (one.isAdded) indexer.add(id(one.conversation), sequence, [{ texts: [content] }]);
				model.events.push({ conversation: one.conversation, atoms: one.text, at, sequence });
				return store;
			}
			case "record": {
				const title = one.text.map((of) => of.text).join(" ");
				await post(store, one.conversation, at, title);
				model.titles.set(one.conversation, {
					conversation: one.conversation,
					atoms: one.text,
					at,
					sequence: undefined,
				});
				return store;
			}
			case "prune": {
				const removed = await store.pruneEvents(2n ** 60n, one.count);
				model.events = model.events.slice(removed);
				// Nothing is left of a conversation without a record.
				for (const of of model.owners.keys())
					if (!model.titles.has(of) && model.events.every((other) => other.conversation !== of))
						model.owners.delete(of);
				return store;
			}
			case "assign":
				if ((await store.assignOwner({ owner: one.owner, of: { ids: [id(one.conversation)] }, limit: 10 })) > 0)
					model.owners.set(one.conversation, one.owner);
				return store;
			case "index":
				for (let n = 0; n < one.steps; n++) await indexer.step();
				return store;
			case "reopen":
				await indexer.release();
				return await harness.reopen(store);
			case "reset":
				await store.resetIndex();
				return store;
		}
	}

	describe("search", () => {
		it("finds what a search through all texts finds, in both orders and for each owner", async () => {
			await fc.assert(
				fc.asyncProperty(
					fc.array(step, { minLength: 20, maxLength: 60, size: "max" }),
					fc.array(search, { minLength: 24, maxLength: 24 }),
					async (steps, searches) => {
						let store = await open();
						try {
							const model = new Model();
							let indexer = indexerOf(store);
							for (const [n, one] of steps.entries()) {
								const next = await act(store, indexer, model, one, n + 1);
								if (next !== store) indexer = indexerOf(next);
								store = next;
							}
							while (await indexer.step());
							await indexer.release();
							for (const one of searches)
								for (const orderBy of [SearchOrder.NEWEST, SearchOrder.RELEVANCE]) {
									const request = { query: queryOf(one), orderBy, pageSize: one.pageSize };
									const found = await findAll(store, request, one.owner);
									expect([request.query, found]).toEqual([request.query, model.find(one, orderBy)]);
								}
						} finally {
							await store.close();
						}
					},
				),
				{ numRuns: 2 * factor },
			);
		});

		it("says how far the index comes, and finds nothing that was pruned although the index is behind", async () => {
			await using store = await open();
			await post(store, 0, 1, "the title");
			const first = await say(store, 0, 2, "gone tomorrow");
			expect(await store.readIndexProgress()).toEqual(NO_PROGRESS);
			await indexAll(store);
			const before = await searchOf(store).search({ query: "gone", pageSize: 0, pageToken: "" });
			expect([before.hits.length, before.indexedThrough]).toEqual([1, first]);
			const last = await say(store, 0, 3, "stays");
			await store.pruneEvents(start + 3n * second, 10);
			const after = await searchOf(store).search({ query: "gone", pageSize: 0, pageToken: "" });
			expect([after.hits, after.indexedThrough]).toEqual([[], first]);
			await indexAll(store);
			expect((await store.readIndexProgress()).events).toBe(last);
			expect(await findAll(store, { query: "stays" })).toEqual([[id(0), [String(last)]]]);
		});

		it("goes on when events could not be read", async () => {
			await using store = await open();
			await post(store, 0, 1, "the title");
			await indexAll(store);
			const texts = Array.from({ length: 401 }, () => event({ text: message("early") }));
			await appendEvents(store, batch(id(0), texts));
			let reads = 0;
			const indexer = indexerOf(
				listing(store, async () => {
					reads += 1;
					if (reads === 2) throw new Error("the database is away");
				}),
			);
			expect(await indexer.step(200)).toBe(201);
			await expect(indexer.step(200)).rejects.toThrow("the database is away");
			expect([await indexer.step(200), await indexer.step(200), await indexer.step(200)]).toEqual([1, 0, 0]);
			await indexer.release();
			expect((await store.readIndexProgress()).events).toBe((await store.events.range()).newest);
		});

		it("reads only the events between those that were handed to it", async () => {
			await using store = await open();
			await post(store, 0, 1, "the title");
			const first = await say(store, 0, 2, "begin");
			const reads: unknown[] = [];
			const indexer = indexerOf(listing(store, async ({ after, before }) => reads.push([after, before])));
			while (await indexer.step());
			reads.length = 0;
			const hand = async (at: number, texts: readonly string[]) => {
				const newest = await say(store, 0, at, texts.join(" "));
				indexer.add(id(0), newest, [{ texts }]);
				return newest;
			};
			const handed = [await hand(3, ["handed over"]), await hand(4, ["handed", "too"])];
			const unseen = [await say(store, 0, 5, "unseen"), await say(store, 0, 6, "unseen")];
			handed.push(await hand(7, ["handed at last"]));
			while (await indexer.step(1));
			const [third = 0n, fourth = 0n, seventh = 0n] = handed;
			const [fifth = 0n] = unseen;
			expect(reads).toEqual([
				[fourth, seventh],
				[fifth, seventh],
			]);
			const placesOf = async (query: string) => (await findAll(store, { query }))[0]?.[1];
			expect(await placesOf("begin")).toEqual([String(first)]);
			expect(await placesOf("handed")).toEqual([seventh, fourth, third].map(String));
			expect(await placesOf("unseen")).toEqual(unseen.toReversed().map(String));
			expect((await store.readIndexProgress()).events).toBe(seventh);
			await indexer.release();
		});

		it("reads events that were handed to it before they could be lost, or are too large to keep", async () => {
			await using store = await open();
			await say(store, 0, 1, "begin");
			const reads: unknown[] = [];
			const indexer = indexerOf(listing(store, async ({ after, before }) => reads.push([after, before])));
			const add = async (at: number, said: string, handed: string) => {
				const newest = await say(store, 0, at, said);
				indexer.add(id(0), newest, [{ texts: [handed] }]);
				return newest;
			};
			// This process does not have the index yet.
			const second = await add(2, "stored", "handed");
			while (await indexer.step());
			const third = await add(3, "stored", "handed");
			indexer.forget();
			while (await indexer.step());
			const fourth = await add(4, "stored", `handed ${" ".repeat(2 ** 25)}`);
			const fifth = await add(5, "stored", "handed");
			while (await indexer.step());
			expect(reads).toEqual([
				[0n, second + 1n],
				[second, third + 1n],
				[fourth, fifth + 1n],
			]);
			await post(store, 0, 6, "the title");
			expect(await findAll(store, { query: "stored" })).toEqual([[id(0), [fifth, third, second].map(String)]]);
			await indexer.release();
		});

		it("gives up a step when entries are lost while it is made", async () => {
			await using store = await open();
			const first = await say(store, 0, 1, "begin");
			let isLost = true;
			const indexer = indexerOf(
				listing(store, async () => {
					if (isLost) indexer.forget();
					isLost = false;
				}),
			);
			// The first step begins the index.
			expect([await indexer.step(), await indexer.step()]).toEqual([1, 1]);
			expect((await store.readIndexProgress()).events).toBe(0n);
			expect(await indexer.step()).toBe(0);
			expect((await store.readIndexProgress()).events).toBe(first);
			await indexer.release();
		});

		it("says that an event waits which arrives while a step is written", async () => {
			await using store = await open();
			await post(store, 0, 1, "the title");
			await indexAll(store);
			await say(store, 0, 1, "early");
			const { events, claim, readIndexProgress, writeIndexStep } = store;
			let reads = 0;
			const range: typeof events.range = async (query) => {
				reads += 1;
				if (reads === 2) await say(store, 0, 2, "late");
				return await events.range(query);
			};
			const arriving = { events: { ...events, range }, claim, readIndexProgress, writeIndexStep };
			const indexer = new TextIndexer({ store: arriving, format });
			const { newest } = await events.range();
			expect(await indexer.step()).toBe(1);
			expect((await readIndexProgress()).events).toBe(newest);
			expect(await indexer.step()).toBe(0);
			expect((await readIndexProgress()).events).toBe(newest + 1n);
			await indexer.release();
		});

		it("finds what arrived after the next events were read, when those have no words", async () => {
			await using store = await open();
			await post(store, 0, 1, "the title");
			const texts = Array.from({ length: 200 }, () => event({ text: message("early") }));
			await appendEvents(store, batch(id(0), texts));
			await appendEvents(store, batch(id(0), [stateUpdate()]));
			const indexer = indexerOf(store);
			await indexer.step(200);
			expect(await indexer.step(200)).toBe(1);
			const late = await say(store, 0, 2, "late");
			while (await indexer.step(200));
			await indexer.release();
			expect(await findAll(store, { query: "late" })).toEqual([[id(0), [String(late)]]]);
		});

		it("begins anew when the index is reset while events wait", async () => {
			await using store = await open();
			await post(store, 0, 1, "the title");
			const first = await say(store, 0, 2, "begin");
			const texts = Array.from({ length: 400 }, () => event({ text: message("early") }));
			await appendEvents(store, batch(id(0), texts));
			const indexer = indexerOf(store);
			expect(await indexer.step(200)).toBe(1);
			expect(await indexer.step(200)).toBe(201);
			await store.resetIndex();
			expect(await indexer.step(200)).toBe(1);
			while (await indexer.step(200));
			await indexer.release();
			expect(await findAll(store, { query: "begin" })).toEqual([[id(0), [String(first)]]]);
		});

		it("has the same order after the index was written anew, whenever and in whatever order things arrived", async () => {
			await using store = await open();
			// Received before what was stored before it, as a large record is, or a post to another process.
			await say(store, 0, 50, "first");
			await post(store, 1, 40, "title");
			await indexAll(store);
			await say(store, 1, 30, "second");
			await post(store, 2, 60, "title");
			await indexAll(store);
			await say(store, 2, 20, "third");
			await post(store, 3, 10, "another");
			await indexAll(store);
			await say(store, 3, 70, "fourth");
			await post(store, 3, 15, "title");
			await post(store, 4, 5, "title");
			await post(store, 5, 80, "title");
			await indexAll(store);
			const order = async () => (await findAll(store, { query: "title" })).map(([of]) => of);
			const before = await order();
			expect(before).toEqual([id(3), id(2), id(1), id(5), id(4)]);
			await store.resetIndex();
			await indexAll(store);
			expect(await order()).toEqual(before);
			// The record with which a title came may be removed, but not the present one.
			await post(store, 4, 90, "title");
			const after = await order();
			expect(after).toEqual([id(3), id(2), id(1), id(4), id(5)]);
			await store.prune({ receivedBefore: start + 85n * second, limit: 100 });
			await store.resetIndex();
			await indexAll(store);
			expect(await order()).toEqual(after);
		});

		it("ends before its next read when the caller has gone, and reads nothing for one who had gone before", async () => {
			await using store = await open();
			await post(store, 0, 1, "words");
			await say(store, 0, 2, "words");
			await indexAll(store);
			const query = { required: [{ word: "words", isPrefix: false }], excluded: [], conditions: [], limit: 10 };
			const gone = { kind: "unavailable", message: "the sender no longer waits for the response" };
			await expect(store.findDocuments(query, { aborted: true })).rejects.toMatchObject(gone);
			const signal = { aborted: false };
			const reads: string[] = [];
			const leaving: Store = {
				...store,
				async findDocuments(documents, of) {
					reads.push("find");
					const found = await store.findDocuments(documents, of);
					signal.aborted = true;
					return found;
				},
				async readEvents(sequences) {
					reads.push("readEvents");
					return await store.readEvents(sequences);
				},
			};
			const request = { query: "words", pageSize: 0, pageToken: "" };
			await expect(searchOf(leaving).search(request, signal)).rejects.toMatchObject(gone);
			expect(reads).toEqual(["find"]);
		});

		it("leaves out what was removed after the indexer read it, and writes no step twice", async () => {
			await using store = await open();
			await post(store, 0, 1, "title");
			const sequence = await say(store, 0, 2, "words");
			await indexAll(store);
			const expects = await store.readIndexProgress();
			const next = { ...expects, events: expects.events + 1_000n };
			const late = { conversationId: id(0), sequence: sequence + 1n, words: "late" };
			expect(await store.writeIndexStep({ expects, next, events: [late] })).toBe(true);
			expect(await store.writeIndexStep({ expects, next, events: [] })).toBe(false);
			expect(await store.readIndexProgress()).toEqual(next);
			const query = { required: [{ word: "late", isPrefix: false }], excluded: [], conditions: [], limit: 10 };
			expect(await store.findDocuments(query)).toEqual([]);
		});

		it("removes the title and the texts of a conversation that is removed", async () => {
			await using store = await open();
			const columns = { title: "doomed", status: "deleting", updatedAt: start };
			await append(store, sample({ conversationId: id(0), receivedAt: start, columns }));
			await say(store, 0, 2, "doomed too");
			await indexAll(store);
			expect((await findAll(store, { query: "doomed" })).length).toBe(1);
			while ((await store.prune({ receivedBefore: start + 100n * second, limit: 1 })) > 0);
			const query = { required: [{ word: "doomed", isPrefix: false }], excluded: [], conditions: [], limit: 10 };
			expect(await store.findDocuments(query)).toEqual([]);
			await post(store, 0, 5, "another");
			await say(store, 0, 6, "nothing");
			await indexAll(store);
			expect(await findAll(store, { query: "doomed" })).toEqual([]);
			expect((await findAll(store, { query: "another" })).length).toBe(1);
		});

		it("has pages of up to 1000 hits", async () => {
			await using store = await open();
			const ids = Array.from({ length: 1_003 }, (_, n) => `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`);
			const columns = { title: "one of many", updatedAt: start };
			await Promise.all(ids.map((conversationId) => append(store, sample({ conversationId, columns }))));
			await indexAll(store);
			for (const orderBy of [SearchOrder.NEWEST, SearchOrder.RELEVANCE]) {
				const request = { query: "many", orderBy, pageSize: 5_000 };
				const first = await searchOf(store).search({ ...request, pageToken: "" });
				const next = await searchOf(store).search({ ...request, pageToken: first.nextPageToken });
				expect([first.hits.length, next.hits.length, next.nextPageToken]).toEqual([1_000, 3, ""]);
				expect([...first.hits, ...next.hits].map(({ summary }) => summary.id).sort()).toEqual(ids);
			}
		});

		it("finds hits beyond the newest documents that relevance compares, each once", async () => {
			await using store = await open();
			const at = (n: number) => start + BigInt(n) * second;
			for (let of = 0; of < 5; of++) await post(store, of, of + 1, `title ${of}`);
			const events = (of: number, count: number, content: string) =>
				Array.from({ length: count }, (_, n) =>
					event({ eventId: `${of} ${n} ${content}`, happenedAt: at(n), text: message(content) }),
				);
			// The words of the phrase are in all of them.
			await appendEvents(store, batch(id(0), events(0, 3, "green tea"), { receivedAt: at(10) }));
			await appendEvents(store, batch(id(1), events(1, 700, "tea, green"), { receivedAt: at(11) }));
			await appendEvents(store, batch(id(2), events(2, 600, "green tea"), { receivedAt: at(12) }));
			await appendEvents(store, batch(id(3), events(3, 1, "green tea"), { receivedAt: at(13) }));
			await indexAll(store);
			const ids = async (orderBy: SearchOrder, pageSize: number) =>
				(await findAll(store, { query: '"green tea"', orderBy, pageSize })).map(([one]) => one);
			expect(await ids(SearchOrder.NEWEST, 1)).toEqual([id(3), id(2), id(0)]);
			expect(await ids(SearchOrder.RELEVANCE, 1)).toEqual([id(2), id(3), id(0)]);
			expect(await ids(SearchOrder.RELEVANCE, 1000)).toEqual([id(2), id(3), id(0)]);
		});
	});
}
