import { randomBytes, randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import {
	BudgetPeriod,
	BudgetService,
	BudgetState,
	type CreateBudgetRequestSchema,
} from "../../gen/conversations/v1/budget_service_pb.js";
import { ForwardingService } from "../../gen/conversations/v1/forwarding_service_pb.js";
import { Receiver } from "../forward/receiver.ts";
import { clientOf, type Endpoints, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";

const [RED, BLUE] = ["key-of-the-red-agents", "key-of-the-blue-agents"];
const ENV = {
	ACCESS_KEYS: `test:${KEY}:ingest+read+forward+pause,red:${RED}:ingest+forward@red,blue:${BLUE}:ingest+forward@blue`,
	ENCRYPTION_KEY: randomBytes(32).toString("base64"),
	FORWARD_PRIVATE: "on",
};

/** Posts a conversation that has spent an amount just now. */
async function spend(service: Endpoints, key: string, id: string, cost: number): Promise<void> {
	const costs = [{ model: "m", cost, timestamp: Date.now() / 1000 }];
	const stats = { usage_to_metrics: { agent: { model_name: "m", accumulated_cost: cost, costs } } };
	expect((await postWebhook(service, key, JSON.stringify(record({ id, title: "of red", stats })))).status).toBe(200);
}

test("over gRPC, budgets are managed, and each owner has its own", async () => {
	await using service = await startTestService(ENV);
	const of = (key: string) => clientOf(BudgetService, service, "gRPC", key);
	const [admin, red, blue] = [of(KEY), of(RED), of(BLUE)];
	const id = randomUUID();
	await spend(service, RED, id, 3);
	await spend(service, BLUE, randomUUID(), 4);
	const { budget } = await red.createBudget({ name: "all", amount: 4, period: BudgetPeriod.DAY });
	expect(budget).toMatchObject({
		...{ name: "all", owner: "red", amount: 4, period: BudgetPeriod.DAY, thresholds: [0.5, 0.8, 1], createdBy: "red" },
		...{ spent: 3, state: BudgetState.WARNING, spenders: [{ conversationId: id, spent: 3 }] },
	});
	expect(budget?.forecast).toBeGreaterThanOrEqual(3);
	await blue.createBudget({ name: "all", tokens: 10n });
	await admin.createBudget({ name: "all", amount: 7 });
	await expect(red.createBudget({ name: "all", amount: 1 })).rejects.toThrow("There is a budget with the name all");
	await expect(red.getBudget({ name: "all", owner: "blue" })).rejects.toThrow("There is no such budget");
	expect((await red.listBudgets({})).budgets.map(({ owner, spent }) => [owner, spent])).toEqual([["red", 3]]);
	expect((await admin.listBudgets({})).budgets.map(({ owner, spent }) => [owner, spent])).toEqual([
		["", 7],
		["blue", 0],
		["red", 3],
	]);
	const changed = await red.updateBudget({ name: "all", amount: 3, thresholds: [1] });
	expect(changed.budget).toMatchObject({
		amount: 3,
		thresholds: [1],
		period: BudgetPeriod.DAY,
		state: BudgetState.EXCEEDED,
	});
	const masked = await red.updateBudget({ name: "all", tokens: 9n, updateMask: { paths: ["tokens", "thresholds"] } });
	expect(masked.budget).toMatchObject({ tokens: 9n, thresholds: [0.5, 0.8, 1], spent: 0 });
	expect(masked.budget?.amount).toBeUndefined();
	await expect(red.updateBudget({ name: "all", pause: true })).rejects.toThrow('lacks the scope "pause"');
	await admin.updateBudget({ name: "all", owner: "red", pause: true });
	await expect(red.updateBudget({ name: "all", amount: 100 })).rejects.toThrow('lacks the scope "pause"');
	expect((await red.updateBudget({ name: "all", pause: false, updateMask: { paths: ["pause"] } })).budget?.pause).toBe(
		false,
	);
	await red.deleteBudget({ name: "all" });
	await expect(red.deleteBudget({ name: "all" })).rejects.toThrow("There is no such budget");
	const refusals: [string, MessageInitShape<typeof CreateBudgetRequestSchema>][] = [
		["name", { name: "a b", amount: 1 }],
		["amount", { name: "x" }],
		["amount", { name: "x", amount: 1, tokens: 1n }],
		["amount", { name: "x", amount: Number.NaN }],
		["tokens", { name: "x", tokens: 0n }],
		["time_zone", { name: "x", amount: 1, timeZone: "Mars/Base" }],
		["thresholds", { name: "x", amount: 1, thresholds: [0] }],
		["filter.ids", { name: "x", amount: 1, filter: { ids: ["x"] } }],
		["amount", { name: "x", amount: 1, silentMinutes: 1 }],
		["waiting_minutes", { name: "x", waitingMinutes: 0 }],
		["stalled_events", { name: "x", stalledEvents: 0n }],
		["pause", { name: "x", stuck: true, pause: true }],
	];
	for (const [field, asked] of refusals)
		await expect(admin.createBudget(asked)).rejects.toMatchObject({
			...{ code: Code.InvalidArgument, rawMessage: expect.stringMatching(new RegExp(`^${field} `)) },
		});
});

test("budgets are JSON under /api/v1/budgets, with the statuses of endpoints", async () => {
	await using service = await startTestService(ENV);
	const call = async (method: string, path: string, body?: object, key = KEY) => {
		const response = await fetch(`${service.http}/api/v1/budgets${path}`, {
			...{ method, headers: { "X-Access-Token": key, "Content-Type": "application/json" } },
			...(body === undefined ? {} : { body: JSON.stringify(body) }),
		});
		return [response.status, await response.json()] as const;
	};
	const asked = {
		name: "team",
		amount: 2.5,
		period: "week",
		time_zone: "Europe/Berlin",
		filter: { tags: { team: "a" } },
	};
	const [status, made] = await call("POST", "", { ...asked, thresholds: [1, 0.5], each_conversation: true });
	expect([status, made]).toEqual([
		200,
		{
			budget: expect.objectContaining({
				...{ name: "team", amount: 2.5, period: "week", time_zone: "Europe/Berlin", thresholds: [0.5, 1] },
				...{ each_conversation: true, pause: false, spent: 0, forecast: 0, state: "ok", spenders: [] },
			}),
		},
	]);
	expect(await call("GET", "/team")).toEqual([200, { budget: expect.objectContaining({ name: "team" }) }]);
	expect(await call("GET", "")).toEqual([200, { budgets: [expect.objectContaining({ name: "team" })] }]);
	expect(await call("PATCH", "/team", { tokens: 100, each_conversation: false })).toEqual([
		200,
		{ budget: expect.objectContaining({ tokens: 100, each_conversation: false, period: "week" }) },
	]);
	expect(await call("POST", "", asked)).toEqual([409, { detail: "There is a budget with the name team" }]);
	expect(await call("POST", "", { name: "x", amount: 1, period: "year" })).toEqual([
		400,
		{ detail: expect.stringMatching(/^period must be one of/) },
	]);
	expect(await call("POST", "", { name: "x", amount: 1, pause: true }, RED)).toMatchObject([403, {}]);
	expect(await call("DELETE", "/team")).toEqual([200, {}]);
	expect((await call("GET", "/team"))[0]).toBe(404);
});

test("an endpoint that wants BUDGET is told when a threshold is reached", async () => {
	await using receiver = await Receiver.start();
	await using service = await startTestService(ENV);
	const { secret } = await clientOf(ForwardingService, service, "connect", RED).createEndpoint({
		...{ name: "hook", url: receiver.url, changes: ["BUDGET"] },
	});
	const budgets = clientOf(BudgetService, service, "connect", RED);
	await budgets.createBudget({ name: "team", amount: 4, period: BudgetPeriod.DAY, thresholds: [0.5] });
	await spend(service, BLUE, randomUUID(), 8);
	await spend(service, RED, randomUUID(), 1);
	await spend(service, RED, randomUUID(), 1.5);
	const [first] = await receiver.count(1);
	if (first === undefined) throw new Error("nothing was received");
	expect(new Webhook(secret).verify(first.body, first.headers)).toMatchObject({
		type: "budget.threshold",
		data: {
			change: "budget",
			budget: { name: "team", owner: "red", limit: 4, threshold: 0.5, spent: 2.5, late: false },
		},
	});
});
