import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { BudgetPeriod } from "../../gen/conversations/v1/budget_service_pb.js";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { stores } from "../forward/stores.ts";
import { ADMIN, TestBudgets } from "./harness.ts";

const at = (time: string) => Date.parse(`2026-01-${time}:00Z`);

describe.each(stores())("with $engine", ({ engine, make }) => {
	test("a threshold is told once in a period, over restarts, and when stats fall and rise again", async () => {
		const open = await make();
		const id = randomUUID();
		const call = (cost: number, time: string) => ({ cost, at: at(time) });
		const data = (threshold: number, spent: number, late = false) =>
			expect.objectContaining({ name: "all", unit: "cost", limit: 10, threshold, spent, late });
		{
			await using test = new TestBudgets(await open());
			test.goTo("2026-01-10T12:00:00Z");
			await test.forwarding.create("hook");
			await test.forwarding.create("other", { changes: ["STARTED"] });
			await test.create("all", { amount: 10 });
			test.follow();
			await test.post(id, [call(4, "10T10:00")]);
			await test.compared();
			expect(await test.told()).toEqual([]);
			await test.post(id, [call(4, "10T10:00"), call(4.5, "10T11:00")]);
			await test.compared();
			expect(await test.told()).toEqual([
				{
					change: "budget",
					text: "50 % is spent of the budget all (8.50 of 10.00)",
					budget: {
						...{
							name: "all",
							owner: "",
							unit: "cost",
							limit: 10,
							threshold: 0.5,
							spent: 8.5,
							late: false,
							forecast: 17,
						},
						...{ period_start: "2026-01-10T00:00:00.000Z", period_end: "2026-01-11T00:00:00.000Z" },
					},
				},
				{ change: "budget", text: expect.stringMatching(/^80 % is/), budget: data(0.8, 8.5) },
			]);
			// It falls, and rises again.
			await test.post(id, [call(4, "10T10:00")]);
			await test.compared();
			await test.post(id, [call(4, "10T10:00"), call(4.5, "10T11:00")]);
			await test.compared();
			expect(await test.told()).toHaveLength(2);
		}
		await using test = new TestBudgets(await open());
		test.goTo("2026-01-11T12:00:00Z");
		test.follow();
		await using others = new AsyncDisposableStack();
		if (engine === "PostgreSQL") for (let n = 0; n < 2; n++) others.use(new TestBudgets(await open())).follow();
		await test.post(randomUUID(), [call(6, "11T01:00")]);
		await test.compared();
		// Late events, of the day before.
		await test.post(randomUUID(), [call(2, "10T23:00")]);
		await test.compared();
		const told = await test.told();
		expect(told.slice(2)).toEqual([
			{ change: "budget", text: expect.stringMatching(/^50 % is/), budget: data(0.5, 6) },
			{
				change: "budget",
				text: "100 % is spent of the budget all (10.50 of 10.00), by late events, in the past period from 2026-01-10T00:00:00.000Z",
				budget: expect.objectContaining({ ...{ threshold: 1, spent: 10.5, late: true, forecast: 10.5 } }),
			},
		]);
		expect(await test.told("other")).toEqual([]);
	});

	test("a budget for each conversation tells of each, in each period or in its life", async () => {
		await using test = new TestBudgets(await (await make())());
		test.goTo("2026-01-10T12:00:00Z");
		await test.forwarding.create("hook");
		const [one, two, other] = [randomUUID(), randomUUID(), randomUUID()];
		const filter = create(ConversationFilterSchema, { tags: { team: "a" } });
		const tags = { tags: { team: "a" } };
		await test.create("daily", { amount: 1, eachConversation: true, thresholds: [1], filter });
		await test.create("life", { tokens: 100n, period: BudgetPeriod.CONVERSATION, thresholds: [0.5, 2], filter });
		test.follow();
		await test.post(one, [{ cost: 0.6, at: at("10T01:00"), tokens: 60n }], tags);
		await test.post(two, [{ cost: 1.2, at: at("10T01:00"), tokens: 10n }], tags);
		await test.post(other, [{ cost: 9, at: at("10T01:00"), tokens: 900n }]);
		await test.compared();
		const words = async () =>
			(await test.told()).map(({ conversation_id, text }) => [conversation_id, text]).toSorted();
		const first = [
			[one, "has spent 50 % of the budget life (60 tokens of 100 tokens)"],
			[two, "has spent 100 % of the budget daily (1.20 of 1.00)"],
		];
		expect(await words()).toEqual(first.toSorted());
		test.goTo("2026-01-11T12:00:00Z");
		const more = [
			{ cost: 0.6, at: at("10T01:00"), tokens: 60n },
			{ cost: 0.9, at: at("11T01:00"), tokens: 140n },
		];
		await test.post(one, more, tags);
		await test.compared();
		const second = [...first, [one, "has spent 200 % of the budget life (200 tokens of 100 tokens)"]];
		expect(await words()).toEqual(second.toSorted());
	});

	test("a new or changed budget is compared with what is spent already", async () => {
		await using test = new TestBudgets(await (await make())());
		test.goTo("2026-01-10T12:00:00Z");
		await test.forwarding.create("hook");
		await test.post(randomUUID(), [
			{ cost: 6, at: at("10T01:00") },
			{ cost: 9, at: at("09T01:00") },
		]);
		await test.create("all", { amount: 20, thresholds: [0.5, 1] });
		test.follow();
		await test.compared();
		// The day before is no period of the budget.
		expect(await test.told()).toEqual([]);
		await test.budgets.update({ name: "all", owner: "" }, { amount: 6 }, undefined, ADMIN);
		await test.compared();
		expect((await test.told()).map(({ text }) => text)).toEqual([
			"50 % is spent of the budget all (6.00 of 6.00)",
			"100 % is spent of the budget all (6.00 of 6.00)",
		]);
		const audit = await test.store.tables.read.listAudit({ owner: undefined, before: undefined, limit: 10 });
		expect(audit.filter(({ action }) => action.startsWith("budget"))).toEqual([
			expect.objectContaining({ action: "budget.changed", caller: "admin", subject: "all", details: "amount" }),
			expect.objectContaining({ action: "budget.created", caller: "admin", subject: "all", details: "" }),
		]);
	});
});
