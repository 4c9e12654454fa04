import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import {
	ConversationService,
	type ConversationUpdateSchema,
	ConversationView,
	GetConversationRequestSchema,
	GetConversationResponseSchema,
	ListConversationsRequestSchema,
	ListConversationsResponseSchema,
	ListConversationUpdatesRequestSchema,
	ListConversationUpdatesResponseSchema,
	SecretsMode,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange, UpdateOrigin } from "../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { summarize } from "../../src/record/summary.ts";
import { type Endpoints, GrpcClient, GrpcFailure, postWebhook } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const ENCRYPTION_KEY = Buffer.alloc(32, 1).toString("base64");
const READER = "reads-without-secrets";
const FIRST = "0190d6a0-0000-7000-8000-00000000000a";
const SECOND = "0190d6a0-0000-7000-8000-00000000000b";
const UNKNOWN = "0190d6a0-0000-7000-8000-00000000000c";
const SECRET = "sk-test-1";

const format = new RecordFormat();
const native = { kind: "Agent", llm: { model: "m", api_key: SECRET } };
/** Records that are ingested in this order; their updates have the sequences 1 to 3. */
const bodies: JsonObject[] = [
	record({ id: FIRST, agent: native, title: "one", tags: { team: "a" } }),
	record({ id: SECOND, title: "two", tags: { team: "b" } }),
	record({ id: FIRST, agent: native, title: "three", tags: { team: "a" }, vendor_member: { x: [1] } }),
];

type Reads = Pick<
	Client<typeof ConversationService>,
	"getConversation" | "listConversations" | "listConversationUpdates"
>;

/** Returns the read methods, called with a grpc-js client. */
function grpcReads(service: Endpoints, key: string | undefined): Reads {
	const client = new GrpcClient(service, key);
	const { getConversation, listConversations, listConversationUpdates } = ConversationService.method;
	return {
		getConversation: (request) => client.call(getConversation, create(GetConversationRequestSchema, request)),
		listConversations: (request) => client.call(listConversations, create(ListConversationsRequestSchema, request)),
		listConversationUpdates: (request) =>
			client.call(listConversationUpdates, create(ListConversationUpdatesRequestSchema, request)),
	};
}

/** Returns the read methods, called over the Connect protocol on HTTP/1.1. */
function connectReads(service: Endpoints, key: string | undefined, useBinaryFormat: boolean): Reads {
	const transport = createConnectTransport({
		baseUrl: service.http,
		httpVersion: "1.1",
		useBinaryFormat,
		interceptors: [
			(next) => (request) => {
				if (key !== undefined) request.header.set("X-Access-Token", key);
				return next(request);
			},
		],
	});
	return createClient(ConversationService, transport);
}

/** Returns the status code and the message with which a call fails. gRPC and Connect use the same numbers. */
async function failure(call: Promise<unknown>): Promise<[number, string]> {
	try {
		await call;
	} catch (error) {
		if (error instanceof GrpcFailure) return [error.code, error.message];
		if (error instanceof ConnectError) return [error.code, error.rawMessage];
		throw error;
	}
	throw new Error("the call did not fail");
}

/** Returns the record of the body at an index as a read returns it, with `secret` in place of its secret. */
function message(index: number, secret = "**********"): ConversationInfo {
	return format.fromJson(JSON.parse(JSON.stringify(bodies[index]).replaceAll(SECRET, secret)));
}

let service: TestService;
let receivedAt: Map<bigint, Timestamp | undefined>;

beforeAll(async () => {
	service = await startTestService({
		ENCRYPTION_KEY,
		ACCESS_KEYS: `all:${KEY}:ingest+read+secrets,reader:${READER}:read,sender:key-that-only-sends:ingest`,
	});
	for (const body of bodies) {
		const response = await postWebhook(service, KEY, JSON.stringify(body));
		expect(response.status).toBe(200);
	}
	const { updates } = await grpcReads(service, KEY).listConversationUpdates({});
	receivedAt = new Map(updates.map((update) => [update.sequence, update.receivedAt]));
	for (const { receivedAt: time } of updates)
		expect(Math.abs(Number(time?.seconds) - Date.now() / 1000)).toBeLessThan(600);
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

function time(sequence: bigint): Timestamp {
	const found = receivedAt.get(sequence);
	if (found === undefined) throw new Error(`update ${sequence} has no time of receipt`);
	return found;
}

/** Returns the summary of an update: with the sender, and with times of receipt for the times that the record lacks. */
function summaryAt(record: ConversationInfo, sequence: bigint) {
	const summary = summarize(record);
	const first = record.id === FIRST ? 1n : 2n;
	return {
		...summary,
		sender: "all",
		createdAt: summary.createdAt ?? time(first),
		updatedAt: summary.updatedAt ?? time(sequence),
	};
}

describe.each<[string, (key: string | undefined) => Reads]>([
	["gRPC", (key) => grpcReads(service, key)],
	["Connect", (key) => connectReads(service, key, true)],
	["Connect over JSON", (key) => connectReads(service, key, false)],
])("over %s", (_, reads) => {
	test("GetConversation returns the current record, or the one that was current at a sequence", async () => {
		const current = create(GetConversationResponseSchema, {
			conversation: message(2),
			sequence: 3n,
			receivedAt: time(3n),
		});
		expect(await reads(READER).getConversation({ id: FIRST.toUpperCase() })).toEqual(current);
		expect(await reads(READER).getConversation({ id: FIRST, sequence: 2n })).toEqual(
			create(GetConversationResponseSchema, { conversation: message(0), sequence: 1n, receivedAt: time(1n) }),
		);
	});

	test("ListConversations returns summaries or whole records, in pages and by a filter", async () => {
		const entries = [
			{ sequence: 3n, hasRecord: true, summary: summaryAt(message(2), 3n), conversation: message(2) },
			{ sequence: 2n, hasRecord: true, summary: summaryAt(message(1), 2n), conversation: message(1) },
		];
		const summaries = entries.map(({ sequence, hasRecord, summary }) => ({ sequence, hasRecord, summary }));
		expect(await reads(READER).listConversations({})).toEqual(
			create(ListConversationsResponseSchema, { conversations: summaries, totalSize: 2n }),
		);
		expect(await reads(READER).listConversations({ view: ConversationView.FULL })).toEqual(
			create(ListConversationsResponseSchema, { conversations: entries, totalSize: 2n }),
		);
		const filter = { tagKey: "team", titleContains: "T" };
		const first = await reads(READER).listConversations({ pageSize: 1, filter });
		expect(first.conversations).toEqual(
			create(ListConversationsResponseSchema, { conversations: summaries.slice(0, 1) }).conversations,
		);
		expect(await reads(READER).listConversations({ filter, pageToken: first.nextPageToken })).toEqual(
			create(ListConversationsResponseSchema, { conversations: summaries.slice(1) }),
		);
		expect(await reads(READER).listConversations({ filter: { tags: { team: "b" } } })).toEqual(
			create(ListConversationsResponseSchema, { conversations: summaries.slice(1), totalSize: 1n }),
		);
	});

	test("ListConversationUpdates returns updates with their changed fields, in pages", async () => {
		const [started, other, updated] = [
			{ conversationId: FIRST, sequence: 1n, change: UpdateChange.STARTED, conversation: message(0) },
			{ conversationId: SECOND, sequence: 2n, change: UpdateChange.STARTED, conversation: message(1) },
			{
				conversationId: FIRST,
				sequence: 3n,
				change: UpdateChange.UPDATED,
				changedFields: { paths: ["title", "unnamed_members"] },
				conversation: message(2),
			},
		].map((update) => ({
			...update,
			current: true,
			origin: UpdateOrigin.POSTED,
			receivedAt: time(update.sequence),
			sender: "all",
			summary: summaryAt(update.conversation, update.sequence),
		}));
		const response = (...updates: MessageInitShape<typeof ConversationUpdateSchema>[]) =>
			create(ListConversationUpdatesResponseSchema, { updates });
		if (started === undefined || other === undefined || updated === undefined) throw new Error("three were made");
		expect(await reads(READER).listConversationUpdates({ view: ConversationView.FULL })).toEqual(
			response(started, other, updated),
		);
		const { conversation: _one, ...startedSummary } = started;
		const { conversation: _three, ...updatedSummary } = updated;
		expect(await reads(READER).listConversationUpdates({ conversationId: FIRST })).toEqual(
			response(startedSummary, updatedSummary),
		);
		const first = await reads(READER).listConversationUpdates({ conversationId: FIRST, pageSize: 1 });
		const rest = { conversationId: FIRST, pageToken: first.nextPageToken, view: ConversationView.FULL };
		expect(await reads(READER).listConversationUpdates(rest)).toEqual(response(updated));
		expect(await reads(READER).listConversationUpdates({ afterSequence: 2n })).toEqual(response(updatedSummary));
	});

	test("secrets are shown in plain text only to a key with the scope secrets", async () => {
		const secrets = SecretsMode.PLAINTEXT;
		const whole = { view: ConversationView.FULL, secrets };
		const plain = message(2, SECRET);
		expect((await reads(KEY).getConversation({ id: FIRST, secrets })).conversation).toEqual(plain);
		expect((await reads(KEY).listConversations(whole)).conversations[0]?.conversation).toEqual(plain);
		expect((await reads(KEY).listConversationUpdates(whole)).updates[2]?.conversation).toEqual(plain);
		const refused = [Code.PermissionDenied, 'The access key or client certificate lacks the scope "secrets"'];
		expect(await failure(reads(READER).getConversation({ id: FIRST, secrets }))).toEqual(refused);
		expect(await failure(reads(READER).listConversations({ secrets }))).toEqual(refused);
		expect(await failure(reads(READER).listConversationUpdates({ secrets }))).toEqual(refused);
	});

	test("secrets are shown encrypted to a key that has only the scope read", async () => {
		const { conversation } = await reads(READER).getConversation({ id: FIRST, secrets: SecretsMode.ENCRYPTED });
		const agent = conversation?.agent?.kind;
		expect(agent?.case === "agent" ? agent.value.llm?.apiKey : undefined).toMatch(/^enc:v1:/);
	});

	test("a key without the scope read is refused, and so is a call without a key", async () => {
		const refused = [Code.PermissionDenied, 'The access key or client certificate lacks the scope "read"'];
		expect(await failure(reads("key-that-only-sends").getConversation({ id: FIRST }))).toEqual(refused);
		expect(await failure(reads("key-that-only-sends").listConversations({}))).toEqual(refused);
		expect(await failure(reads("key-that-only-sends").listConversationUpdates({}))).toEqual(refused);
		expect(await failure(reads(undefined).listConversations({}))).toEqual([
			Code.Unauthenticated,
			"The access key is missing",
		]);
	});

	test("an invalid request is refused as INVALID_ARGUMENT, an unknown conversation as NOT_FOUND", async () => {
		const { getConversation, listConversations, listConversationUpdates } = reads(READER);
		expect(await failure(getConversation({ id: UNKNOWN }))).toEqual([Code.NotFound, "There is no such conversation"]);
		expect(await failure(getConversation({ id: SECOND, sequence: 1n }))).toEqual([
			Code.NotFound,
			"There was no such conversation at that sequence",
		]);
		expect(await failure(getConversation({ id: "x" }))).toEqual([Code.InvalidArgument, "id is not a UUID"]);
		const foreign = "page_token is not valid for this list and filter";
		expect(await failure(listConversations({ pageToken: "x" }))).toEqual([Code.InvalidArgument, foreign]);
		const filter = { parentConversationId: "x" };
		expect(await failure(listConversations({ filter }))).toEqual([
			Code.InvalidArgument,
			"filter.parent_conversation_id is not a UUID",
		]);
		expect(await failure(listConversationUpdates({ pageSize: -1 }))).toEqual([
			Code.InvalidArgument,
			"page_size must not be negative",
		]);
		expect(await failure(listConversations({ view: Number("9") }))).toEqual([
			Code.InvalidArgument,
			"view is not a known view",
		]);
		expect(await failure(getConversation({ id: FIRST, secrets: Number("9") }))).toEqual([
			Code.InvalidArgument,
			"secrets is not a known mode",
		]);
	});
});
