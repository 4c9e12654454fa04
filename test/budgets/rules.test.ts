import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { AskedBudget } from "../../src/budgets/budgets.ts";
import { shownBudget } from "../../src/budgets/shown.ts";
import { stores } from "../forward/stores.ts";
import { appendEvents, batch, event, stateUpdate } from "../store/event-samples.ts";
import { ADMIN, TestBudgets } from "./harness.ts";

const micros = (time: string) => BigInt(Date.parse(time)) * 1000n;

const RULES: Readonly<Record<string, AskedBudget>> = {
	silent: { silentMinutes: 10 },
	waiting: { waitingMinutes: 10 },
	gap: { gapMinutes: 10 },
	stalled: { stalledEvents: 2n },
	stuck: { stuck: true },
};

describe.each(stores())("with $engine", ({ make }) => {
	test("rules without money tell of each conversation once for an occasion", async () => {
		await using test = new TestBudgets(await (await make())());
		test.goTo("2026-01-10T12:00:00Z");
		await test.forwarding.create("hook", { changes: ["SILENT"] });
		for (const [name, asked] of Object.entries(RULES)) await test.create(name, asked);
		const ids = {
			quiet: randomUUID(),
			busy: randomUUID(),
			waits: randomUUID(),
			stuck: randomUUID(),
			loops: randomUUID(),
		};
		const post = (id: string, status: string) =>
			test.post(id, [], { status, updatedAt: micros("2026-01-10T11:55:00Z") });
		const events = (id: string, time: string, make = event, more = {}) =>
			appendEvents(test.store, batch(id, [make({ happenedAt: micros(time), ...more })], { receivedAt: micros(time) }));
		await post(ids.quiet, "running");
		await post(ids.busy, "running");
		await post(ids.waits, "waiting_for_confirmation");
		await post(ids.stuck, "stuck");
		await post(ids.loops, "running");
		await events(ids.quiet, "2026-01-10T11:56:00Z");
		await events(ids.waits, "2026-01-10T11:56:00Z");
		await events(ids.loops, "2026-01-10T11:57:00Z", event, { eventId: "leaf" });
		test.follow();
		const told = async () =>
			(await test.told())
				.map(
					({ conversation_id, text }) => `${Object.entries(ids).find(([, id]) => id === conversation_id)?.[0]} ${text}`,
				)
				.toSorted();
		const first = ["stuck is stuck (stuck)"];
		await expect.poll(told, { timeout: 60_000 }).toEqual(first);
		test.goTo("2026-01-10T12:07:00Z");
		await events(ids.busy, "2026-01-10T12:06:30Z", event, { parentId: "lost" });
		for (const second of [31, 32, 33]) await events(ids.loops, `2026-01-10T12:06:${second}Z`, stateUpdate);
		const second = [
			...first,
			"loops runs, and had more than 2 events without a new leaf (stalled)",
			"quiet runs, and has been silent for more than 10 minutes (silent)",
			"waits has waited for more than 10 minutes (waiting)",
		].toSorted();
		await expect.poll(told, { timeout: 60_000 }).toEqual(second);
		// Another occasion, and the same ones again.
		await events(ids.quiet, "2026-01-10T12:06:50Z");
		test.goTo("2026-01-10T12:17:00Z");
		await events(ids.loops, "2026-01-10T12:16:40Z", stateUpdate);
		const third = [
			...second,
			"busy has missed something for more than 10 minutes (gap)",
			"busy runs, and has been silent for more than 10 minutes (silent)",
			"quiet runs, and has been silent for more than 10 minutes (silent)",
		].toSorted();
		await expect.poll(told, { timeout: 60_000 }).toEqual(third);
		const shown = await Promise.all(
			(await test.budgets.list(ADMIN)).map((row) => shownBudget(test.store, test.reads, row, false, test.now)),
		);
		expect(Object.fromEntries(shown.map(({ name, spent }) => [name, spent]))).toEqual({
			...{ silent: 2, waiting: 1, gap: 1, stalled: 1, stuck: 1 },
		});
		expect(test.errors).toEqual([]);
	});
});
