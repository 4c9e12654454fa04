import { expect, test } from "vitest";
import { followStoreHealth } from "../../src/telemetry/store-health.ts";

test("each change of a store's health is told and logged once", async () => {
	const outcomes: (Error | undefined)[] = [undefined, new Error("full"), new Error("full"), undefined, undefined];
	const changes: boolean[] = [];
	const logged: unknown[] = [];
	const { promise: done, resolve } = Promise.withResolvers<void>();
	const store = {
		check: async () => {
			if (outcomes.length === 0) resolve();
			const failure = outcomes.shift();
			if (failure !== undefined) throw failure;
		},
	};
	const log = { storeHealth: (error: unknown) => logged.push(error) };
	using _ = followStoreHealth(store, { onChange: (healthy) => changes.push(healthy), log, interval: 1 });
	await done;
	expect(changes).toEqual([false, true]);
	expect(logged).toEqual([new Error("full"), undefined]);
});

test("a check that takes long is not joined by another one", async () => {
	let checks = 0;
	const { promise: started, resolve } = Promise.withResolvers<void>();
	const { promise: check, resolve: finish } = Promise.withResolvers<void>();
	const store = {
		check: () => {
			checks += 1;
			resolve();
			return check;
		},
	};
	{
		using _ = followStoreHealth(store, {
			onChange: () => undefined,
			log: { storeHealth: () => undefined },
			interval: 1,
		});
		await started;
		for (let turn = 0; turn < 20; turn++) await new Promise((next) => setTimeout(next, 1));
	}
	finish();
	expect(checks).toBe(1);
});
