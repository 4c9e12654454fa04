import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { BudgetPeriod, BudgetState } from "../../gen/conversations/v1/budget_service_pb.js";
import { ReportUsageRequestSchema } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { AskedBudget } from "../../src/budgets/budgets.ts";
import { shownBudget } from "../../src/budgets/shown.ts";
import { stores } from "../forward/stores.ts";
import { Random } from "../support/random.ts";
import { ADMIN, type Call, TestBudgets } from "./harness.ts";

const DAY = 86_400_000;
const ofTeam = create(ConversationFilterSchema, { tags: { team: "a" } });

/** Budgets, with the range of `ReportUsage` that must show the same on Wednesday, 2026-01-14, and which rows of it count. */
const BUDGETS: readonly {
	readonly asked: AskedBudget;
	readonly range: readonly [string, string] | undefined;
	readonly groupBy?: readonly string[];
	readonly counts?: (group: readonly string[]) => boolean;
}[] = [
	{ asked: { amount: 5, period: BudgetPeriod.DAY }, range: ["2026-01-14T00:00:00Z", "2026-01-15T00:00:00Z"] },
	{
		asked: { amount: 5, period: BudgetPeriod.DAY, timeZone: "Asia/Kolkata" },
		range: ["2026-01-13T18:30:00Z", "2026-01-14T18:30:00Z"],
	},
	{
		asked: { tokens: 50n, period: BudgetPeriod.WEEK, filter: ofTeam },
		range: ["2026-01-12T00:00:00Z", "2026-01-19T00:00:00Z"],
	},
	{
		asked: { amount: 5, period: BudgetPeriod.MONTH, model: "other" },
		range: ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"],
		...{ groupBy: ["model"], counts: ([model]) => model === "other" },
	},
	{ asked: { amount: 3, period: BudgetPeriod.CONVERSATION }, range: undefined, groupBy: ["conversation"] },
];

describe.each(stores())("with $engine", ({ make }) => {
	test("in any order of arrival, a budget shows what ReportUsage shows for its range and filter", async () => {
		const random = Random.ofTest();
		await using test = new TestBudgets(await (await make())());
		test.goTo("2026-01-14T12:00:00Z");
		for (const [n, { asked }] of BUDGETS.entries()) await test.create(`budget-${n}`, asked);
		const ids: readonly string[] = Array.from({ length: 4 }, () => randomUUID());
		const calls = new Map<string, Call[]>(ids.map((id) => [id, []]));
		for (let step = 0; step < 25; step++) {
			const id = random.pick(ids) ?? "";
			const model = random.pick(["m", "other"]) ?? "m";
			const at = test.now - random.integer(0, 20 * DAY);
			// Late and early calls; a record may also come again with fewer calls.
			const known = calls.get(id) ?? [];
			if (random.integer(0, 5) > 0) known.push({ cost: random.integer(1, 9) / 8, at, model, tokens: 3n });
			const tags = ids.indexOf(id) % 2 === 0 ? { team: "a" } : {};
			await test.post(id, known.slice(0, known.length - Number(random.integer(0, 5) === 0)), { tags });
			const rows = await test.budgets.list(ADMIN);
			for (const [n, { asked, range, groupBy = [], counts = () => true }] of BUDGETS.entries()) {
				const row = rows[n];
				if (row === undefined) throw new Error("there is no such budget");
				const { spent = 0, state, spenders = [] } = await shownBudget(test.store, test.reads, row, true, test.now);
				const [from, to] = (range ?? []).map((time) => timestampFromMs(Date.parse(time)));
				const report = await test.reads.of({ owner: undefined }).usage.report(
					create(ReportUsageRequestSchema, {
						...{ groupBy: [...groupBy], ...(from === undefined || to === undefined ? {} : { from, to }) },
						...(asked.filter === undefined ? {} : { filter: asked.filter }),
					}),
				);
				const of = (usage: (typeof report.rows)[number]["usage"]) =>
					asked.tokens === undefined
						? (usage?.cost ?? 0)
						: Number((usage?.tokens?.promptTokens ?? 0n) + (usage?.tokens?.completionTokens ?? 0n));
				const expected = Math.max(0, ...report.rows.filter(({ group }) => counts(group)).map(({ usage }) => of(usage)));
				expect({ n, spent }).toEqual({ n, spent: expected });
				const limit = asked.amount ?? Number(asked.tokens);
				const reached = spent >= limit ? "EXCEEDED" : spent >= limit / 2 ? "WARNING" : "OK";
				expect(state).toBe(BudgetState[reached]);
				const sum = spenders.reduce((all, { spent: part = 0 }) => all + part, 0);
				if (asked.period !== BudgetPeriod.CONVERSATION) expect(sum).toBeCloseTo(expected, 9);
			}
		}
	});

	test("a budget tells how many conversations of its period report nothing of what it counts", async () => {
		await using test = new TestBudgets(await (await make())());
		test.goTo("2026-01-14T12:00:00Z");
		await test.create("cost", { amount: 1 });
		await test.create("tokens", { tokens: 1n });
		await test.create("team", { amount: 1, filter: create(ConversationFilterSchema, { tags: { team: "a" } }) });
		await test.create("quiet", { silentMinutes: 1 });
		const at = (day: number) => ({
			createdAt: BigInt(test.now - day * DAY) * 1000n,
			updatedAt: BigInt(test.now - day * DAY) * 1000n,
		});
		await test.post(randomUUID(), [], at(0));
		await test.post(randomUUID(), [], { ...at(0), tags: { team: "a" }, tokens: 0n });
		await test.post(randomUUID(), [], { ...at(0), tags: { team: "a" }, cost: 0 });
		await test.post(randomUUID(), [], at(1));
		const rows = await test.budgets.list(ADMIN);
		const shown = await Promise.all(rows.map((row) => shownBudget(test.store, test.reads, row, false, test.now)));
		const counts = shown.map(({ name, conversationsNotReported }) => [name, conversationsNotReported]);
		expect(Object.fromEntries(counts)).toEqual({ cost: 2n, tokens: 2n, team: 1n, quiet: undefined });
	});
});
