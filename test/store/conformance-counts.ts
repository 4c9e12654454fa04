import { fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { ServiceError } from "../../src/errors.ts";
import { fromMicroseconds } from "../../src/record/json/scalars.ts";
import type { Condition } from "../../src/store/condition.ts";
import type { CountGroup } from "../../src/store/conversation-lists.ts";
import type { Poster } from "../../src/store/owners.ts";
import type { Store } from "../../src/store/store.ts";
import { USED_LENGTHS, type UsageGroup, type UsagePeriod } from "../../src/store/usage-report.ts";
import { appendEvents, batch, effectOf, event, record, stateUpdate, titleDelta } from "./event-samples.ts";
import { append, type Columns, sample, second, start } from "./samples.ts";

const POSTERS: readonly (Poster | undefined)[] = [
	undefined,
	{ sender: "operator", owner: undefined },
	{ sender: "red-server", owner: "red" },
	{ sender: "blue-server", owner: "blue" },
];
const CONVERSATIONS = 6;
const id = (n: number) => `00000000-0000-4000-8000-00000000000${n}`;

const columns = fc.record({
	status: fc.constantFrom("idle", "running", "finished", "deleting"),
	agentKind: fc.constantFrom("Agent", "ACPAgent"),
	model: fc.constantFrom("a", "b", "m".repeat(400)),
	/** Number of calls that the record lists, and whether it is a fork of the next conversation. */
	calls: fc.nat(3),
	isFork: fc.boolean(),
	tags: fc.dictionary(fc.constantFrom("team", "x"), fc.constantFrom("1", "2"), { maxKeys: 2 }),
});
const conversation = fc.nat(CONVERSATIONS - 1);
/** What can change which conversations there are, and their values. */
const operation = fc.oneof(
	fc.record({ kind: fc.constant("post" as const), conversation, poster: fc.nat(POSTERS.length - 1), columns }),
	fc.record({ kind: fc.constant("event" as const), conversation, columns }),
	fc.record({ kind: fc.constant("assign" as const), conversation, owner: fc.constantFrom("red", "green") }),
	fc.record({ kind: fc.constant("remove deleted" as const) }),
	fc.record({ kind: fc.constant("prune history" as const) }),
	fc.record({ kind: fc.constant("prune events" as const) }),
	fc.record({ kind: fc.constant("erase" as const), conversation }),
	// Lets the view follow what was stored so far.
	fc.record({ kind: fc.constant("list" as const) }),
);
type Operation = typeof operation extends fc.Arbitrary<infer Value> ? Value : never;

/** Conditions on usage, which the sums have. */
const USAGE_CONDITIONS: readonly (readonly Condition[])[] = [
	[],
	[{ kind: "equal", field: "owner", value: "red" }],
	[
		{ kind: "equal", field: "sender", value: "red-server" },
		{ kind: "equal", field: "owner", value: "green" },
	],
];
const GROUPS: readonly (CountGroup | undefined)[] = [
	undefined,
	...(["executionStatus", "agentKind", "model", "sender", "owner", "tagKey"] as const).map((by) => ({ by })),
	{ by: "tag", key: "team" },
];

async function perform(store: Store, done: Operation, n: number): Promise<void> {
	const receivedAt = start + BigInt(n) * second;
	const valuesOf = (of: Partial<Columns>) => ({ ...of, updatedAt: receivedAt });
	switch (done.kind) {
		case "post": {
			const { model, calls, isFork } = done.columns;
			const tokenUsages = Array.from({ length: calls }, (_, call) => ({
				...{ model, promptTokens: 5n, responseId: `response-${call}` },
			}));
			const stats = {
				usageToMetrics: {
					agent: { modelName: model, accumulatedTokenUsage: { promptTokens: BigInt(n) }, tokenUsages },
				},
			};
			const source = isFork ? id((done.conversation + 1) % CONVERSATIONS) : undefined;
			const post = sample({
				conversationId: id(done.conversation),
				receivedAt,
				record: record({
					title: `${n}`,
					stats,
					createdAt: fromMicroseconds(start),
					...(source === undefined ? {} : { forkedFromConversationId: source }),
				}),
				columns: valuesOf(done.columns),
			});
			await append(store, { ...post, summary: summaryWith(post.summary, source), poster: POSTERS[done.poster] }).catch(
				(error: unknown) => {
					// The conversation belongs to another owner.
					if (!(error instanceof ServiceError && error.kind === "permission_denied")) throw error;
				},
			);
			return;
		}
		case "event": {
			const conversationId = id(done.conversation);
			const { revision, current } = await store.getRecordState(conversationId, []);
			if (current === undefined) return;
			const effect = effectOf(revision, titleDelta(`event ${n}`), valuesOf(done.columns));
			const llmResponseId = `response-${done.columns.calls}`;
			const events = [stateUpdate(), event({ llmResponseId, happenedAt: receivedAt + 3600n * second })];
			await appendEvents(store, batch(conversationId, events, { receivedAt, effect }));
			return;
		}
		case "assign":
			await store.assignOwner({ owner: done.owner, of: { ids: [id(done.conversation)] }, limit: 10 });
			return;
		case "remove deleted":
			await store.prune({ receivedBefore: receivedAt, limit: 100 });
			return;
		case "prune history":
			await store.prune({ updatesPerConversation: 1, limit: 100 });
			return;
		case "prune events":
			await store.pruneEvents(receivedAt, 100);
			return;
		case "erase":
			await store.erase({ conversationId: id(done.conversation), owner: undefined, erasedAt: receivedAt });
			return;
		case "list":
			await store.listConversations({ conditions: [], limit: 1, withRecords: false });
	}
}

/** Returns a summary that names the source of a fork. */
function summaryWith(summary: Uint8Array, forkedFromConversationId: string | undefined): Uint8Array {
	if (forkedFromConversationId === undefined) return summary;
	const named = { ...fromBinary(ConversationSummarySchema, summary), forkedFromConversationId };
	return toBinary(ConversationSummarySchema, named);
}

/** A condition of each kind that an operation can change. */
const FILTERS: readonly Condition[] = [
	{ kind: "equal", field: "owner", value: "red" },
	{ kind: "equal", field: "sender", value: "blue-server" },
	{ kind: "equal", field: "model", value: "b" },
	{ kind: "one_of", field: "executionStatus", values: [2, 5] },
	{ kind: "tag", key: "team", value: undefined },
	{ kind: "tag", key: "x", value: "1" },
	{ kind: "title", contains: "event" },
	{ kind: "gaps", value: true },
	{ kind: "error", value: false },
];

/** Reads everything that the view of conversations tells. */
async function readView(store: Store) {
	const orders = ["updated", "activity", "created", "cost", "tokens"] as const;
	const read = (order: (typeof orders)[number], conditions: readonly Condition[]) =>
		store.listConversations({ conditions, order, limit: 100, withRecords: false });
	return {
		lists: await Promise.all(orders.map((order) => read(order, []))),
		filtered: await Promise.all(FILTERS.map((condition) => read("updated", [condition]))),
		counts: await Promise.all(GROUPS.map((group) => store.countConversations({ conditions: [], group, limit: 100 }))),
		...(await readUsage(store)),
	};
}

/** Reads everything that the view of usage tells. */
async function readUsage(store: Store) {
	const range = await store.getUsageRange();
	if (range === undefined) return { range };
	const quarters = await store.listUsedPeriods({ ...range, length: USED_LENGTHS.hour, limit: 1_000 });
	const hours = quarters.map((first) => ({ first, beyond: first + 4n }));
	const report = (periods: readonly UsagePeriod[], groups: readonly UsageGroup[]) =>
		store.reportUsage({ periods, groups, conditions: [], top: 0, limit: 1_000 });
	return {
		...{ range, quarters },
		models: (await store.listModelUsage()).toSorted((a, b) => (a.model < b.model ? -1 : 1)),
		// From the sums, from the days and from the ledger.
		sums: await report(hours, [{ kind: "usage_id" }, { kind: "model" }, { kind: "sender" }, { kind: "owner" }]),
		days: await report([range], [{ kind: "model" }, { kind: "agent_kind" }]),
		ledger: await report(hours, [{ kind: "conversation" }, { kind: "model" }]),
	};
}

/** Returns the first quarter of the hour of a time. */
function hourOf(time: bigint): bigint {
	return (time / (3_600n * second)) * 4n;
}

/** @param open opens an empty store */
export function countConformance(open: () => Promise<Store>, factor: number): void {
	describe("the view of conversations", () => {
		it("is the same when it is reset and follows again, after any operations", async () => {
			await fc.assert(
				fc.asyncProperty(fc.array(operation, { maxLength: 30 }), async (operations) => {
					await using store = await open();
					for (const [n, done] of operations.entries()) await perform(store, done, n + 1);
					const grown = await readView(store);
					await store.resetViews(["conversations", "usage"]);
					expect(await readView(store)).toEqual(grown);
				}),
				{ numRuns: 4 * factor },
			);
		});
	});

	describe("the view of usage", () => {
		it("has a call in the quarter of the record that first showed it, however many entries are read together", async () => {
			await using store = await open();
			const columns = { status: "idle", agentKind: "Agent", model: "a", tags: {} } as const;
			const post = (n: number, of: number, calls: number) =>
				perform(
					store,
					{ kind: "post", conversation: of, poster: 0, columns: { ...columns, calls, isFork: of === 0 } },
					n,
				);
			const hour = 3_600;
			await post(1, 0, 1);
			// A fork that has an event is judged again by its current record.
			await perform(store, { kind: "event", conversation: 0, columns: { ...columns, calls: 3, isFork: true } }, 2);
			for (let n = 3; n < 260; n++) await post(n, 1, 1);
			await post(hour, 0, 2);
			await post(3 * hour, 0, 2);
			await store.resetViews(["usage"]);
			const range = await store.getUsageRange();
			if (range === undefined) throw new Error("there is no usage");
			const hours = (await store.listUsedPeriods({ ...range, length: USED_LENGTHS.hour, limit: 100 })).map((first) => ({
				...{ first, beyond: first + 4n },
			}));
			const groups: UsageGroup[] = [{ kind: "conversation" }];
			const { rows } = await store.reportUsage({ periods: hours, groups, conditions: [], top: 0, limit: 100 });
			const shown = rows.filter(({ group, amounts }) => group[0] === id(0) && amounts.calls > 0n);
			expect(shown.map(({ period, amounts }) => [hours[period]?.first, amounts.calls])).toEqual([
				[hourOf(start), 1n],
				[hourOf(start + BigInt(hour) * second), 1n],
			]);
		});

		it("counts the calls of a conversation with more entries than a step takes", async () => {
			await using store = await open();
			const columns = { status: "idle", agentKind: "Agent", model: "a", tags: {}, isFork: false } as const;
			const post = (n: number, calls: number) =>
				perform(store, { kind: "post", conversation: 0, poster: 0, columns: { ...columns, calls } }, n);
			await post(1, 0);
			// The views follow it, so that what is appended next is not read in parts.
			await store.getUsageRange();
			await Promise.all(Array.from({ length: 2_000 }, (_, n) => post(n + 2, n < 100 ? 1 : n < 1_900 ? 2 : 3)));
			const range = await store.getUsageRange();
			if (range === undefined) throw new Error("there is no usage");
			const groups: UsageGroup[] = [{ kind: "conversation" }];
			const { rows } = await store.reportUsage({ periods: [range], groups, conditions: [], top: 0, limit: 100 });
			expect(rows.map(({ group, amounts }) => [group[0], amounts.calls])).toEqual([[id(0), 3n]]);
		});
	});

	describe("sums of usage", () => {
		it("are those of the ledger, after any operations", async () => {
			await fc.assert(
				fc.asyncProperty(fc.array(operation, { maxLength: 30 }), async (operations) => {
					await using store = await open();
					for (const [n, done] of operations.entries()) await perform(store, done, n + 1);
					const range = await store.getUsageRange();
					const periods = range === undefined ? [] : [range];
					const asked = ([[{ kind: "owner" }], [{ kind: "model" }]] satisfies UsageGroup[][]).flatMap((groups) =>
						USAGE_CONDITIONS.map((conditions) => ({ groups, whole: { periods, conditions, top: 0, limit: 100 } })),
					);
					for (const { groups, whole } of asked) {
						const sums = await store.reportUsage({ ...whole, groups });
						// The usage of each conversation is read from the ledger.
						const ledger = await store.reportUsage({ ...whole, groups: [...groups, { kind: "conversation" }] });
						const byGroup = Map.groupBy(ledger.rows, ({ group: [value = ""] }) => value);
						const tokens = [...byGroup].map(([value, rows]) => ({
							...{ value, conversations: rows.length },
							tokens: rows.reduce((sum, { amounts }) => sum + amounts.promptTokens, 0n),
						}));
						const byValue = (a: { value: string }, b: { value: string }) => (a.value < b.value ? -1 : 1);
						expect(
							sums.rows
								.map(({ group: [value = ""], amounts, conversations }) => ({
									...{ value, conversations },
									tokens: amounts.promptTokens,
								}))
								.toSorted(byValue),
						).toEqual(tokens.toSorted(byValue));
					}
				}),
				{ numRuns: 4 * factor },
			);
		}, 120_000);
	});
}
