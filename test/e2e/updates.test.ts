import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { postWebhook, readClient } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService } from "../support/service.ts";

test("a run that begins and ends within one batch of events has a start, and takes the last error away", async () => {
	await using service = await startTestService();
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
