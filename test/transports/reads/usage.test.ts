import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { postWebhook } from "../../support/clients.ts";
import { object, record } from "../../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const FIRST = "0190d6a0-0000-7000-8000-00000000000a";
const SECOND = "0190d6a0-0000-7000-8000-00000000000b";

let service: TestService;

beforeAll(async () => {
	service = await startTestService();
	await post(FIRST, "m-1", { team: "red" }, ["2026-01-01T00:10:00Z"]);
	await post(FIRST, "m-1", { team: "red" }, ["2026-01-01T00:10:00Z", "2026-01-03T10:00:00Z"]);
	await post(SECOND, "m-2", { team: '=a,"b"' }, ["2026-01-01T05:00:00Z"], 2);
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

/** Posts a record with a call at each of the times; it was updated at the last one. */
async function post(id: string, model: string, tags: Record<string, string>, times: readonly string[], cost = 0.25) {
	const usage = { prompt_tokens: 100, completion_tokens: 20, cache_read_tokens: 3, reasoning_tokens: 1 };
	const sums = Object.entries(usage).map(([name, count]) => [name, count * times.length]);
	const metrics = {
		model_name: model,
		accumulated_cost: cost * times.length,
		accumulated_token_usage: { model, ...Object.fromEntries(sums) },
		costs: times.map((time) => ({ model, cost, timestamp: Date.parse(time) / 1000 })),
		token_usages: times.map((time) => ({ model, ...usage, response_id: `response of ${time}` })),
	};
	const body = record({
		id,
		tags,
		created_at: times[0] ?? null,
		updated_at: times.at(-1) ?? null,
		stats: { usage_to_metrics: { agent: metrics } },
	});
	expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
}

async function get(query: string, accept = "application/json"): Promise<[number, string]> {
	const response = await fetch(`${service.http}/api/v1/usage?${query}`, {
		headers: { "X-Access-Token": KEY, Accept: accept },
	});
	return [response.status, await response.text()];
}

/** The members of a row with a number of calls, in their order. */
function numbers(cost: number, calls: number, conversations = 1) {
	return {
		cost,
		tokens: {
			prompt_tokens: 100 * calls,
			completion_tokens: 20 * calls,
			cache_read_tokens: 3 * calls,
			cache_write_tokens: 0,
			reasoning_tokens: calls,
		},
		calls,
		conversations,
	};
}

const [FIRST_DAY, THIRD_DAY] = ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"];
const ALL = numbers(2.5, 3, 2);

test.each<[string, object]>([
	["", { rows: [ALL], total: ALL }],
	[
		"step=day&group_by=model",
		{
			rows: [
				{ start: FIRST_DAY, model: "m-2", ...numbers(2, 1) },
				{ start: FIRST_DAY, model: "m-1", ...numbers(0.25, 1) },
				{ start: THIRD_DAY, model: "m-1", ...numbers(0.25, 1) },
			],
			total: ALL,
		},
	],
	[
		"group_by=usage_id&group_by=agent_kind&group_by=sender&group_by=owner",
		{ rows: [{ usage_id: "agent", agent_kind: "ACPAgent", sender: "test", owner: "", ...ALL }], total: ALL },
	],
	[
		"group_by=conversation&group_by=root&group_by=tag:team&tag=team:red",
		{
			rows: [{ conversation: FIRST, root: FIRST, "tag:team": "red", ...numbers(0.5, 2) }],
			total: numbers(0.5, 2),
		},
	],
	[
		"group_by=model&top=1",
		{
			rows: [
				{ model: "m-2", ...numbers(2, 1) },
				{ rest: true, ...numbers(0.5, 2) },
			],
			total: ALL,
		},
	],
	[
		"step=day&from=2026-01-02T00:00:00Z&to=2026-01-04T00:00:00Z&time_zone=America/New_York",
		{ rows: [{ start: "2026-01-03T05:00:00Z", ...numbers(0.25, 1) }], total: numbers(0.25, 1) },
	],
	["step=day&from=2026-01-02T00:00:00Z&to=2026-01-03T00:00:00Z", { rows: [], total: numbers(0, 0, 0) }],
	["model=m-3", { rows: [], total: numbers(0, 0, 0) }],
])("a report by %s has these members in this order", async (query, expected) => {
	const notReported = { conversations_without_cost: 0, conversations_without_tokens: 0 };
	expect(await get(query)).toEqual([200, JSON.stringify({ ...expected, ...notReported })]);
});

test("a report tells of how many conversations in its range no cost and no tokens were reported", async () => {
	await using own = await startTestService();
	const times = { created_at: "2026-01-02T00:00:00Z", updated_at: "2026-01-04T00:00:00Z" };
	const send = async (more: object) => {
		expect((await postWebhook(own, KEY, JSON.stringify({ ...record(times), ...more }))).status).toBe(200);
	};
	const free = { usage_to_metrics: { agent: { accumulated_cost: 0 } } };
	const tokens = { usage_to_metrics: { agent: { accumulated_token_usage: { prompt_tokens: 1 } } } };
	for (const stats of [undefined, free, tokens]) await send({ id: randomUUID(), stats });
	await send({ id: randomUUID(), tags: { team: "red" } });
	const counts = async (query: string) => {
		const response = await fetch(`${own.http}/api/v1/usage?${query}`, { headers: { "X-Access-Token": KEY } });
		const { conversations_without_cost: cost, conversations_without_tokens: of } = object(await response.json());
		return [cost, of];
	};
	await expect.poll(() => counts("")).toEqual([2, 3]);
	expect(await counts("tag=team:red&group_by=model")).toEqual([1, 1]);
	expect(await counts("from=2026-01-03T00:00:00Z&to=2026-01-03T01:00:00Z")).toEqual([2, 3]);
	expect(await counts("from=2026-01-04T00:15:00Z")).toEqual([0, 0]);
	expect(await counts("to=2026-01-02T00:00:00Z")).toEqual([0, 0]);
});

const TOKENS = "prompt_tokens,completion_tokens,cache_read_tokens,cache_write_tokens,reasoning_tokens";

test.each([
	["", `start,rest,cost,${TOKENS},calls,conversations,limited\r\n,,2.5,300,60,9,0,3,3,2,\r\n`],
	[
		"step=day&group_by=model&group_by=tag:team",
		`start,model,tag:team,rest,cost,${TOKENS},calls,conversations,limited\r\n` +
			`${FIRST_DAY},m-2,"'=a,""b""",,2,100,20,3,0,1,1,1,\r\n` +
			`${FIRST_DAY},m-1,red,,0.25,100,20,3,0,1,1,1,\r\n` +
			`${THIRD_DAY},m-1,red,,0.25,100,20,3,0,1,1,1,\r\n`,
	],
	[
		"group_by=model&top=1",
		`start,model,rest,cost,${TOKENS},calls,conversations,limited\r\n` +
			",m-2,,2,100,20,3,0,1,1,1,\r\n,,true,0.5,200,40,6,0,2,2,1,\r\n",
	],
	["from=2030-01-01T00:00:00Z", `start,rest,cost,${TOKENS},calls,conversations,limited\r\n`],
])("a report by %s is this CSV", async (query, expected) => {
	expect(await get(query, "text/csv")).toEqual([200, expected]);
	expect(await get(query, "text/html, text/csv;q=0.9, application/json;q=0.1")).toEqual([200, expected]);
});

test("a report of more than 10,000 rows, or periods with usage, is refused and says how to ask for fewer", async () => {
	await using many = await startTestService();
	const metrics = { model_name: "m", accumulated_cost: 1 };
	const usages = Object.fromEntries(Array.from({ length: 10_001 }, (_, n) => [`usage ${n}`, metrics]));
	const timestamps = Array.from({ length: 10_001 }, (_, n) => 1_700_000_000 + n * 3600);
	const costs = timestamps.map((timestamp) => ({ model: "m", cost: 1, timestamp }));
	for (const usage_to_metrics of [usages, { agent: { model_name: "m", accumulated_cost: 10_001, costs } }]) {
		const body = JSON.stringify({ ...record({ stats: { usage_to_metrics } }), id: randomUUID() });
		expect((await postWebhook(many, KEY, body)).status).toBe(200);
	}
	const answer = async (query: string) => {
		const response = await fetch(`${many.http}/api/v1/usage?${query}`, { headers: { "X-Access-Token": KEY } });
		return [response.status, await response.json()];
	};
	const rows =
		"the report has more than 10000 rows: ask for a shorter range, a longer step, fewer groups, or the largest ones with top";
	const periods = "the report has more than 10000 periods with usage: ask for a shorter range, or a longer step";
	// On a busy machine the view may be behind for a moment.
	await expect.poll(() => answer("group_by=usage_id")).toEqual([400, { detail: rows }]);
	await expect.poll(() => answer("step=hour")).toEqual([400, { detail: periods }]);
	expect(await answer("group_by=model")).toEqual([200, expect.objectContaining({ rows: [expect.anything()] })]);
});

test.each([
	[
		"group_by=team",
		"group_by must be one of model, usage_id, agent_kind, sender, owner, conversation, root or tag:KEY",
	],
	["group_by=model&group_by=model", "group_by has an entry twice"],
	["time_zone=Mars/Olympus", "time_zone is not a name of the IANA time zone database"],
	["top=1001", "top must be from 0 to 1000"],
	["from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "to must not be before from"],
])("%s is refused with the name of the parameter", async (query, detail) => {
	expect(await get(query)).toEqual([400, JSON.stringify({ detail })]);
});
