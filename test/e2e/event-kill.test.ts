import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, getText, postWebhook } from "../support/clients.ts";
import { allEvents, eventIngestClient, eventJson, ingestEventsRequest, postEvents } from "../support/event-clients.ts";
import { object, record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const KILLS = 12;
const CONVERSATIONS = 8;
const POSTED_AT = "2026-11-22T08:00:00.000000Z";
const START = Date.parse(POSTED_AT);

/** A batch of a conversation: what an agent did, and what it has cost so far. */
function batchOf(number: number): JsonObject[] {
	const timestamp = (part: number) => new Date(START + number * 1000 + part).toISOString().slice(0, -1);
	const filler = "x".repeat(number % 10 === 9 ? 100_000 : (number * 977) % 5000);
	return [
		{ id: randomUUID(), timestamp: timestamp(1), source: "agent", kind: "ActionEvent", number, filler },
		{
			id: randomUUID(),
			timestamp: timestamp(2),
			source: "environment",
			kind: "ConversationStateUpdateEvent",
			key: "max_iterations",
			value: number + 1,
		},
	];
}

type Send = (service: Endpoints, id: string, batch: readonly JsonObject[]) => Promise<void>;

const byWebhook: Send = async (service, id, batch) => {
	const response = await postEvents(service, KEY, id, JSON.stringify(batch));
	if (response.status !== 200) throw new Error(`status ${response.status}`);
	await response.json();
};

const byGrpc: Send = async (service, id, batch) => {
	await eventIngestClient(service, KEY).ingestConversationEvents(ingestEventsRequest(id, batch));
};

test("every acknowledged event is there once after SIGKILL, and the record tells what the kept events tell", {
	timeout: 120_000,
}, async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const random = Random.ofTest();
	const conversations = Array.from({ length: CONVERSATIONS }, (_, index) => ({
		id: randomUUID(),
		send: index % 2 === 0 ? byWebhook : byGrpc,
		sent: 0,
		acknowledged: [] as JsonObject[],
		/** Not answered yet, so sent again. */
		open: undefined as JsonObject[] | undefined,
	}));

	for (let kill = 0; kill <= KILLS; kill++) {
		await using service = await ServiceProcess.start(database);
		if (kill === 0)
			for (const { id } of conversations) {
				const body = JSON.stringify(record({ id, updated_at: POSTED_AT }));
				expect((await postWebhook(service, KEY, body)).status).toBe(200);
			}
		if (kill === KILLS) {
			for (const { id, acknowledged } of conversations) await expectKept(service, id, acknowledged);
			break;
		}
		let answered = 0;
		const clients = conversations.map(async (conversation) => {
			for (;;) {
				conversation.open ??= batchOf(conversation.sent++);
				try {
					await conversation.send(service, conversation.id, conversation.open);
				} catch {
					return;
				}
				conversation.acknowledged.push(...conversation.open);
				conversation.open = undefined;
				answered += 1;
			}
		});
		const enough = random.integer(1, 61);
		while (answered < enough) await setImmediate();
		for (let turn = random.integer(0, 50); turn > 0; turn--) await setImmediate();
		service.signal("SIGKILL");
		expect(await service.exit()).toEqual({ code: null, signal: "SIGKILL" });
		await Promise.all(clients);
	}
});

async function expectKept(service: Endpoints, id: string, acknowledged: readonly JsonObject[]): Promise<void> {
	const entries = await allEvents(service, KEY, { conversationId: id, secrets: SecretsMode.PLAINTEXT });
	const kept = entries.map(({ event }) => eventJson(event));
	// The last batch may have been kept without an answer.
	expect(kept.slice(0, acknowledged.length)).toEqual(acknowledged);
	expect([0, 2]).toContain(kept.length - acknowledged.length);
	const { max_iterations, leaf_event_id } = object(JSON.parse(await getText(service, KEY, id)));
	expect({ max_iterations, leaf_event_id }).toEqual({
		max_iterations: kept.length / 2,
		leaf_event_id: kept.at(-2)?.id,
	});
}
