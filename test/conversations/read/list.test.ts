import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
	ConversationExecutionStatus,
	ConversationExecutionStatusSchema,
} from "../../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import type { ListedConversation, ListRequest } from "../../../src/conversations/read/list.ts";
import { formatDateTime, fromMicroseconds } from "../../../src/record/json/scalars.ts";
import { planEnum } from "../../../src/record/plan.ts";
import { type Columns, type Filter, matches } from "../../store/samples.ts";
import { columns, storeFilters } from "./filters.ts";
import { allPages, expectPages, format, Reading, refusal } from "./reading.ts";

const STATUSES = planEnum(ConversationExecutionStatusSchema).byName;

let reading: Reading;

beforeEach(async () => {
	reading = await Reading.open();
});

afterEach(async () => {
	await reading[Symbol.asyncDispose]();
});

const ALL: ListRequest = { pageSize: 0, pageToken: "", filter: undefined, full: false, secrets: "redacted" };

/** Lists all pages in order. */
async function pages(request: Partial<ListRequest>): Promise<(readonly ListedConversation[])[]> {
	const all = await allPages((pageToken) => reading.list.list({ ...ALL, ...request, pageToken }));
	return all.map(({ conversations }) => conversations);
}

function protoFilter(filter: Filter): ConversationFilter {
	const proto = create(ConversationFilterSchema, {
		executionStatus: STATUSES.get(filter.status ?? "") ?? ConversationExecutionStatus.UNSPECIFIED,
		agentKind: filter.agentKind ?? "",
		model: filter.model ?? "",
		parentConversationId: filter.parentId?.toUpperCase() ?? "",
		tags: { ...filter.tags },
		tagKey: filter.tagKey ?? "",
		titleContains: filter.titleContains ?? "",
	});
	for (const name of ["createdFrom", "createdTo", "updatedFrom", "updatedTo"] as const) {
		const time = filter[name];
		if (time !== undefined) proto[name] = fromMicroseconds(time);
	}
	return proto;
}

/** Returns the members of a record with these columns. */
function members(own: Columns): JsonObject {
	const time = (micros: bigint | undefined) =>
		micros === undefined ? undefined : formatDateTime(fromMicroseconds(micros));
	const json = {
		execution_status: own.status,
		agent:
			own.agentKind === "Agent"
				? { kind: "Agent", llm: { model: own.model } }
				: { kind: "ACPAgent", acp_command: ["acp"], acp_model: own.model },
		title: own.title,
		parent_conversation_id: own.parentId,
		created_at: time(own.createdAt),
		updated_at: time(own.updatedAt),
		tags: { ...own.tags },
	};
	return JSON.parse(JSON.stringify(json));
}

test("the pages of any size for any filter together are all matching conversations, newest update first", async () => {
	const kept: { columns: Columns; sequence: bigint }[] = [];
	for (const own of fc.sample(columns, 120)) {
		const { sequence } = await reading.keep(members(own));
		const [{ receivedAt = 0n } = {}] = await reading.store.updates.list({
			after: sequence - 1n,
			limit: 1,
			withRecords: false,
		});
		const { createdAt = receivedAt, updatedAt = receivedAt } = own;
		kept.push({ columns: { ...own, createdAt, updatedAt }, sequence });
	}
	kept.reverse();
	await fc.assert(
		fc.asyncProperty(storeFilters, fc.integer({ min: 1, max: 40 }), fc.boolean(), async (filter, pageSize, full) => {
			const found = await pages({ filter: protoFilter(filter), pageSize, full });
			const expected = kept.filter((one) => matches(one.columns, filter)).map((one) => one.sequence);
			expectPages(found, pageSize, expected);
		}),
		{ numRuns: 150 },
	);
});

test("an entry has the summary, and the whole record on request", async () => {
	const id = "0190d6a0-0000-7000-8000-000000000001";
	const json: JsonObject = {
		id,
		title: "A title",
		execution_status: "running",
		agent: { kind: "ACPAgent", acp_command: ["acp"], acp_model: "forced", acp_resume_session_id: "sk-1" },
		current_model_id: "opaque-7",
		available_models: [{ model_id: "opaque-7", name: "Seven" }],
		stats: {
			usage_to_metrics: {
				agent: { accumulated_cost: 0.5, accumulated_token_usage: { prompt_tokens: 10, completion_tokens: 20 } },
				condenser: { accumulated_cost: 0.25, accumulated_token_usage: { prompt_tokens: 1, cache_read_tokens: 2 } },
			},
		},
		created_at: "2026-01-01T00:00:00Z",
		updated_at: "2026-01-02T00:00:00.000001Z",
		parent_conversation_id: "0190d6a0-0000-7000-8000-00000000000f",
		tags: { a: "1" },
	};
	const { sequence } = await reading.keep(json);
	const summary: ConversationSummary = create(ConversationSummarySchema, {
		id,
		title: "A title",
		executionStatus: ConversationExecutionStatus.RUNNING,
		agentKind: "ACPAgent",
		model: "Seven",
		accumulatedCost: 0.75,
		tokens: { promptTokens: 11n, completionTokens: 20n, cacheReadTokens: 2n },
		createdAt: { seconds: 1_767_225_600n },
		updatedAt: { seconds: 1_767_312_000n, nanos: 1000 },
		parentConversationId: "0190d6a0-0000-7000-8000-00000000000f",
		runStartedAt: { seconds: 1_767_312_000n, nanos: 1000 },
		tags: { a: "1" },
	});
	expect(await reading.list.list(ALL)).toEqual({
		conversations: [{ sequence, hasRecord: true, summary, conversation: undefined, unreadable: false, scores: {} }],
		nextPageToken: "",
		totalSize: 1n,
	});
	const { conversation } = await reading.getDecoded({ id, sequence: undefined, secrets: "redacted" });
	expect(await reading.list.list({ ...ALL, full: true })).toEqual({
		conversations: [{ sequence, hasRecord: true, summary, conversation, unreadable: false, scores: {} }],
		nextPageToken: "",
		totalSize: 1n,
	});
	expect(format.toJson(conversation)).toMatchObject({
		title: "A title",
		agent: { acp_resume_session_id: "**********" },
	});
});

test("a page has 50 entries by default, and at most 1000", async () => {
	await Promise.all(Array.from({ length: 1001 }, () => reading.keep({})));
	const sizes = async (pageSize: number) => (await pages({ pageSize })).map((page) => page.length);
	expect((await sizes(0)).slice(0, 2)).toEqual([50, 50]);
	expect(await sizes(1000)).toEqual([1000, 1]);
	expect(await sizes(2_000_000)).toEqual([1000, 1]);
	expect(await sizes(1001)).toEqual([1000, 1]);
});

test("a page of whole records ends before 3.5 MiB, but has at least one; summaries ignore that size", async () => {
	const kilobytes = [900, 1100, 1100, 1300, 5000, 10, 10, 10, 3400, 300];
	for (const size of kilobytes) await reading.keep({ agent_state: { text: "x".repeat(size * 1024) } });
	const sizes = async (full: boolean) => (await pages({ full })).map((page) => page.length);
	// Newest first: 300, 3400 and so on.
	expect(await sizes(true)).toEqual([1, 4, 1, 3, 1]);
	expect(await sizes(false)).toEqual([10]);
});

test("a page of large summaries ends before 3.5 MiB", async () => {
	for (let count = 0; count < 3; count++) await reading.keep({ title: "x".repeat(1.5 * 1024 * 1024) });
	expect((await pages({})).map((page) => page.length)).toEqual([2, 1]);
});

test("a page token is valid only for its filter, however that is written", async () => {
	for (let count = 0; count < 3; count++) await reading.keep({ tags: { a: "1", b: "2" } });
	const filter = (init: MessageInitShape<typeof ConversationFilterSchema>) => create(ConversationFilterSchema, init);
	const first = await reading.list.list({ ...ALL, pageSize: 2, filter: filter({ tags: { a: "1", b: "2" } }) });
	const next = (other: ConversationFilter | undefined) =>
		reading.list.list({ ...ALL, filter: other, pageToken: first.nextPageToken });
	const same = await next(filter({ tags: { b: "2", a: "1" } }));
	expect(same.conversations.map((one) => one.sequence)).toEqual([1n]);
	const message = "page_token is not valid for this list and filter";
	expect(await refusal(next(undefined))).toEqual({ kind: "invalid_argument", message });
	expect(await refusal(next(filter({ tags: { a: "1" } })))).toEqual({ kind: "invalid_argument", message });
});

test("an invalid request is refused with the name of the field", async () => {
	const list = (request: Partial<ListRequest>) => refusal(reading.list.list({ ...ALL, ...request }));
	expect(await list({ pageSize: -1 })).toEqual({ kind: "invalid_argument", message: "page_size must not be negative" });
	const filter = create(ConversationFilterSchema, { parentConversationId: "x" });
	const message = "filter.parent_conversation_id is not a UUID";
	expect(await list({ filter })).toEqual({ kind: "invalid_argument", message });
});

test("an unreadable record is listed as unreadable among the others, and reported", async () => {
	const ids = ["0190d6a0-0000-7000-8000-000000000001", "0190d6a0-0000-7000-8000-000000000002"];
	for (const id of ids) await reading.keep({ id, title: "a title" });
	reading.damage(1n);
	const { conversations } = await reading.list.list({ ...ALL, full: true });
	expect(conversations.map(({ sequence, summary, unreadable }) => [sequence, summary.id, unreadable])).toEqual([
		[2n, ids[1], false],
		[1n, ids[0], true],
	]);
	expect(conversations[1]).toEqual({
		sequence: 1n,
		hasRecord: true,
		summary: create(ConversationSummarySchema, { id: ids[0] ?? "" }),
		conversation: undefined,
		unreadable: true,
		scores: {},
	});
	expect(reading.unreadable).toEqual([{ conversationId: ids[0], sequence: 1n }]);
	expect((await reading.list.list(ALL)).conversations.map(({ summary }) => summary.title)).toEqual([
		"a title",
		"a title",
	]);
	reading.damage(2n, "summary");
	expect((await reading.list.list(ALL)).conversations.map(({ unreadable }) => unreadable)).toEqual([true, false]);
});
