import { setImmediate } from "node:timers/promises";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { ConversationUpdate } from "../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, GrpcClient, getText, postWebhook, readClient } from "../support/clients.ts";
import { filled } from "../support/filled.ts";
import { record } from "../support/fixtures.ts";
import { Random } from "../support/random.ts";
import { recordMessage } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const KILLS = 20;
const { plan } = new RecordFormat();
const method = ConversationIngestService.method.ingestConversation;

/** A record that the service has acknowledged. */
interface Acknowledged {
	readonly json: JsonObject;
	/** Undefined until an answer has told it: the webhook's does not. */
	sequence: bigint | undefined;
}

function ingest(grpc: GrpcClient, json: JsonObject) {
	return grpc.call(method, create(IngestConversationRequestSchema, { conversation: recordMessage(json) }));
}

async function byWebhook(service: Endpoints, json: JsonObject): Promise<undefined> {
	const response = await postWebhook(service, KEY, JSON.stringify(json));
	if (response.status !== 200) throw new Error(`status ${response.status}`);
	await response.json();
}

/** Posts records, each of a conversation of its own, one after the other until the service is gone. */
async function postUntilGone(send: (json: JsonObject) => Promise<bigint | undefined>, acknowledged: Acknowledged[]) {
	for (let count = 0; ; count++) {
		const size = count % 10 === 9 ? 100_000 : (count * 977) % 5000;
		const json = record({ title: `update ${count}`, agent_state: { filler: "x".repeat(size) }, unnamed: { count } });
		try {
			acknowledged.push({ json, sequence: await send(json) });
		} catch {
			return;
		}
	}
}

test("every acknowledged record is there whole after SIGKILL, however often it comes", {
	timeout: 120_000,
}, async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const random = Random.ofTest();
	const all: Acknowledged[] = [];

	for (let kill = 0; kill < KILLS; kill++) {
		await using service = await ServiceProcess.start(database);
		using grpc = new GrpcClient(service, KEY);

		// What the rounds before had acknowledged is known again: nothing was lost, nothing is counted twice.
		for (const update of all.slice(-20)) {
			const { repetition, sequence } = await ingest(grpc, update.json);
			update.sequence ??= sequence;
			expect({ repetition, sequence }).toEqual({ repetition: true, sequence: update.sequence });
		}

		const acknowledged: Acknowledged[] = [];
		const sendByGrpc = async (json: JsonObject) => (await ingest(grpc, json)).sequence;
		const clients = [
			...Array.from({ length: 4 }, () => postUntilGone((json) => byWebhook(service, json), acknowledged)),
			...Array.from({ length: 4 }, () => postUntilGone(sendByGrpc, acknowledged)),
		];
		// After a random number of acknowledgements and a random moment within the next one's work.
		const enough = random.integer(1, 61);
		while (acknowledged.length < enough) await setImmediate();
		for (let turn = random.integer(0, 50); turn > 0; turn--) await setImmediate();
		service.signal("SIGKILL");
		expect(await service.exit()).toEqual({ code: null, signal: "SIGKILL" });
		await Promise.all(clients);
		all.push(...acknowledged);
	}

	expect(all.length).toBeGreaterThanOrEqual(KILLS);
	await using service = await ServiceProcess.start(database);
	await expectStored(service, all);
});

async function expectStored(service: Endpoints, all: readonly Acknowledged[]): Promise<void> {
	const updates = await allUpdates(service);
	const sequences = updates.map(({ sequence }) => sequence);
	expect(sequences).toEqual([...new Set(sequences)].sort((a, b) => Number(a - b)));
	const byConversation = new Map(updates.map(({ conversationId, sequence }) => [conversationId, sequence]));
	// Each record was of a conversation of its own, so that none has more than one update.
	expect(byConversation.size).toBe(updates.length);
	for (const { json, sequence } of all) {
		const stored = byConversation.get(String(json.id));
		expect(stored).toBeDefined();
		expect(stored).toBe(sequence ?? stored);
		expect(JSON.parse(await getText(service, KEY, json.id))).toEqual(filled(plan, json));
	}
}

async function allUpdates(service: Endpoints): Promise<ConversationUpdate[]> {
	const client = readClient(service, "gRPC", KEY);
	const updates: ConversationUpdate[] = [];
	let pageToken = "";
	do {
		const page = await client.listConversationUpdates({ pageSize: 1000, pageToken });
		updates.push(...page.updates);
		pageToken = page.nextPageToken;
	} while (pageToken !== "");
	return updates;
}
