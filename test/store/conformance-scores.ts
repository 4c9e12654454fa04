import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { EventFormat } from "../../src/events/event-format.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { TextIndexer } from "../../src/search/indexer.ts";
import type { Condition } from "../../src/store/condition.ts";
import type { StoredConversation } from "../../src/store/conversation-lists.ts";
import { idDigest } from "../../src/store/erasure.ts";
import type { GivenScore } from "../../src/store/scores.ts";
import type { Store } from "../../src/store/store.ts";
import { NO_PROGRESS } from "../../src/store/text-index.ts";
import { auditEntry } from "./conformance-audit.ts";
import { appendEvents, batch, event } from "./event-samples.ts";
import { append, sample, start } from "./samples.ts";

const id = (n: number) => `00000000-0000-4000-8000-00000000000${n}`;
const EVENTS = ["one", "two"];
const NAMES = ["cause", "critic", "tests", "thumbs"];
const audit = auditEntry(0n, { action: "score.changed", subject: "" });
const undone = { owner: undefined, audit: { ...audit, action: "score.deleted" } };

type Value = number | boolean | string;

function score(of: number, eventId: string, name: string, value: Value, giver = "job"): GivenScore {
	const target = { conversationId: id(of), eventId, name, giver, source: "program", comment: "" };
	if (typeof value === "string") return { ...target, kind: "category", value: undefined, category: value };
	return { ...target, kind: typeof value, value: Number(value), category: undefined };
}

/** @param later microseconds after the first time */
const give = (store: Store, scores: readonly GivenScore[], owner?: string, later = 0) =>
	store.setScores({ scores, owner, audit: { ...audit, at: audit.at + BigInt(later) } });

const listOf = (store: Store, of: number) =>
	store.listScores({ conversationId: id(of), name: undefined, skipped: 0, limit: 1000 });

const valuesOf = async (store: Store, ids: readonly string[]) =>
	new Map(
		(await store.listScoreValues({ conversationIds: ids, names: NAMES })).map(
			({ conversationId, name, kind, value, shown }) => [
				`${conversationId} ${name}`,
				kind === "category" ? shown : value,
			],
		),
	);

const found = async (store: Store, ...conditions: readonly Condition[]) =>
	(await store.listConversations({ conditions, limit: 100, withRecords: false }))
		.map((one) => one.conversationId)
		.sort();

/** Values of the names, each of one kind. */
const VALUES: Readonly<Record<string, readonly Value[]>> = {
	tests: [0, 0.25, -1, 3],
	thumbs: [true, false],
	cause: ["a", "b"],
};
const target = fc.record({
	conversation: fc.nat(2),
	eventId: fc.constantFrom("", ...EVENTS),
	name: fc.constantFrom(...Object.keys(VALUES)),
	value: fc.nat(3),
});
const giver = fc.constantFrom("ann", "bob");
const step = fc.oneof(
	{ weight: 3, arbitrary: fc.record({ giver, set: fc.array(target, { minLength: 1, maxLength: 4 }) }) },
	{ weight: 1, arbitrary: fc.record({ giver, deleted: target }) },
);

/** Tests of scores. A map says what must be there. */
export function scoreConformance(current: () => Store): void {
	async function fill(store: Store): Promise<void> {
		for (const n of [0, 1, 2]) {
			await append(
				store,
				sample({ conversationId: id(n), columns: { model: `m${n % 2}`, cost: n === 2 ? undefined : n + 1 } }),
			);
			await appendEvents(
				store,
				batch(
					id(n),
					EVENTS.map((eventId) => event({ eventId })),
				),
			);
		}
	}

	describe("scores", () => {
		it("are what a map says after any sets and deletes, and so are what stands for conversations, filters and the order", async () => {
			const store = current();
			await fill(store);
			const ids = [0, 1, 2].map(id);
			await fc.assert(
				fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
					for (const of of [0, 1, 2])
						for (const { conversationId, eventId, name, giver } of await listOf(store, of))
							expect(await store.deleteScore({ conversationId, eventId, name, giver, ...undone })).toBe(true);
					// In the order in which they were given.
					const map = new Map<string, GivenScore>();
					const keyOf = (one: GivenScore) => [one.conversationId, one.eventId, one.name, one.giver].join(" ");
					for (const [n, one] of steps.entries()) {
						const of = ("set" in one ? one.set : [one.deleted]).map(({ conversation, eventId, name, value }) => {
							const values = VALUES[name] ?? [];
							return score(conversation, eventId, name, values[value % values.length] ?? 0, one.giver);
						});
						if ("set" in one) {
							expect(await give(store, of, undefined, n)).toBeGreaterThanOrEqual(0);
							const last = new Map(of.map((each) => [keyOf(each), each]));
							// Of several of one time, that of the last event stands for the conversation.
							for (const each of [...last.values()].toSorted((a, b) => (a.eventId < b.eventId ? -1 : 1))) {
								map.delete(keyOf(each));
								map.set(keyOf(each), each);
							}
							continue;
						}
						const [{ conversationId, eventId, name, giver } = score(0, "", "", 0)] = of;
						const isThere = map.delete([conversationId, eventId, name, giver].join(" "));
						expect(await store.deleteScore({ conversationId, eventId, name, giver, ...undone })).toBe(isThere);
					}
					const listed = (await Promise.all([0, 1, 2].map((of) => listOf(store, of)))).flat();
					expect(listed.map(({ owner: _, givenAt: __, ...rest }) => rest)).toEqual(
						[...map].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one),
					);
					const standing = new Map<string, Value>();
					for (const [key, group] of Map.groupBy(map.values(), (one) => `${one.conversationId} ${one.name}`)) {
						const own = group.filter(({ eventId }) => eventId === "").at(-1);
						const last = own ?? group.at(-1);
						const mean = group.reduce((sum, { value = 0 }) => sum + value / group.length, 0);
						standing.set(key, last?.category ?? own?.value ?? mean);
					}
					const values = await valuesOf(store, ids);
					expect([...values.keys()].sort()).toEqual([...standing.keys()].sort());
					for (const [key, value] of standing)
						if (typeof value === "string") expect(values.get(key)).toBe(value);
						else expect(values.get(key)).toBeCloseTo(Number(value), 9);
					const meeting = (name: string, test: (value: Value | undefined) => boolean) =>
						ids.filter((one) => test(values.get(`${one} ${name}`)));
					const at = (value: Value | undefined) => (typeof value === "number" ? value : Number.NaN);
					for (const [condition, test] of [
						[{ name: "tests", is: ">=", value: 0.25 }, (one: Value | undefined) => at(one) >= 0.25],
						[{ name: "tests", is: "<", value: 0.25 }, (one: Value | undefined) => at(one) < 0.25],
						[{ name: "tests", is: "=", value: ["3.0", "3"] }, (one: Value | undefined) => one === 3],
						[{ name: "thumbs", is: "=", value: ["true"] }, (one: Value | undefined) => one === 1],
						[{ name: "cause", is: "=", value: ["b"] }, (one: Value | undefined) => one === "b"],
					] as const)
						expect(await found(store, { kind: "score", ...condition })).toEqual(meeting(condition.name, test));
					expect(await found(store, { kind: "score", name: "cause", is: "none" })).toEqual(
						meeting("cause", (one) => one === undefined),
					);
					const ordered: (bigint | number | undefined)[] = [];
					for (let last: StoredConversation | undefined; ; ) {
						const [next] = await store.listConversations({
							conditions: [],
							order: "score",
							orderScore: "tests",
							limit: 1,
							withRecords: false,
							before: last?.sequence,
							beforeValue: last?.orderValue,
						});
						if (next === undefined) break;
						ordered.push(next.orderValue);
						last = next;
					}
					expect(ordered).toEqual(
						ids
							.map((one) => values.get(`${one} tests`) ?? Number.NEGATIVE_INFINITY)
							.sort((a, b) => Number(b) - Number(a)),
					);
				}),
				{ numRuns: 15 },
			);
		}, 240_000);

		it("are stored as a batch, or not at all: the error names the first that is refused", async () => {
			const store = current();
			await fill(store);
			await store.assignOwner({ owner: "red", of: { ids: [id(1)] }, limit: 10 });
			const good = score(0, "", "tests", 1);
			expect(await give(store, [good, score(0, "one", "tests", 2)])).toBe(2);
			const before = await listOf(store, 0);
			const lacks = (what: string) => ({
				kind: "not_found",
				message: `scores[1].${what}_id names no ${what} that is stored`,
			});
			const expects = (kind: string) => ({
				kind: "invalid_argument",
				message: `scores[1].value must be a ${kind}, as the earlier ones of its name are`,
			});
			for (const [scores, owner, refusal] of [
				[[{ ...good, value: 9 }, score(7, "", "tests", 1)], undefined, lacks("conversation")],
				[[score(1, "", "tests", 1), good], "red", lacks("conversation")],
				[[{ ...good, value: 9 }, score(0, "three", "tests", 1)], undefined, lacks("event")],
				[[{ ...good, value: 9 }, score(2, "", "tests", true)], undefined, expects("number")],
				[[score(0, "", "new", "a"), score(2, "", "new", 1)], undefined, expects("category")],
			] as const)
				await expect(give(store, scores, owner)).rejects.toMatchObject(refusal);
			expect(await listOf(store, 0)).toEqual(before);
			// Another owner has names of its own.
			expect(await give(store, [score(1, "", "tests", true)], "red")).toBe(1);
		});

		it("have the owner of their conversation, and go with it", async () => {
			const store = current();
			await fill(store);
			const all = [0, 1, 2].flatMap((n) => [score(n, "", "tests", n), score(n, "one", "cause", "a")]);
			await give(store, all);
			await store.assignOwner({ owner: "red", of: { ids: [id(0)] }, limit: 10 });
			expect((await listOf(store, 0)).map(({ owner }) => owner)).toEqual(["red", "red"]);
			const of = { conversationId: id(0), eventId: "", name: "tests", giver: "job" };
			expect(await store.deleteScore({ ...of, ...undone, owner: "blue" })).toBe(false);
			await store.erase({ conversationId: id(0), owner: undefined, erasedAt: start });
			const isFirst: Condition = { kind: "ids", ids: [id(1)] };
			while ((await store.pruneConversations([isFirst], 100)) === 100);
			for (const [n, left] of [0, 0, 2].entries()) expect(await listOf(store, n)).toHaveLength(left);
			expect([...(await valuesOf(store, [0, 1, 2].map(id))).keys()].sort()).toEqual(
				["cause", "tests"].map((name) => `${id(2)} ${name}`),
			);
		});

		it("of an event go with it when it is pruned, and those of its conversation stay", async () => {
			const store = current();
			await fill(store);
			await give(store, [score(0, "", "cause", "a"), score(0, "one", "tests", 1), score(1, "two", "tests", 2)]);
			while ((await store.pruneEvents(start + 1n, 100)) === 100);
			expect((await listOf(store, 0)).map(({ name }) => name)).toEqual(["cause"]);
			expect(await listOf(store, 1)).toEqual([]);
			expect([...(await valuesOf(store, [0, 1].map(id))).keys()]).toEqual([`${id(0)} cause`]);
		});

		it("leave in the audit what they were before they were changed or deleted", async () => {
			const store = current();
			await fill(store);
			await give(store, [score(0, "", "tests", 1), score(0, "one", "cause", "a")]);
			await give(store, [score(0, "", "tests", 1), score(0, "one", "cause", "b")]);
			const of = { conversationId: id(0), eventId: "", name: "tests", giver: "job" };
			await store.deleteScore({ ...of, ...undone });
			const entries = await store.tables.read.listAudit({ owner: undefined, before: undefined, limit: 10 });
			expect(entries.map(({ action, subject, details }) => [action, subject, details])).toEqual([
				["score.deleted", idDigest(id(0)), "tests by job: deleted, before 1"],
				["score.changed", idDigest(id(0)), "cause of event one by job: b, before a"],
			]);
		});

		it("of critics come from events, also from those of an index of an earlier release, and once", async () => {
			const store = current();
			const said = (eventId: string, result: unknown) => {
				const json = { id: eventId, kind: "MessageEvent", source: "agent", critic_result: result };
				return event({ eventId, text: Buffer.from(JSON.stringify(json)) });
			};
			const message = "see http://me:secret@host/";
			const results = [{ score: 0.5, message }, null, { score: "x" }, { score: 1, message: null }];
			await appendEvents(
				store,
				batch(
					id(0),
					results.map((result, n) => said(`event ${n}`, result)),
				),
			);
			const index = async () => {
				const indexer = new TextIndexer({ store, format: new EventFormat(new RecordFormat(), [], "UTC") });
				while (await indexer.step());
				await indexer.release();
			};
			const scored = [
				{ eventId: "event 0", value: 0.5, comment: "see http://**********@host/", giver: "critic", source: "critic" },
				{ eventId: "event 3", value: 1, comment: "", givenAt: start, name: "critic", kind: "number" },
			];
			await index();
			expect(await listOf(store, 0)).toMatchObject(scored);
			// As an earlier release left it.
			const progress = await store.readIndexProgress();
			await store.writeIndexStep({ expects: progress, next: { ...NO_PROGRESS, version: 3 }, events: [] });
			await index();
			expect(await listOf(store, 0)).toMatchObject(scored);
			expect(await valuesOf(store, [id(0)])).toEqual(new Map([[`${id(0)} critic`, 0.75]]));
		});

		it("are summed up by group, with the cost of each conversation once", async () => {
			const store = current();
			await fill(store);
			const day = 86_400_000_000n;
			await give(store, [score(0, "", "tests", 1), score(0, "one", "tests", 3), score(1, "", "tests", 5)]);
			const late = { ...audit, at: audit.at + day };
			await store.setScores({ scores: [score(2, "", "tests", 7)], owner: undefined, audit: late });
			const report = { name: "tests", from: undefined, to: undefined, groups: [], conditions: [], limit: 100 };
			const number = { kind: "number" };
			const all = { ...number, group: [], count: 4, total: 16, conversations: 3, withoutCost: 1, cost: 3 };
			expect(await store.reportScores(report)).toEqual({ rows: [all], categories: [], all: [all] });
			// From the scores themselves.
			expect(await store.reportScores({ ...report, from: audit.at })).toEqual({
				rows: [all],
				categories: [],
				all: [all],
			});
			const cheap: Condition = { kind: "time", field: "createdAt", from: 0n };
			expect((await store.reportScores({ ...report, conditions: [cheap] })).rows).toEqual([all]);
			const ofFirst = { ...report, conditions: [{ kind: "tag", key: "t", value: undefined } as const] };
			expect(await store.reportScores(ofFirst)).toEqual({ rows: [], categories: [], all: [] });
			const groups = [{ kind: "model" }, { kind: "tag", key: "t" }] as const;
			for (const from of [undefined, audit.at]) {
				const byModel = await store.reportScores({ ...report, groups, from });
				expect(
					byModel.rows
						.map(({ group, count, total, cost, withoutCost }) => [...group, count, total, cost, withoutCost])
						.sort(),
				).toEqual([
					["m0", "", 3, 11, 1, 1],
					["m1", "", 1, 5, 2, 0],
				]);
			}
			const days = await store.reportScores({ ...report, groups: [{ kind: "day" }], from: late.at });
			const last = { ...number, count: 1, total: 7, conversations: 1, withoutCost: 1, cost: 0 };
			expect(days.rows).toEqual([{ ...last, group: [String(late.at / day)] }]);
			expect(days.all).toEqual([{ ...last, group: [] }]);
			await give(store, [score(0, "", "cause", "a"), score(0, "one", "cause", "b"), score(1, "", "cause", "b")]);
			const causes = await store.reportScores({ ...report, name: "cause" });
			const cause = { group: [], kind: "category", total: 0, withoutCost: 0, cost: 3 };
			expect(causes.rows).toEqual([{ ...cause, count: 3, conversations: 2 }]);
			expect(causes.categories.toSorted((a, b) => a.count - b.count)).toEqual([
				{ ...cause, category: "a", count: 1, conversations: 1, cost: 1 },
				{ ...cause, category: "b", count: 2, conversations: 2 },
			]);
			// Of the conversations as they are now.
			await append(store, sample({ conversationId: id(1), columns: { model: "m2", cost: 5 } }));
			expect(
				(await store.reportScores({ ...report, groups: [{ kind: "model" }] })).rows
					.map(({ group, cost }) => [...group, cost])
					.sort(),
			).toEqual([
				["m0", 1],
				["m2", 5],
			]);
			const values = async () =>
				Array.fromAsync([0, 1, 2].map(id), (one) => store.listScoreValues({ conversationIds: [one], names: NAMES }));
			const grown = await values();
			await store.resetViews(["conversations"]);
			expect(await values()).toEqual(grown);
			expect(await store.listScoreValues({ conversationIds: [0, 1, 2].map(id), names: ["none", "cause"] })).toEqual(
				grown.flat().filter(({ name }) => name === "cause"),
			);
			expect(grown.flat()).toContainEqual({
				conversationId: id(1),
				name: "tests",
				kind: "number",
				value: 5,
				shown: "5",
				scores: 1,
				total: 5,
				model: "m2",
				agentKind: expect.any(String),
				sender: undefined,
				owner: undefined,
				cost: 5,
			});
		});
	});
}
