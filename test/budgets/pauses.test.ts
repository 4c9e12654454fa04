import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { BudgetPeriod } from "../../gen/conversations/v1/budget_service_pb.js";
import { idDigest } from "../../src/store/erasure.ts";
import { stores } from "../forward/stores.ts";
import { FakeAgentServer, send } from "../reconcile/fake-agent-server.ts";
import { TestBudgets } from "./harness.ts";

const SUCCESS = '{"success":true}';
const at = Date.parse("2026-01-10T01:00:00Z");
const RUNNING = { status: "running" };

describe.each(stores())("with $engine", ({ make }) => {
	test("a budget that pauses stops what runs, once, at the server whose sender posted it", async () => {
		await using test = new TestBudgets(await (await make())());
		await using first = await FakeAgentServer.start((_, response) => send(response, 200, SUCCESS));
		await using second = await FakeAgentServer.start((_, response) => send(response, 200, SUCCESS));
		test.servers.set("agent", { url: first.url, key: "session-key" });
		test.servers.set("other", { url: new URL("/prefix/", second.url), key: undefined });
		test.goTo("2026-01-10T12:00:00Z");
		await test.forwarding.create("hook");
		await test.create("quiet", { amount: 1 });
		await test.create("team", { amount: 5, pause: true, thresholds: [1] });
		test.follow();
		const [one, two, idle, free] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
		await test.post(one, [{ cost: 2, at }], RUNNING);
		await test.post(idle, [{ cost: 2, at }], { status: "finished" });
		await test.post(free, [], RUNNING);
		await test.compared();
		expect(first.requests).toEqual([]);
		await test.post(two, [{ cost: 2, at }], RUNNING, "other");
		await test.compared();
		expect(first.requests).toEqual([`POST /api/conversations/${one}/pause session-key`]);
		expect(second.requests).toEqual([`POST /prefix/api/conversations/${two}/pause no key`]);
		// Someone lets it run again.
		await test.post(
			one,
			[
				{ cost: 2, at },
				{ cost: 1, at },
			],
			RUNNING,
		);
		await test.compared();
		expect(first.requests).toHaveLength(1);
		expect((await test.audited()).toSorted()).toEqual(
			[one, two].map((id) => ["service", "", idDigest(id), "budget team: paused"]).toSorted(),
		);
		expect(test.logged).toEqual(
			expect.arrayContaining([
				["conversation_paused", one, "team", ""],
				["conversation_paused", two, "team", ""],
			]),
		);
		const told = (await test.told()).filter(({ paused }) => paused !== undefined);
		expect(told.map(({ conversation_id, text, paused }) => [conversation_id, text, paused]).toSorted()).toEqual(
			[one, two].map((id) => [id, "was paused, because the budget team is spent", true]).toSorted(),
		);
	});

	test("a failure is told and tried again; without a server of its sender nothing is called", async () => {
		await using test = new TestBudgets(await (await make())());
		let status = 500;
		await using server = await FakeAgentServer.start((_, response) => send(response, status, SUCCESS));
		test.servers.set("agent", { url: server.url, key: undefined });
		test.goTo("2026-01-10T12:00:00Z");
		await test.forwarding.create("hook");
		await test.create("life", { amount: 1, period: BudgetPeriod.CONVERSATION, pause: true, thresholds: [1] });
		test.follow();
		const [one, two] = [randomUUID(), randomUUID()];
		await test.post(one, [{ cost: 2, at }], RUNNING);
		await test.post(two, [{ cost: 2, at }], RUNNING, "unknown");
		await expect.poll(() => new Set(test.logged.map(([, id]) => id)).size).toBe(2);
		expect(test.logged).toEqual(
			expect.arrayContaining([
				["conversation_not_paused", one, "life", "", "The agent server answers with status 500"],
				["conversation_not_paused", two, "life", "", "RECONCILE_AGENT_SERVERS has no agent server of its sender"],
			]),
		);
		const reasons = async () =>
			(await test.told()).flatMap(({ conversation_id, paused, reason }) =>
				paused === undefined ? [] : [[conversation_id, paused, reason]],
			);
		const failed = [
			[one, false, "The agent server answers with status 500"],
			[two, false, "RECONCILE_AGENT_SERVERS has no agent server of its sender"],
		];
		await expect.poll(async () => (await reasons()).toSorted()).toEqual(failed.toSorted());
		status = 200;
		// Something arrives.
		await test.post(randomUUID(), []);
		await test.compared();
		expect((await reasons()).toSorted()).toEqual([...failed, [one, true, null]].toSorted());
		expect(test.logged.filter(([kind, id]) => kind === "conversation_not_paused" && id === two)).toHaveLength(1);
		const calls = await test.audited();
		expect(calls[0]).toEqual(["service", "", idDigest(one), "budget life: paused"]);
		expect(JSON.stringify(calls)).not.toContain(idDigest(two));
	});
});
