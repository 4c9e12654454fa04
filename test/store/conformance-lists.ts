import { randomUUID } from "node:crypto";
import { fromBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import {
	type Condition,
	type ListOrder,
	microsecondsOf,
	NOT_REPORTED,
	orderedTokens,
	summaryMeets,
} from "../../src/store/condition.ts";
import type { CountGroup, StoredConversation } from "../../src/store/conversation-lists.ts";
import type { AppendedUpdate } from "../../src/store/entries.ts";
import type { Store } from "../../src/store/store.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import {
	append,
	conditions,
	type Filter,
	listed,
	matches,
	pages,
	type Sample,
	sample,
	second,
	start,
	summaryOf,
	whenFollowed,
	withRun,
	withTimes,
} from "./samples.ts";

const day = 86_400n * second;
const parents = [randomUUID(), randomUUID()];
const words = ["Login", "page", "fix", "the", "índex", "50%", "a_b", 'say "hi"', "émigré"];

const time = fc.bigInt({ min: start - 40n * day, max: start + 40n * day });
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
const tag = fc.record({ team: fc.constantFrom("a", "b"), rare: fc.constant("x") }, { requiredKeys: [] });

const columns = fc.record({
	status: fc.constantFrom("idle", "running", "paused", "deleting"),
	agentKind: fc.constantFrom("Agent", "ACPAgent"),
	model: fc.constantFrom("model-a", "model-b", ""),
	title: optional(fc.array(fc.constantFrom(...words), { maxLength: 3 }).map((parts) => parts.join(" "))),
	parentId: optional(fc.constantFrom(...parents)),
	createdAt: optional(time),
	updatedAt: optional(time),
	tags: tag,
});

const filter: fc.Arbitrary<Filter> = fc.record(
	{
		status: fc.constantFrom("idle", "running", "paused", "unknown"),
		agentKind: fc.constantFrom("Agent", "ACPAgent"),
		model: fc.constantFrom("model-a", "model-b", ""),
		parentId: fc.constantFrom(...parents),
		tags: tag,
		tagKey: fc.constantFrom("team", "rare", "unknown"),
		createdFrom: time,
		createdTo: time,
		updatedFrom: time,
		updatedTo: time,
		titleContains: fc.constantFrom(
			"",
			"o",
			"in",
			"LOGIN",
			"page f",
			"ÍNDEX",
			"índ",
			"%",
			"_",
			'"hi"',
			"login page",
			"GRÉ",
		),
	},
	{ requiredKeys: [] },
);

/** Tests of lists of conversations. */
export function listConformance(current: () => Store): void {
	describe("listConversations", () => {
		let store: Store;
		beforeEach(() => {
			store = current();
		});

		const list = async (by: Filter) => {
			const page = await store.listConversations({ conditions: conditions(by), limit: 100, withRecords: false });
			return page.map(({ conversationId }) => conversationId);
		};

		it("returns a consistent snapshot while updates are appended", async () => {
			const ids = Array.from({ length: 700 }, () => randomUUID());
			const appended: Promise<{ id: string; sequence: bigint }>[] = [];
			const found: Promise<StoredConversation[]>[] = [];
			for (let n = 0; n < 6_000; n++) {
				const id = ids[(n * 311) % ids.length] ?? "";
				const one = append(store, sample({ conversationId: id })).then(({ sequence }) => ({ id, sequence }));
				// A failure is reported below, and not for each of the others, too.
				one.catch(() => undefined);
				appended.push(one);
				if (n % 1_000 === 999)
					found.push(whenFollowed(() => store.listConversations({ conditions: [], limit: 1_000, withRecords: false })));
				// An append that waits too long is refused.
				if (n % 100 === 99) await appended[n - 200];
			}
			const history = (await Promise.all(appended)).toSorted((a, b) => Number(a.sequence - b.sequence));
			for (const page of await Promise.all(found)) {
				const newest = page[0]?.sequence ?? 0n;
				const current = new Map<string, bigint>();
				for (const { id, sequence } of history) if (sequence <= newest) current.set(id, sequence);
				const expected = [...current].toSorted(([, a], [, b]) => Number(b - a));
				expect(page.map(({ conversationId, sequence }) => [conversationId, sequence])).toEqual(expected);
			}
		});

		it("includes the start of a time range and excludes its end", async () => {
			const ids: string[] = [];
			for (const n of [0n, 1n, 2n]) {
				const update = sample({ columns: { createdAt: start + n, updatedAt: start - n } });
				ids.unshift(update.conversationId);
				await append(store, update);
			}
			expect(await list({ createdFrom: start, createdTo: start + 2n })).toEqual([ids[1], ids[2]]);
			expect(await list({ createdFrom: start + 1n })).toEqual([ids[0], ids[1]]);
			expect(await list({ createdTo: start + 1n })).toEqual([ids[2]]);
			expect(await list({ updatedFrom: start - 1n, updatedTo: start })).toEqual([ids[1]]);
			expect(await list({ createdFrom: -(2n ** 80n), createdTo: 2n ** 80n })).toEqual(ids);
			expect(await list({ createdFrom: start + 2n, createdTo: start })).toEqual([]);
		});

		it("filters by times of receipt where the record has no time: of the first update and of the newest", async () => {
			const { conversationId, ...bare } = sample({ columns: { createdAt: undefined } });
			const at = (receivedAt: bigint) => ({ ...bare, conversationId, receivedAt, record: sample().record });
			const within = async (field: "created" | "updated", time: bigint) =>
				(await list({ [`${field}From`]: time, [`${field}To`]: time + 1n })).length === 1;
			await append(store, at(start));
			expect([await within("created", start), await within("updated", start)]).toEqual([true, true]);
			await append(store, at(start + 5n));
			expect([await within("created", start), await within("updated", start + 5n)]).toEqual([true, true]);
			const columns = { createdAt: start - 7n, updatedAt: start - 6n };
			await append(store, sample({ conversationId, receivedAt: start + 8n, columns }));
			expect([await within("created", start - 7n), await within("updated", start - 6n)]).toEqual([true, true]);
			const [entry] = await store.listConversations({ conditions: [], limit: 1, withRecords: false });
			expect(fromBinary(ConversationSummarySchema, entry?.summary ?? Buffer.alloc(0))).toEqual({
				...summaryOf({ ...bare.columns, ...columns }),
				id: expect.any(String),
			});
		});

		it("returns the conversations of a large store that meet all filters, page by page", async () => {
			const count = 3_000;
			const updates = Array.from({ length: count }, (_, n) =>
				sample({
					columns: {
						status: n % 2 === 0 ? "idle" : "running",
						agentKind: n < 20 ? "Rare" : "Agent",
						model: `model-${n % 7}`,
						title: `${n % 3 === 0 ? "Deploy" : "Review"} task #${n}`,
						parentId: n % 100 === 3 ? parents[0] : undefined,
						createdAt: start - BigInt(n) * day,
						updatedAt: start + BigInt(n) * second,
						tags: { team: `t${n % 5}`, ...(n % 400 === 0 ? { rare: "x" } : {}) },
					},
				}),
			);
			const outcomes = await Promise.all(updates.map((update) => append(store, update)));
			const filters: Filter[] = [
				{},
				{ status: "idle", model: "model-3" },
				{ agentKind: "Rare", status: "running" },
				{ parentId: parents[0], titleContains: "deploy" },
				{ tags: { team: "t0" }, tagKey: "rare" },
				{ createdFrom: start - 200n * day, createdTo: start - 100n * day },
				{ createdTo: start - 2_500n * day },
				{ createdFrom: start - 2_900n * day, status: "idle", tags: { team: "t4" } },
				{ updatedFrom: start, updatedTo: start + 300n * second, titleContains: "REVIEW TASK" },
				{ titleContains: "#299" },
				{ titleContains: "review" },
				{ titleContains: "no such title" },
				{ titleContains: "#1", agentKind: "Rare" },
			];
			for (const by of filters) {
				const expected = selected(updates, outcomes, by);
				const found = await pages(store, by, 170);
				expect(found.slice(0, -1).every((page) => page.length === 170)).toBe(true);
				expect(found.flat()).toEqual(expected);
			}
		}, 240_000);

		it("selects and orders by activity, errors, cost and tokens as a linear search does, page by page", async () => {
			const cost = fc.constantFrom(0, 0.1, 0.3, 2);
			const at = fc.integer({ min: 0, max: 6 }).map((n) => start + BigInt(n) * second);
			const status = fc.constantFrom("idle", "running", "error", "finished");
			const post = fc.record({
				...{ id: fc.nat(5), status, createdAt: at, updatedAt: at },
				...{ cost: fc.option(cost, { nil: undefined }), tokens: fc.option(fc.bigInt(0n, 3n), { nil: undefined }) },
			});
			const happened = fc.record({ id: fc.nat(6), happenedAt: at, fails: fc.boolean() });
			const statuses = fc.subarray([1, 2, 3, 4, 5, 6], { minLength: 1 });
			const bounds = <Value>(value: fc.Arbitrary<Value>) => fc.record({ from: value, to: value }, { requiredKeys: [] });
			const condition: fc.Arbitrary<Condition> = fc.oneof(
				statuses.map((values) => ({ kind: "one_of", field: "executionStatus", values }) as const),
				bounds(at).map((of) => ({ kind: "time", field: "activityAt", ...of }) as const),
				bounds(at).map((of) => ({ kind: "time", field: "createdAt", ...of }) as const),
				// -1 stands for what was not reported.
				bounds(fc.oneof(cost, fc.constantFrom(-2, -1, -0.5))).map((of) => ({ kind: "cost", ...of }) as const),
				fc.constantFrom("cost", "tokens").map((of) => ({ kind: "not_reported", of }) as const),
				fc.boolean().map((value) => ({ kind: "error", value }) as const),
				// Numbers of the ids, which are made anew for each run.
				fc.subarray(["0", "1", "2", "3", "4", "5", "6"]).map((ids) => ({ kind: "ids", ids }) as const),
			);
			// That by a score is tested with the scores.
			const ownOrders = ["updated", "activity", "created", "cost", "tokens"] as const satisfies readonly ListOrder[];
			const query = fc.tuple(fc.array(condition, { maxLength: 2 }), fc.constantFrom(...ownOrders), fc.nat(3));
			const arbitrary = fc.tuple(
				fc.array(fc.oneof(post, happened), { minLength: 1, maxLength: 25 }),
				fc.array(query, { minLength: 1, maxLength: 10 }),
			);
			const property = fc.asyncProperty(arbitrary, async ([arrivals, queries]) => {
				const model = randomUUID();
				const ids = Array.from({ length: 7 }, () => randomUUID());
				for (const arrival of arrivals) {
					const conversationId = ids[arrival.id] ?? "";
					if ("fails" in arrival) {
						const { happenedAt, fails } = arrival;
						const error = fails ? { code: "Failed", kind: "", retryable: undefined, text: "" } : undefined;
						await appendEvents(store, batch(conversationId, [event({ happenedAt, error })]));
					} else await append(store, sample({ conversationId, columns: { ...arrival, model } }));
				}
				const own = { kind: "equal", field: "model", value: model } as const;
				const all = await store.listConversations({ conditions: [own], limit: 100, withRecords: false });
				const decoded = all.map((one) => ({ one, summary: fromBinary(ConversationSummarySchema, one.summary) }));
				for (const [drawn, order, size] of queries) {
					const conditions = drawn.map((condition) =>
						condition.kind === "ids"
							? { ...condition, ids: condition.ids.map((n) => ids[Number(n)] ?? "") }
							: condition,
					);
					const orderedBy = ({ summary, one }: (typeof decoded)[number]): bigint | number => {
						const { lastActivityAt, updatedAt, createdAt, accumulatedCost, tokens } = summary;
						return {
							updated: one.sequence,
							activity: microsecondsOf(lastActivityAt ?? updatedAt) ?? 0n,
							created: microsecondsOf(createdAt) ?? 0n,
							cost: accumulatedCost ?? NOT_REPORTED,
							tokens: orderedTokens(tokens),
						}[order];
					};
					const expected = decoded
						.filter(({ summary }) => summaryMeets(conditions, summary))
						.toSorted((a, b) =>
							orderedBy(a) === orderedBy(b)
								? Number(b.one.sequence - a.one.sequence)
								: orderedBy(a) < orderedBy(b)
									? 1
									: -1,
						);
					const found: StoredConversation[] = [];
					for (;;) {
						const last = found.at(-1);
						const page = await store.listConversations({
							conditions: [own, ...conditions],
							order,
							before: last?.sequence,
							beforeValue: last?.orderValue,
							limit: size + 1,
							withRecords: false,
						});
						found.push(...page);
						if (page.length <= size) break;
					}
					const counted = await store.countConversations({
						conditions: [own, ...conditions],
						group: { by: "executionStatus" },
						limit: 10,
					});
					const byStatus = Map.groupBy(expected, ({ summary }) => Number(summary.executionStatus));
					const counts = [...byStatus].map(([value, of]) => ({ value, count: of.length }));
					expect(counted).toEqual({
						counts: counts.toSorted((a, b) => b.count - a.count || a.value - b.value),
						total: expected.length,
					});
					expect(found.map(({ sequence }) => sequence)).toEqual(expected.map(({ one }) => one.sequence));
					expect(found.map(({ summary }) => summary)).toEqual(expected.map(({ one }) => one.summary));
				}
			});
			await fc.assert(property, { numRuns: 30 });
		}, 240_000);

		it("counts conversations by a value, or by keys and values of tags, of those that meet conditions", async () => {
			const model = randomUUID();
			const key = randomUUID();
			const tagged = (value: string, agentKind: string, more = {}) =>
				append(store, sample({ columns: { model, agentKind, tags: { [key]: value, ...more } } }));
			await Promise.all([tagged("a", "Agent"), tagged("b", "ACPAgent", { rare: "x" }), tagged("b", "Agent")]);
			const conditions = [{ kind: "equal", field: "model", value: model }] as const;
			const counted = async (group: CountGroup | undefined, limit = 10) =>
				await store.countConversations({ conditions, group, limit });
			expect(await counted(undefined)).toEqual({ counts: [], total: 3 });
			expect(await counted({ by: "agentKind" })).toEqual({
				counts: [
					{ value: "Agent", count: 2 },
					{ value: "ACPAgent", count: 1 },
				],
				total: 3,
			});
			expect(await counted({ by: "agentKind" }, 1)).toEqual({ counts: [{ value: "Agent", count: 2 }], total: 3 });
			expect(await counted({ by: "model" })).toEqual({ counts: [{ value: model, count: 3 }], total: 3 });
			for (const by of ["sender", "owner"] as const)
				expect(await counted({ by })).toEqual({ counts: [{ value: "", count: 3 }], total: 3 });
			expect(await counted({ by: "tagKey" })).toEqual({
				counts: [
					{ value: key, count: 3 },
					{ value: "rare", count: 1 },
				],
				total: 3,
			});
			const values = [
				{ value: "b", count: 2 },
				{ value: "a", count: 1 },
			];
			expect(await counted({ by: "tag", key })).toEqual({ counts: values, total: 3 });
			const all = await store.countConversations({ conditions: [], group: { by: "tag", key }, limit: 10 });
			expect(all.counts).toEqual(values);
			const models = await store.countConversations({ conditions: [], group: { by: "model" }, limit: 10_000 });
			expect(models.counts.find(({ value }) => value === model)).toEqual({ value: model, count: 3 });
			expect(models.total).toBe(models.counts.reduce((sum, { count }) => sum + count, 0));
		});

		it("returns the same conversations as a linear search, for any filter and page size", async () => {
			const arbitrary = fc.tuple(
				fc.array(fc.tuple(fc.nat(9), columns), { minLength: 1, maxLength: 25 }),
				fc.array(fc.tuple(filter, fc.integer({ min: 1, max: 7 })), { minLength: 1, maxLength: 8 }),
			);
			await fc.assert(
				fc.asyncProperty(arbitrary, async ([records, queries]) => {
					// All runs share the store, so each run marks its conversations with its own model.
					const run = randomUUID();
					const ids = Array.from({ length: 10 }, () => randomUUID());
					const updates = records.map(([id, of]) =>
						sample({ conversationId: ids[id] ?? "", columns: { ...of, model: run + of.model } }),
					);
					const outcomes = await Promise.all(updates.map((update) => append(store, update)));
					for (const [by, limit] of queries) {
						const own = { ...by, model: run + (by.model ?? "model-a") };
						const whole = selected(updates, outcomes, own, true);
						expect((await pages(store, own, limit, true)).flat()).toEqual(whole);
						expect((await pages(store, own, 1_000, true)).flat()).toEqual(whole);
					}
				}),
				{ numRuns: 60 },
			);
		}, 240_000);
	});
}

/** Returns the expected list for a filter, by a linear search through all updates. */
function selected(updates: readonly Sample[], outcomes: readonly AppendedUpdate[], by: Filter, withRecords = false) {
	const current = new Map<string, { update: Sample; outcome: AppendedUpdate }>();
	const paired = updates.flatMap((update, n) => {
		const outcome = outcomes[n];
		return outcome === undefined ? [] : [{ update, outcome }];
	});
	for (const pair of paired.toSorted((a, b) => Number(a.outcome.sequence - b.outcome.sequence))) {
		const { conversationId } = pair.update;
		const before = current.get(conversationId)?.update;
		const update = withRun(withTimes(pair.update, before?.columns.createdAt), before);
		if (pair.outcome.current) current.set(conversationId, { ...pair, update });
	}
	return [...current.values()]
		.filter(({ update }) => matches(update.columns, by))
		.toSorted((a, b) => Number(b.outcome.sequence - a.outcome.sequence))
		.map(({ update, outcome }) => listed(update, outcome, withRecords));
}
