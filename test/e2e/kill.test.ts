import { setImmediate } from "node:timers/promises";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { openSqliteStore } from "../../src/store/sqlite/sqlite.ts";
import { ServiceProcess } from "../support/child.ts";
import { type Endpoints, GrpcClient, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const KILLS = 20;
const format = new RecordFormat();
const method = ConversationIngestService.method.ingestConversation;

/** A record that the service has acknowledged; over gRPC with its sequence number. */
interface Acknowledged {
	readonly json: JsonObject;
	readonly sequence: bigint | undefined;
}

function requestFor(json: JsonObject) {
	return create(IngestConversationRequestSchema, { conversation: format.fromJson(json) });
}

/** Posts one record after the other until the service is gone. */
async function postUntilGone(send: (json: JsonObject) => Promise<bigint | undefined>, acknowledged: Acknowledged[]) {
	for (;;) {
		const json = record({
			title: `update ${acknowledged.length}`,
			agent_state: { filler: "x".repeat(acknowledged.length % 5000) },
		});
		try {
			acknowledged.push({ json, sequence: await send(json) });
		} catch {
			return;
		}
	}
}

async function byWebhook(service: Endpoints, json: JsonObject): Promise<undefined> {
	const response = await postWebhook(service, KEY, JSON.stringify(json));
	if (response.status !== 200) throw new Error(`status ${response.status}`);
	await response.json();
}

test("every acknowledged update is there after SIGKILL, however often it comes", { timeout: 120_000 }, async () => {
	using folder = new TempFolder();
	const database = folder.file("conversations.db");
	const all: Acknowledged[] = [];

	for (let kill = 0; kill < KILLS; kill++) {
		await using service = await ServiceProcess.start(database);
		using grpc = new GrpcClient(service, KEY);
		const acknowledged: Acknowledged[] = [];
		const sendByGrpc = async (json: JsonObject) => (await grpc.call(method, requestFor(json))).sequence;

		// What the rounds before had acknowledged is known again: nothing was lost, nothing is counted twice.
		for (const { json, sequence } of all.slice(-20)) {
			const again = await grpc.call(method, requestFor(json));
			expect(again.repetition).toBe(true);
			expect(again.sequence).toBe(sequence ?? again.sequence);
		}

		const clients = [
			...Array.from({ length: 4 }, () => postUntilGone((json) => byWebhook(service, json), acknowledged)),
			...Array.from({ length: 4 }, () => postUntilGone(sendByGrpc, acknowledged)),
		];
		// After a random number of acknowledgements and a random moment within the next one's work.
		const enough = 1 + Math.floor(Math.random() * 60);
		while (acknowledged.length < enough) await setImmediate();
		for (let turn = Math.floor(Math.random() * 50); turn > 0; turn--) await setImmediate();
		service.signal("SIGKILL");
		expect(await service.exit()).toEqual({ code: null, signal: "SIGKILL" });
		await Promise.all(clients);
		all.push(...acknowledged);
	}

	expect(all.length).toBeGreaterThanOrEqual(KILLS);
	await expectStored(database, all);
});

async function expectStored(database: string, all: readonly Acknowledged[]): Promise<void> {
	const ignore = (): void => undefined;
	await using store = await openSqliteStore(database, { error: ignore });
	const stored = new Map<string, bigint>();
	const sequences: bigint[] = [];
	for (let after = 0n; ; ) {
		const updates = await store.listUpdates({ after, limit: 1000, withRecords: false });
		for (const { conversationId, sequence } of updates) {
			expect(stored.has(conversationId)).toBe(false);
			stored.set(conversationId, sequence);
			sequences.push(sequence);
		}
		const last = updates.at(-1);
		if (last === undefined) break;
		after = last.sequence;
	}
	expect(sequences).toEqual([...sequences].sort((a, b) => (a < b ? -1 : 1)));
	const lost = all.filter(({ json, sequence }) => {
		const found = stored.get(String(json.id));
		return found === undefined || (sequence !== undefined && found !== sequence);
	});
	expect(lost).toEqual([]);
	for (const { json } of all.slice(0, 50)) {
		const update = await store.get(String(json.id));
		expect(update?.record).toHaveProperty("bytes");
	}
}
