import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

const LARGEST = 2n ** 63n - 1n;
let service: TestService;

beforeAll(async () => {
	service = await startTestService();
});
afterAll(() => service[Symbol.asyncDispose]());

/** Posts a record and returns its summary, which a list, a list of updates and a watch must all return. */
async function summaryOf(text: string) {
	const response = await postWebhook(service, KEY, text);
	expect([response.status, await response.text()]).toEqual([200, '{"success":true}']);
	const client = readClient(service, "gRPC", KEY);
	const [entry] = (await client.listConversations({ pageSize: 1 })).conversations;
	const conversationId = entry?.summary?.id ?? "";
	const { updates } = await client.listConversationUpdates({ conversationId });
	const watched = await updatesUntilCaughtUp(service, KEY, { start: BEGINNING, conversationId });
	expect([updates.at(-1)?.summary, watched.at(-1)?.summary]).toEqual([entry?.summary, entry?.summary]);
	return entry?.summary;
}

test.each(["0", " ", "false", "名前"])("a model named %j is in the summary, and a filter finds it", async (model) => {
	const native = record({ agent: { kind: "Agent", llm: { model } } });
	expect((await summaryOf(JSON.stringify(native)))?.model).toBe(model);
	const acp = record({ current_model_id: model });
	expect((await summaryOf(JSON.stringify(acp)))?.model).toBe(model);
	const { conversations } = await readClient(service, "gRPC", KEY).listConversations({ filter: { model } });
	expect(conversations.map(({ summary }) => summary?.id).sort()).toEqual([native.id, acp.id].sort());
});

test("sums of tokens are capped at the largest 64-bit integer, and sums of costs at as many units of 10⁻⁹", async () => {
	const usage = { prompt_tokens: "LARGEST", completion_tokens: 1 };
	const metrics: JsonObject = { accumulated_cost: 1.5e308, accumulated_token_usage: usage };
	const json = record({ stats: { usage_to_metrics: { a: metrics, b: metrics, c: metrics } } });
	const summary = await summaryOf(JSON.stringify(json).replaceAll('"LARGEST"', String(LARGEST)));
	expect(summary).toMatchObject({
		tokens: { promptTokens: LARGEST, completionTokens: 3n },
		accumulatedCost: 9_223_372_036.854_776,
	});
	const response = await fetch(`${service.http}/api/v1/conversations?page_size=1`, {
		headers: { "X-Access-Token": KEY },
	});
	const text = await response.text();
	expect(text).toContain(`"prompt_tokens":${LARGEST}`);
});

test("the maximum length of a title filter counts code points, not UTF-16 code units", async () => {
	const title = "😀".repeat(1025);
	await ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(record({ title })));
	const list = async (titleContains: string) => {
		const { conversations } = await readClient(service, "gRPC", KEY).listConversations({ filter: { titleContains } });
		return conversations.map(({ summary }) => summary?.title);
	};
	expect(await list("😀".repeat(1024))).toEqual([title]);
	expect(await list("😀")).toEqual([title]);
	const failure = await list("😀".repeat(1025)).catch((error: unknown) => error);
	expect(ConnectError.from(failure).code).toBe(Code.InvalidArgument);
});

test("a run that begins and ends within one batch of events has a start, and takes the last error away", async () => {
	const sent = record({ execution_status: "idle", updated_at: "2026-01-01T00:00:00Z" });
	expect((await postWebhook(service, KEY, JSON.stringify(sent))).status).toBe(200);
	const at = (second: number, members: JsonObject): JsonObject => ({
		...{ id: randomUUID(), timestamp: `2026-01-01T00:00:${second}`, source: "environment" },
		...members,
	});
	const state = (second: number, key: string, value: string) =>
		at(second, { kind: "ConversationStateUpdateEvent", key, value });
	const post = async (...events: readonly JsonObject[]) => {
		const { status } = await postEvents(service, KEY, String(sent.id), JSON.stringify(events));
		expect(status).toBe(200);
		const client = readClient(service, "gRPC", KEY);
		const [entry] = (await client.listConversations({ filter: { ids: [String(sent.id)] } })).conversations;
		const { lastError, runStartedAt } = entry?.summary ?? {};
		return { code: lastError?.code, started: runStartedAt && timestampDate(runStartedAt).toISOString() };
	};
	const failure = (second: number) =>
		at(second, { kind: "ConversationErrorEvent", code: `E${second}`, detail: "failed" });
	// The sender reports the failure after the status.
	expect(
		await post(state(10, "execution_status", "running"), state(11, "execution_status", "error"), failure(12)),
	).toEqual({ code: "E12", started: "2026-01-01T00:00:10.000Z" });
	expect(
		await post(
			state(20, "last_user_message_id", "message"),
			...[state(21, "execution_status", "running"), state(22, "execution_status", "finished")],
		),
	).toEqual({ code: undefined, started: "2026-01-01T00:00:21.000Z" });
	// A late report of an earlier run changes nothing.
	expect(await post(state(15, "execution_status", "running"), state(23, "last_user_message_id", "other"))).toEqual({
		code: undefined,
		started: "2026-01-01T00:00:21.000Z",
	});
});
