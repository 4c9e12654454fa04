import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationView } from "../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { getText, ingestClient, postWebhook, readClient } from "../support/clients.ts";
import { damageStoredRecord, rewriteStoredRecord } from "../support/database.ts";
import { expectedJson } from "../support/expected-json.ts";
import { object, record } from "../support/fixtures.ts";
import { ingestRequest, recordJson } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { BEGINNING, updatesUntilCaughtUp } from "../support/watching.ts";

const { plan } = new RecordFormat();
const FULL = { view: ConversationView.FULL } as const;

async function ingest(service: TestService, json: JsonObject): Promise<bigint> {
	return (await ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(json))).sequence;
}

async function refusal(action: Promise<unknown>): Promise<Code> {
	const failure = await action.then(
		() => undefined,
		(error: unknown) => error,
	);
	if (failure === undefined) throw new Error("nothing was refused");
	return ConnectError.from(failure).code;
}

describe.each([
	["overwritten", (bytes: Buffer) => bytes.fill(0xff)],
	["cut off", (bytes: Buffer) => bytes.subarray(0, bytes.length - 3)],
	["changed in one letter", (bytes: Buffer) => bytes.fill("D", bytes.indexOf("damaged"), bytes.indexOf("damaged") + 1)],
])("a stored record that was %s", (_, damage) => {
	const [before, damaged, after] = ["before", "damaged", "after"].map((title) => record({ title }));
	if (before === undefined || damaged === undefined || after === undefined) throw new Error("unreachable");
	const healthy = [before, after].map((json) => expectedJson(plan, json));
	let service: TestService;
	let sequence: bigint;

	beforeAll(async () => {
		const writer = await startTestService();
		await ingest(writer, before);
		sequence = await ingest(writer, damaged);
		await ingest(writer, after);
		await writer.stop();
		damageStoredRecord(writer.database, sequence, damage);
		service = await writer.restart();
	});
	afterAll(() => service[Symbol.asyncDispose]());

	test("is marked as unreadable in a list over gRPC, beside the other records", async () => {
		const { conversations } = await readClient(service, "gRPC", KEY).listConversations(FULL);
		const entries = conversations.map(({ conversation, unreadable, sequence: at, summary }) =>
			conversation === undefined ? { unreadable, at, id: summary?.id } : recordJson(conversation),
		);
		expect(entries).toEqual([healthy[1], { unreadable: true, at: sequence, id: damaged.id }, healthy[0]]);
	});

	test("is marked as unreadable in a list in JSON, beside the other records", async () => {
		const headers = { "X-Access-Token": KEY };
		const response = await fetch(`${service.http}/api/v1/conversations?view=full`, { headers });
		expect(response.status).toBe(200);
		expect(await response.json()).toMatchObject({
			conversations: [
				{ conversation: healthy[1] },
				{ unreadable: true, summary: { id: damaged.id } },
				{ conversation: healthy[0] },
			],
		});
	});

	test.each([
		["a list of updates", async () => (await readClient(service, "gRPC", KEY).listConversationUpdates(FULL)).updates],
		["a watch", () => updatesUntilCaughtUp(service, KEY, { start: BEGINNING, ...FULL })],
		[
			"a watch of its conversation",
			() => updatesUntilCaughtUp(service, KEY, { start: BEGINNING, conversationId: String(damaged.id), ...FULL }),
		],
	])("is marked as unreadable in %s, beside the other records", async (what, updates) => {
		const delivered = (await updates()).map(({ conversation, unreadable, sequence: at, conversationId }) =>
			conversation === undefined ? { unreadable, at, conversationId } : recordJson(conversation),
		);
		const entry = { unreadable: true, at: sequence, conversationId: damaged.id };
		expect(delivered).toEqual(what.endsWith("conversation") ? [entry] : [healthy[0], entry, healthy[1]]);
	});

	test("makes a get fail with DATA_LOSS or status 500, and is logged with its conversation and sequence", async () => {
		const client = readClient(service, "gRPC", KEY);
		expect(await refusal(client.getConversation({ id: String(damaged.id) }))).toBe(Code.DataLoss);
		const headers = { "X-Access-Token": KEY };
		const response = await fetch(`${service.http}/api/v1/conversations/${damaged.id}`, { headers });
		expect(response.status).toBe(500);
		const lines = service
			.log()
			.split("\n")
			.filter((line) => line.includes('"record_unreadable"'));
		expect(lines.map((line) => JSON.parse(line))).toContainEqual(
			expect.objectContaining({ level: "error", conversationId: damaged.id, sequence: String(sequence) }),
		);
	});

	test("does not prevent later posts to its conversation", async () => {
		const again = await postWebhook(service, KEY, JSON.stringify(damaged));
		expect(again.status).toBe(200);
		const newer: JsonObject = { ...damaged, title: "newer" };
		expect((await postWebhook(service, KEY, JSON.stringify(newer))).status).toBe(200);
		expect(JSON.parse(await getText(service, KEY, newer.id))).toEqual(expectedJson(plan, newer));
	});
});

describe("members that an older schema did not name", () => {
	/** Stores a record with the unnamed member `sead`, and renames it in the database to `seed`, which a field names. */
	async function storedByOlderSchema(value: unknown): Promise<{ service: TestService; id: string; json: JsonObject }> {
		const agent = { kind: "Agent", llm: { model: "m", sead: "VALUE" } };
		const json = record({ agent });
		const text = JSON.stringify(json).replace('"VALUE"', JSON.stringify(value));
		const writer = await startTestService();
		expect((await postWebhook(writer, KEY, text)).status).toBe(200);
		await writer.stop();
		rewriteStoredRecord(writer.database, 1n, (bytes) => {
			const at = bytes.indexOf("/agent/llm/sead");
			if (at < 0) throw new Error("the stored record does not show the member");
			bytes.write("/agent/llm/seed", at);
			return bytes;
		});
		return { service: await writer.restart(), id: String(json.id), json };
	}

	test("are read in the field that names them now", async () => {
		const { service, id, json } = await storedByOlderSchema(7);
		await using _ = service;
		const expected = expectedJson(plan, { ...json, agent: { kind: "Agent", llm: { model: "m", seed: 7 } } });
		expect(JSON.parse(await getText(service, KEY, id))).toEqual(expected);
		const client = readClient(service, "gRPC", KEY);
		const { conversation } = await client.getConversation({ id });
		expect(conversation?.agent?.kind).toMatchObject({ case: "agent", value: { llm: { seed: 7n } } });
		expect(conversation?.unnamedMembers).toEqual({});
		const { conversations } = await client.listConversations(FULL);
		expect(conversations.map((entry) => entry.conversation)).toEqual([conversation]);
		const { updates } = await client.listConversationUpdates(FULL);
		expect(updates.map((update) => update.conversation)).toEqual([conversation]);
		const watched = await updatesUntilCaughtUp(service, KEY, { start: BEGINNING, ...FULL });
		expect(watched.map((update) => update.conversation)).toEqual([conversation]);
	});

	test("are a duplicate when they are posted as they were read", async () => {
		const { service, id } = await storedByOlderSchema(7);
		await using _ = service;
		const { conversation, sequence } = await readClient(service, "gRPC", KEY).getConversation({ id });
		if (conversation === undefined) throw new Error("unreachable");
		const again = await ingestClient(service, "gRPC", KEY).ingestConversation({ conversation });
		expect(again).toMatchObject({ sequence, repetition: true });
	});

	test("remain readable as unnamed members when they are invalid in that field", async () => {
		const { service, id, json } = await storedByOlderSchema("seven");
		await using _ = service;
		const expected = object(expectedJson(plan, { ...json, agent: { kind: "Agent", llm: { model: "m" } } }));
		const read = JSON.parse(await getText(service, KEY, id));
		expect(read).toMatchObject({ id: expected.id, workspace: expected.workspace });
		const { conversation } = await readClient(service, "gRPC", KEY).getConversation({ id });
		expect(conversation?.unnamedMembers["/agent/llm/seed"]?.kind).toEqual({ case: "stringValue", value: "seven" });
		expect(read.agent.llm.seed).toBe("seven");
	});
});
