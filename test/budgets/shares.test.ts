import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { budgetShares } from "../../src/budgets/shown.ts";
import { stores } from "../forward/stores.ts";
import { ADMIN, TestBudgets } from "./harness.ts";

describe.each(stores())("with $engine", ({ make }) => {
	test("the largest shares of budgets with an amount are read once a minute", async () => {
		await using test = new TestBudgets(await (await make())());
		test.goTo("2026-01-10T12:00:00Z");
		const shares = budgetShares(test.store, test.reads, () => test.now);
		expect(await shares()).toEqual([]);
		await test.create("cost", { amount: 4 });
		await test.create("small", { amount: 1.2 });
		await test.create("quiet", { silentMinutes: 10 });
		const id = randomUUID();
		const call = { cost: 3, at: test.now };
		await test.post(id, [call]);
		expect(await shares()).toEqual([]);
		test.goTo("2026-01-10T12:02:00Z");
		const first = [
			{ name: "small", owner: "", share: 2.5 },
			{ name: "cost", owner: "", share: 0.75 },
		];
		expect(await shares()).toEqual(first);
		await test.post(id, [call, { ...call, cost: 9 }]);
		expect(await shares()).toEqual(first);
		test.goTo("2026-01-10T12:04:00Z");
		const second = [
			{ name: "small", owner: "", share: 10 },
			{ name: "cost", owner: "", share: 3 },
		];
		expect(await shares()).toEqual(second);
		for (let n = 0; n < 63; n += 1) await test.budgets.create({ name: `${n}`, owner: "red" }, { amount: 1 }, ADMIN);
		test.goTo("2026-01-10T12:06:00Z");
		const largest = await shares();
		expect(largest.slice(0, 3)).toEqual([...second, { name: "0", owner: "red", share: 0 }]);
		expect(largest).toHaveLength(64);
	});
});
