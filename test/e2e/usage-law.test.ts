import { randomUUID } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationExecutionStatus } from "../../gen/conversations/v1/conversation_pb.js";
import { UsageStep } from "../../gen/conversations/v1/conversation_report_service_pb.js";
import { type ConversationUpdate, ConversationView } from "../../gen/conversations/v1/conversation_service_pb.js";
import { EVENT_WEBHOOK, PROTOCOLS, postWebhook, readClient, reportClient, WEBHOOK } from "../support/clients.ts";
import { ENGINES, type EngineDatabases } from "../support/engines.ts";
import { type CapturedSequence, capturedSequences } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

/** A post in the order in which it is sent. */
interface Sent {
	readonly path: string;
	readonly body: string;
}

const HOUR = 3_600_000;
const KINDS = ["promptTokens", "completionTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"] as const;
/** Cost in units of 10⁻⁹, and the tokens in the order of KINDS. */
type Sums = readonly [cost: number, ...tokens: bigint[]];
const NOTHING: Sums = [0, 0n, 0n, 0n, 0n, 0n];

function add(a: Sums, b: Sums, sign: 1 | -1 = 1): Sums {
	const [cost, ...tokens] = b;
	return [a[0] + sign * cost, ...tokens.map((count, n) => BigInt(a[n + 1] ?? 0) + BigInt(sign) * count)];
}

function objectOf(value: JsonValue | undefined): JsonObject {
	return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

function listOf(value: JsonValue | undefined): JsonValue[] {
	return Array.isArray(value) ? value : [];
}

/** Returns the last record of a sequence that has costs; undefined if none has. */
function lastWithCosts({ posts }: CapturedSequence): JsonObject | undefined {
	const records = posts.flatMap(({ webhook, body }): JsonObject[] =>
		webhook === "conversations" ? [JSON.parse(body)] : [],
	);
	return records.findLast(({ stats }) =>
		Object.values(objectOf(objectOf(stats).usage_to_metrics)).some((of) => listOf(objectOf(of).costs).length > 0),
	);
}

/** Returns stats with one more call of 0.25 and 100 tokens, at a time, of the first usage id. */
function withCall(stats: JsonValue | undefined, at: number): JsonObject {
	const [[usageId, of] = ["agent", {}], ...others] = Object.entries(objectOf(objectOf(stats).usage_to_metrics));
	const metrics = objectOf(of);
	const total = objectOf(metrics.accumulated_token_usage);
	const model = "own-model";
	return {
		usage_to_metrics: {
			[usageId]: {
				...metrics,
				accumulated_cost: Number(metrics.accumulated_cost ?? 0) + 0.25,
				accumulated_token_usage: { ...total, prompt_tokens: Number(total.prompt_tokens ?? 0) + 100 },
				costs: [...listOf(metrics.costs), { model, cost: 0.25, timestamp: at / 1000 }],
				token_usages: [...listOf(metrics.token_usages), { model, prompt_tokens: 100, response_id: randomUUID() }],
			},
			...Object.fromEntries(others),
		},
	};
}

/** Returns the posts of a fork that kept the metrics of its source, and then makes two calls of its own. */
function forkOf(source: JsonObject): Sent[] {
	const created = Date.parse(String(source.updated_at)) + HOUR;
	const fork = { ...source, id: randomUUID(), forked_from_conversation_id: source.id };
	const at = (time: number, stats: JsonValue | undefined) => ({
		path: WEBHOOK,
		body: JSON.stringify({
			...fork,
			...(stats === undefined ? {} : { stats }),
			created_at: new Date(created).toISOString(),
			updated_at: new Date(time).toISOString(),
		}),
	});
	const one = withCall(source.stats, created + 1_000);
	return [at(created, source.stats), at(created + 2_000, one), at(created + 4_000, withCall(one, created + 3_000))];
}

/** Returns the posts of a conversation that is deleted and begins again, with a call in its new life. */
function againOf(record: JsonObject): Sent[] {
	const deleted = Date.parse(String(record.updated_at)) + HOUR;
	const created_at = new Date(deleted + HOUR).toISOString();
	const updated_at = new Date(deleted + 2 * HOUR).toISOString();
	const stats = withCall({}, deleted + 1.5 * HOUR);
	return [
		{ ...record, execution_status: "deleting", updated_at: new Date(deleted).toISOString() },
		{ ...record, execution_status: "running", created_at, updated_at: created_at, stats: {} },
		{ ...record, execution_status: "finished", created_at, updated_at, stats },
	].map((body) => ({ path: WEBHOOK, body: JSON.stringify(body) }));
}

/** Returns what the stats of a record add up to, less what a fork took over. */
function sumsOf({ conversation }: ConversationUpdate): Sums {
	const created = conversation?.createdAt === undefined ? undefined : timestampMs(conversation.createdAt) / 1000;
	const isFork = conversation?.forkedFromConversationId !== undefined;
	return Object.values(conversation?.stats?.usageToMetrics ?? {}).reduce<Sums>((sum, metrics) => {
		const { accumulatedCost = 0, accumulatedTokenUsage: total, costs, tokenUsages } = metrics;
		const totals: Sums = [accumulatedCost * 1e9, ...KINDS.map((kind) => total?.[kind] ?? 0n)];
		if (!isFork) return add(sum, totals);
		// A fork's own calls are those after its creation: the last ones of both lists.
		const own = costs.filter(({ timestamp = 0 }) => timestamp >= (created ?? 0));
		const cost = own.reduce((all, one) => all + (one.cost ?? 0) * 1e9, 0);
		const tokens = own.length === 0 ? [] : tokenUsages.slice(-own.length);
		return add(sum, [cost, ...KINDS.map((kind) => tokens.reduce((all, one) => all + (one[kind] ?? 0n), 0n))]);
	}, NOTHING);
}

/**
 * Returns what the usage of a conversation must be: the sum over its lives of the stats of their last records, also of those
 * that arrived when the next life had begun.
 */
function expectedOf(updates: readonly ConversationUpdate[]): Sums {
	const lives = new Map<number | undefined, ConversationUpdate>();
	const rankOf = ({ conversation }: ConversationUpdate) =>
		conversation?.executionStatus === ConversationExecutionStatus.DELETING
			? 1e15 + timeOf(conversation.updatedAt)
			: timeOf(conversation?.updatedAt);
	for (const update of updates) {
		const { conversation, current } = update;
		const life = conversation?.createdAt === undefined ? undefined : timestampMs(conversation.createdAt);
		const last = lives.get(life);
		if (last === undefined || current || rankOf(update) >= rankOf(last)) lives.set(life, update);
	}
	// What events made before the first record belongs to the life of that record.
	if (lives.size > 1) lives.delete(undefined);
	return [...lives.values()].reduce((sum, update) => add(sum, sumsOf(update)), NOTHING);
}

function timeOf(time: Timestamp | undefined): number {
	return time === undefined ? 0 : timestampMs(time);
}

describe.each(ENGINES)("with $engine", ({ open }) => {
	let databases: EngineDatabases;
	let service: TestService;
	const ids = new Set<string>();

	beforeAll(async () => {
		databases = await open();
		service = await startTestService(await databases.create());
		const random = Random.ofSeed().of("usage law");
		const sequences = capturedSequences().filter(({ posts }) =>
			posts.some(({ webhook }) => webhook === "conversations"),
		);
		for (const sequence of sequences) {
			const { conversationId, posts } = sequence;
			const own = posts.map(({ webhook, body }) => ({
				path: webhook === "events" ? `${EVENT_WEBHOOK}/${conversationId}` : WEBHOOK,
				body,
			}));
			const record = lastWithCosts(sequence);
			const derived = record === undefined ? [] : [...forkOf(record), ...againOf(record)];
			const sent: Sent[] = [...own, ...derived];
			if (random.integer(0, 3) > 0) random.shuffle(sent);
			for (const { path, body } of sent.flatMap((post) => (random.integer(0, 4) === 0 ? [post, post] : [post]))) {
				expect((await postWebhook(service, KEY, body, {}, path)).status).toBe(200);
				if (path === WEBHOOK) ids.add(String(JSON.parse(body).id));
			}
		}
	});
	afterAll(async () => {
		await service[Symbol.asyncDispose]();
		await databases[Symbol.asyncDispose]();
	});

	test("the usage of each conversation is what its lives spent, less what forks took over, over every transport", async () => {
		const reads = readClient(service, "gRPC", KEY);
		const expected = new Map<string, Sums>();
		for (const conversationId of ids) {
			const updates: ConversationUpdate[] = [];
			let pageToken = "";
			do {
				const page = await reads.listConversationUpdates({ conversationId, view: ConversationView.FULL, pageToken });
				updates.push(...page.updates);
				pageToken = page.nextPageToken;
			} while (pageToken !== "");
			expected.set(conversationId.replaceAll("-", "").toLowerCase(), expectedOf(updates));
		}
		const spent = [...expected].filter(([, sums]) => sums.some((count) => Number(count) !== 0));
		expect(spent.length).toBeGreaterThan(20);
		const request = { groupBy: ["conversation"] };
		const report = await reportClient(service, "gRPC", KEY).reportUsage(request);
		for (const protocol of PROTOCOLS)
			expect(await reportClient(service, protocol, KEY).reportUsage(request)).toEqual(report);
		const found = new Map(report.rows.map(({ group, usage }) => [String(group[0]).replaceAll("-", ""), usage]));
		for (const [id, [cost, ...tokens]] of expected) {
			const usage = found.get(id);
			expect({ id, tokens: KINDS.map((kind) => usage?.tokens?.[kind] ?? 0n) }).toEqual({ id, tokens });
			const calls = Number(usage?.calls ?? 0n);
			expect(Math.abs((usage?.cost ?? 0) * 1e9 - cost)).toBeLessThan(calls + 2);
		}
		const response = await fetch(`${service.http}/api/v1/usage?group_by=conversation`, {
			headers: { "X-Access-Token": KEY },
		});
		const json: JsonObject = JSON.parse(await response.text());
		const number = (value: bigint | undefined) => Number(value ?? 0n);
		expect(json.rows).toEqual(
			report.rows.map(({ group, usage }) => ({
				conversation: group[0],
				cost: usage?.cost,
				tokens: {
					prompt_tokens: number(usage?.tokens?.promptTokens),
					completion_tokens: number(usage?.tokens?.completionTokens),
					cache_read_tokens: number(usage?.tokens?.cacheReadTokens),
					cache_write_tokens: number(usage?.tokens?.cacheWriteTokens),
					reasoning_tokens: number(usage?.tokens?.reasoningTokens),
				},
				calls: number(usage?.calls),
				conversations: number(usage?.conversations),
			})),
		);
		expect(objectOf(json.total)).toMatchObject({ cost: report.total?.cost, calls: number(report.total?.calls) });
	});

	test.each([
		["America/St_Johns", UsageStep.DAY],
		// The data of PostgreSQL may be older than the end of its summer time in 2026.
		["Africa/Casablanca", UsageStep.DAY],
		["Asia/Kathmandu", UsageStep.DAY],
		["Pacific/Auckland", UsageStep.WEEK],
		["Pacific/Auckland", UsageStep.MONTH],
		["UTC", UsageStep.DAY],
	])("a report in %s counts the conversations of each period of that zone (step %i)", async (timeZone, step) => {
		const reports = reportClient(service, "gRPC", KEY);
		const hours = await reports.reportUsage({ step: UsageStep.HOUR, groupBy: ["conversation", "model"], timeZone });
		const periodOf = (time: number) => {
			const [year, month, day] = new Intl.DateTimeFormat("en-CA", { timeZone }).format(time).split("-").map(Number);
			const date = new Date(Date.UTC(year ?? 0, (month ?? 1) - 1, step === UsageStep.MONTH ? 1 : day));
			if (step === UsageStep.WEEK) date.setUTCDate(date.getUTCDate() - ((date.getUTCDay() + 6) % 7));
			return date.toISOString().slice(0, 10);
		};
		for (const groupBy of [[], ["model"]]) {
			const expected = new Map<string, Set<string>>();
			for (const { start, group } of hours.rows) {
				if (start === undefined) throw new Error("a row of an hour has no start");
				const key = JSON.stringify([periodOf(timestampMs(start)), ...(groupBy.length === 0 ? [] : [group[1]])]);
				expected.set(key, (expected.get(key) ?? new Set()).add(String(group[0])));
			}
			const { rows } = await reports.reportUsage({ step, groupBy, timeZone });
			const found = rows.map(({ start, group, usage }) => {
				if (start === undefined) throw new Error("a row of a period has no start");
				return [JSON.stringify([periodOf(timestampMs(start)), ...group]), Number(usage?.conversations)] as const;
			});
			expect(new Map(found)).toEqual(new Map([...expected].map(([key, of]) => [key, of.size])));
		}
	});
});
