import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
	ConversationReportService,
	ReportUsageRequestSchema,
	UsageStep,
} from "../../gen/conversations/v1/conversation_report_service_pb.js";
import {
	ConversationService,
	GetConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { EVENT_WEBHOOK, GrpcClient, postWebhook, reportClient } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { capturedSequences, record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

describe.each(ENGINES)("with $engine", ({ open }) => {
	let databases: EngineDatabases;
	let service: TestService;
	beforeAll(async () => {
		databases = await open();
		service = await startTestService(await databases.create());
	});
	afterAll(async () => {
		await service[Symbol.asyncDispose]();
		await databases[Symbol.asyncDispose]();
	});

	test("the usage of a conversation is that of its current record, whatever the order of the posts and repeats", async () => {
		const random = Random.ofTest();
		using client = new GrpcClient(service, KEY);
		const reportOf = (request: MessageInitShape<typeof ReportUsageRequestSchema>) =>
			client.call(ConversationReportService.method.reportUsage, create(ReportUsageRequestSchema, request));
		for (const { conversationId: id, posts } of capturedSequences()) {
			const shuffled = [...posts];
			if (random.integer(0, 2) === 0) random.shuffle(shuffled);
			const repeated = shuffled.flatMap((post) => (random.integer(0, 4) === 0 ? [post, post] : [post]));
			for (const { webhook, body } of repeated)
				await postWebhook(service, KEY, body, {}, webhook === "events" ? `${EVENT_WEBHOOK}/${id}` : undefined);
		}
		const report = await reportOf({ groupBy: ["conversation"] });
		const byConversation = new Map(report.rows.map(({ group, usage }) => [group[0], usage]));
		let counted = 0;
		for (const { conversationId: id, posts } of capturedSequences()) {
			if (!posts.some(({ webhook }) => webhook === "conversations")) continue;
			const read = create(GetConversationRequestSchema, { id });
			const { conversation } = await client.call(ConversationService.method.getConversation, read);
			const metrics = Object.values(conversation?.stats?.usageToMetrics ?? {});
			const usage = byConversation.get(id);
			const cost = metrics.reduce((sum, { accumulatedCost = 0 }) => sum + accumulatedCost, 0);
			const prompt = metrics.reduce((sum, one) => sum + (one.accumulatedTokenUsage?.promptTokens ?? 0n), 0n);
			const completion = metrics.reduce((sum, one) => sum + (one.accumulatedTokenUsage?.completionTokens ?? 0n), 0n);
			const tokens = [usage?.tokens?.promptTokens ?? 0n, usage?.tokens?.completionTokens ?? 0n];
			if (conversation?.forkedFromConversationId === undefined) {
				expect({ id, tokens }).toEqual({ id, tokens: [prompt, completion] });
				expect(usage?.cost ?? 0).toBeCloseTo(cost, 7);
				if (prompt > 0n) counted += 1;
			}
		}
		expect(counted).toBeGreaterThan(5);

		// Every grouping, and every source of numbers, has the same total.
		for (const groupBy of [[], ["model"], ["usage_id", "agent_kind"], ["tag:team"], ["root", "model"], ["sender"]])
			for (const step of [UsageStep.NONE, UsageStep.MONTH, UsageStep.DAY])
				for (const top of [0, 1]) {
					const other = await reportOf({ groupBy, step, top, timeZone: "Asia/Kathmandu" });
					expect(other.total).toEqual(report.total);
					expect(other.rows.reduce((sum, { usage }) => sum + (usage?.calls ?? 0n), 0n)).toBe(report.total?.calls);
				}
	});

	test.each([
		"execution_status=finished&execution_status=deleting",
		"execution_status_not=deleting",
		"agent_kind=ACPAgent",
		"model=openai/fake-finish",
		"parent_conversation_id=00000000-0000-4000-8000-000000000001",
		"forked_from_conversation_id=00000000-0000-4000-8000-000000000001",
		"tag=a:1",
		"tag_key=a",
		"created_from=2026-11-21T08:56:00Z&created_to=2026-11-21T09:00:00Z",
		"updated_from=2026-11-21T08:56:00Z&updated_to=2026-11-21T09:00:00Z",
		"activity_from=2026-11-21T08:56:00Z&activity_to=2026-11-21T09:00:00Z",
		"cost_from=0.001&cost_to=1",
		"has_error=true",
		"has_error=false",
		"has_gaps=true",
		"has_gaps=false",
		"title_contains=a",
		"sender=test",
		"owner=nobody",
		"execution_status_not=idle&cost_from=0.001&has_error=false&activity_from=2026-11-21T08:00:00Z&title_contains=e",
	])("the usage with the filter %s is that of the conversations that a list with it has", async (filter) => {
		const read = async (path: string) => {
			const response = await fetch(`${service.http}/api/v1/${path}`, { headers: { "X-Access-Token": KEY } });
			expect(response.status).toBe(200);
			return Object(await response.json());
		};
		const { conversations } = await read(`conversations?page_size=1000&${filter}`);
		const ids = new Set(conversations.map(({ summary }: { summary: { id: string } }) => summary.id));
		const all: { conversation: string }[] = (await read("usage?group_by=conversation")).rows;
		const found = await read(`usage?group_by=conversation&${filter}`);
		expect(found.rows).toEqual(all.filter(({ conversation }) => ids.has(conversation)));
		expect(found.total.conversations).toBe(found.rows.length);
		const byDay = await read(`usage?step=day&time_zone=Asia/Kathmandu&group_by=model&group_by=owner&top=2&${filter}`);
		expect(byDay.total).toEqual(found.total);
	});

	test("what state events report counts at their time, until the lists tell the times of the calls", async () => {
		await using own = await startTestService(await databases.create());
		const started = "2026-01-01T00:00:00Z";
		const sent = record({ execution_status: "running", created_at: started, updated_at: started });
		const post = async (members: JsonObject) => {
			const { status } = await postWebhook(own, KEY, JSON.stringify({ ...sent, ...members }));
			expect(status).toBe(200);
		};
		const usage = async () => {
			const response = await fetch(`${own.http}/api/v1/usage?step=hour`, { headers: { "X-Access-Token": KEY } });
			return Object(await response.json()).rows.map(
				(row: { start: string; cost: number; tokens: { prompt_tokens: number } }) => [
					...[row.start, row.cost, row.tokens.prompt_tokens],
				],
			);
		};
		const stats = (cost: number, prompt_tokens: number, lists: JsonObject): JsonObject => ({
			usage_to_metrics: {
				agent: { model_name: "m", accumulated_cost: cost, accumulated_token_usage: { prompt_tokens }, ...lists },
			},
		});
		await post({});
		for (const [hour, cost, tokens] of [
			["10", 2, 30],
			["13", 5, 40],
		] as const) {
			const event = { id: `stats ${hour}`, kind: "ConversationStateUpdateEvent", source: "environment", key: "stats" };
			const value = stats(cost, tokens, {});
			const body = JSON.stringify([{ ...event, timestamp: `2026-01-10T${hour}:07:00`, value }]);
			expect((await postWebhook(own, KEY, body, {}, `${EVENT_WEBHOOK}/${sent.id}`)).status).toBe(200);
		}
		expect(await usage()).toEqual([
			["2026-01-10T10:00:00Z", 2, 30],
			["2026-01-10T13:00:00Z", 3, 10],
		]);
		const costs = [2, 3].map((cost, n) => ({
			model: "m",
			cost,
			timestamp: Date.parse(`2026-01-10T0${n + 8}:00:00Z`) / 1000,
		}));
		const token_usages = [30, 10].map((prompt_tokens) => ({
			model: "m",
			prompt_tokens,
			response_id: `${prompt_tokens}`,
		}));
		await post({ updated_at: "2026-01-10T14:00:00Z", stats: stats(5, 40, { costs, token_usages }) });
		expect(await usage()).toEqual([
			["2026-01-10T08:00:00Z", 2, 30],
			["2026-01-10T09:00:00Z", 3, 10],
		]);
	});

	test("the cost of a conversation is one sum in lists, filters, CSV and reports", async () => {
		await using own = await startTestService(await databases.create());
		const usage_to_metrics = Object.fromEntries(
			Array.from({ length: 10 }, (_, n) => [`usage ${n}`, { model_name: "m", accumulated_cost: 0.1 }]),
		);
		const sent = record({ stats: { usage_to_metrics } });
		expect((await postWebhook(own, KEY, JSON.stringify(sent))).status).toBe(200);
		const read = async (path: string, accept = "application/json") => {
			const response = await fetch(`${own.http}/api/v1/${path}`, {
				headers: { "X-Access-Token": KEY, Accept: accept },
			});
			expect(response.status).toBe(200);
			return await response.text();
		};
		for (const [filter, costs] of [
			["cost_from=1", [1]],
			["cost_to=1", []],
		] as const) {
			const { conversations } = JSON.parse(await read(`conversations?${filter}`));
			expect(conversations.map((one: JsonObject) => Object(one.summary).accumulated_cost)).toEqual(costs);
		}
		const [header = "", line = ""] = (await read("conversations?cost_from=1", "text/csv")).split("\r\n");
		expect(line.split(",")[header.split(",").indexOf("cost")]).toBe("1");
		expect(JSON.parse(await read("usage")).total.cost).toBe(1);
	});

	test("costs that are millennia apart make reports with a step, in any time zone", async () => {
		await using own = await startTestService(await databases.create());
		// The last one is ahead of the clock, so it counts at the time of the record.
		const times = [-62_135_590_000, 1_780_000_000, 253_402_300_799];
		const costs = times.map((timestamp) => ({ model: "m", cost: 1, timestamp }));
		const stats = { usage_to_metrics: { agent: { model_name: "m", accumulated_cost: 3, costs } } };
		const sent = record({ updated_at: new Date(1_790_000_000_000).toISOString(), stats });
		expect((await postWebhook(own, KEY, JSON.stringify(sent))).status).toBe(200);
		const starts = async (query: string) => {
			const response = await fetch(`${own.http}/api/v1/usage?${query}`, { headers: { "X-Access-Token": KEY } });
			const { rows, total } = Object(await response.json());
			expect([response.status, total.cost]).toEqual([200, 3]);
			return rows.map((row: Readonly<Record<string, unknown>>) => row.start);
		};
		expect(await starts("step=hour")).toEqual(["0001-01-01T01:00:00Z", "2026-05-28T20:00:00Z", "2026-09-21T14:00:00Z"]);
		for (const step of ["day", "week", "month"])
			expect(await starts(`step=${step}&time_zone=America/New_York`)).toHaveLength(3);
		// The first day of Nepal began before the first time that a timestamp can have.
		expect(await starts("step=day&time_zone=Asia/Kathmandu")).toEqual([
			...["0001-01-01T00:00:00Z", "2026-05-28T18:15:00Z", "2026-09-20T18:15:00Z"],
		]);
		const report = await reportClient(own, "connect over JSON", KEY).reportUsage({
			...{ step: UsageStep.DAY, timeZone: "Asia/Kathmandu" },
		});
		expect(report.total?.cost).toBe(3);
	});

	test("a sum beyond its range ends at the limit and says so, and leaves the others exact", async () => {
		await using own = await startTestService(await databases.create());
		const tokens = { huge: "9223372036854775807", exact: "9007199254740993" };
		for (const [model, count, day] of [
			["huge", tokens.huge, 1],
			["huge", tokens.huge, 2],
			["exact", tokens.exact, 3],
		] as const) {
			const total = { model, prompt_tokens: "TOKENS" };
			const stats = { usage_to_metrics: { agent: { model_name: model, accumulated_token_usage: total } } };
			const text = JSON.stringify(record({ updated_at: `2026-09-0${day}T00:00:00Z`, stats }));
			const { status } = await postWebhook(own, KEY, text.replace('"TOKENS"', count));
			expect(status).toBe(200);
		}
		const read = async (accept: string) => {
			const headers = { "X-Access-Token": KEY, Accept: accept };
			return await (await fetch(`${own.http}/api/v1/usage?group_by=model`, { headers })).text();
		};
		expect(await read("text/csv")).toBe(
			[
				"model,rest,cost,prompt_tokens,completion_tokens,cache_read_tokens,cache_write_tokens,reasoning_tokens,calls,conversations,limited",
				`huge,,0,${tokens.huge},0,0,0,0,0,2,true`,
				`exact,,0,${tokens.exact},0,0,0,0,0,1,`,
			]
				.map((line, n) => `${n === 0 ? "start" : ""},${line}\r\n`)
				.join(""),
		);
		const json = await read("application/json");
		expect(json).toContain(`"model":"exact","cost":0,"tokens":{"prompt_tokens":${tokens.exact},`);
		expect(JSON.parse(json)).toMatchObject({
			rows: [{ model: "huge", limited: true }, { model: "exact" }],
			total: { limited: true },
		});
	});
});
