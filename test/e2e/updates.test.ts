import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { UpdateChange } from "../../gen/conversations/v1/update_pb.js";
import { GrpcClient, ingestClient, type Protocol, postWebhook, readClient } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest, recordJson, recordMessage } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const method = ConversationIngestService.method.ingestConversation;

let service: TestService;
let grpc: GrpcClient;

beforeAll(async () => {
	service = await startTestService();
	grpc = new GrpcClient(service, KEY);
});

afterAll(async () => {
	grpc[Symbol.dispose]();
	await service[Symbol.asyncDispose]();
});

function ingest(json: JsonObject) {
	return grpc.call(method, ingestRequest(json));
}

describe("a record that is posted again", () => {
	test("is a duplicate over every protocol, and makes no second update", async () => {
		const json = record({ title: "once", news: [1] });
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
		const again = await ingest(json);
		expect(again).toMatchObject({ repetition: true, change: UpdateChange.STARTED, current: true });
		for (const protocol of ["connect", "connect over JSON", "gRPC-Web"] satisfies Protocol[])
			expect(await ingestClient(service, protocol, KEY).ingestConversation(ingestRequest(json))).toEqual(again);
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
		const next = await ingest(record());
		expect(next.sequence).toBe(again.sequence + 1n);
	});

	test("is a duplicate with its defaults written out, another form of its id, and its members in another order", async () => {
		const json = record({ max_iterations: 7 });
		const { sequence } = await ingest(json);
		const complete = { ...recordJson(recordMessage(json)), id: `{${String(json.id).toUpperCase()}}` };
		const reversed = Object.fromEntries(Object.entries(complete).reverse());
		const text = JSON.stringify(reversed).replace('"max_iterations":7,', '"max_iterations":7.0,');
		expect(text).toContain('"max_iterations":7.0,');
		expect((await postWebhook(service, KEY, text)).status).toBe(200);
		expect(await ingest(json)).toMatchObject({ sequence, repetition: true });
		expect(await ingest(record())).toMatchObject({ sequence: sequence + 1n });
	});
});

describe("concurrent posts of one record", () => {
	test("make one update", async () => {
		const json = record();
		const answers = await Promise.all(Array.from({ length: 20 }, () => ingest(json)));
		expect(answers.filter(({ repetition }) => !repetition)).toHaveLength(1);
		expect(new Set(answers.map(({ sequence }) => sequence)).size).toBe(1);
	});
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
