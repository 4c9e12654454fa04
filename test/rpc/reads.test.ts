import type { JsonObject } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ConversationInfo } from "../../gen/conversations/v1/conversation_pb.js";
import {
	type ConversationService,
	ConversationView,
	SecretsMode,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { PROTOCOLS, postWebhook, readClient } from "../support/clients.ts";
import { object, record } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const READER = "reads-without-secrets";
const SENDER = "key-that-only-sends";
const FIRST = "0190d6a0-0000-7000-8000-00000000000a";
const SECOND = "0190d6a0-0000-7000-8000-00000000000b";
const UNKNOWN = "0190d6a0-0000-7000-8000-00000000000c";

const format = new RecordFormat();
const native = { kind: "Agent", llm: { model: "m", api_key: "sk-test-1" } };
/** Records that are ingested in this order; their updates have the sequences 1 to 3. */
const bodies: JsonObject[] = [
	record({ id: FIRST, agent: native, title: "one", tags: { team: "a" } }),
	record({ id: SECOND, title: "two", tags: { team: "b" } }),
	record({ id: FIRST, agent: native, title: "three", tags: { team: "a" }, vendor_member: { x: [1] } }),
];

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		ENCRYPTION_KEY: Buffer.alloc(32, 1).toString("base64"),
		ACCESS_KEYS: `all:${KEY}:ingest+read+secrets,reader:${READER}:read,sender:${SENDER}:ingest`,
	});
	for (const body of bodies) expect((await postWebhook(service, KEY, JSON.stringify(body))).status).toBe(200);
});

afterAll(() => service[Symbol.asyncDispose]());

/** What a read answers, whichever protocol it has: a record, a page of entries, or the reason of a refusal. */
type Answer = { readonly refused: string } | { readonly record: unknown } | Page;

interface Page {
	/** The sequence, the id and the title of each entry, its changed fields, and its record in the form of the webhook. */
	readonly entries: readonly (readonly unknown[])[];
	readonly token: string;
}

type Reads = Pick<
	Client<typeof ConversationService>,
	"getConversation" | "listConversations" | "listConversationUpdates"
>;

const recordJson = (conversation: ConversationInfo | undefined) =>
	conversation === undefined ? undefined : format.toJson(conversation);

/** Returns the read methods with what they answer in the common form. */
function answers(reads: Reads) {
	return {
		get: async (request: Parameters<Reads["getConversation"]>[0]): Promise<Answer> => ({
			record: recordJson((await reads.getConversation(request)).conversation),
		}),
		list: async (request: Parameters<Reads["listConversations"]>[0]): Promise<Answer> => {
			const { conversations, nextPageToken } = await reads.listConversations(request);
			const entries = conversations.map(({ sequence, summary, conversation }) => [
				...[Number(sequence), summary?.id, summary?.title, undefined],
				recordJson(conversation),
			]);
			return { entries, token: nextPageToken };
		},
		updates: async (request: Parameters<Reads["listConversationUpdates"]>[0]): Promise<Answer> => {
			const { updates, nextPageToken } = await reads.listConversationUpdates(request);
			const entries = updates.map(({ sequence, conversationId, summary, changedFields, conversation }) => [
				...[Number(sequence), conversationId, summary?.title, changedFields?.paths],
				recordJson(conversation),
			]);
			return { entries, token: nextPageToken };
		},
	};
}

/** Returns what the JSON route answers. */
async function overJson(path: string, key: string): Promise<Answer> {
	const headers = { "X-Access-Token": key };
	const response = await fetch(`${service.http}/api/v1/conversations${path}`, { headers });
	const json = object(JSON.parse(await response.text()));
	if (response.status !== 200) return { refused: String(json.detail) };
	const list = json.conversations ?? json.updates;
	if (!Array.isArray(list)) return { record: json };
	const entries = list.map(object).map((entry) => {
		const { id, title } = object(entry.summary ?? {});
		return [entry.sequence, id, title, entry.changed_fields, entry.conversation];
	});
	return { entries, token: String(json.next_page_token) };
}

const { PLAINTEXT, ENCRYPTED } = SecretsMode;
const { FULL } = ConversationView;
type Call = (of: ReturnType<typeof answers>) => Promise<Answer>;

/** The path of a read, the same read as an RPC, and the status with which the RPC is refused. */
const TABLE: [path: string, call: Call, code?: Code | undefined, key?: string][] = [
	[`/${FIRST.toUpperCase()}`, (of) => of.get({ id: FIRST.toUpperCase() })],
	[`/${FIRST}?sequence=2`, (of) => of.get({ id: FIRST, sequence: 2n })],
	[`/${FIRST}?secrets=plaintext`, (of) => of.get({ id: FIRST, secrets: PLAINTEXT }), undefined, KEY],
	[`/${FIRST}?secrets=encrypted`, (of) => of.get({ id: FIRST, secrets: ENCRYPTED })],
	["", (of) => of.list({})],
	["?view=full", (of) => of.list({ view: FULL })],
	["?view=full&secrets=plaintext", (of) => of.list({ view: FULL, secrets: PLAINTEXT }), undefined, KEY],
	["?page_size=1&tag_key=team", (of) => of.list({ pageSize: 1, filter: { tagKey: "team" } })],
	["?tag=team:b", (of) => of.list({ filter: { tags: { team: "b" } } })],
	[`/${FIRST}/updates?view=full`, (of) => of.updates({ conversationId: FIRST, view: FULL })],
	[`/${FIRST}/updates?page_size=1`, (of) => of.updates({ conversationId: FIRST, pageSize: 1 })],
	[`/${FIRST}/updates?after_sequence=2`, (of) => of.updates({ conversationId: FIRST, afterSequence: 2n })],
	[`/${FIRST}?secrets=plaintext`, (of) => of.get({ id: FIRST, secrets: PLAINTEXT }), Code.PermissionDenied],
	["?view=full&secrets=plaintext", (of) => of.list({ secrets: PLAINTEXT }), Code.PermissionDenied],
	[
		`/${FIRST}/updates?secrets=plaintext`,
		(of) => of.updates({ conversationId: FIRST, secrets: PLAINTEXT }),
		Code.PermissionDenied,
	],
	[`/${FIRST}`, (of) => of.get({ id: FIRST }), Code.PermissionDenied, SENDER],
	["", (of) => of.list({}), Code.PermissionDenied, SENDER],
	[`/${FIRST}/updates`, (of) => of.updates({ conversationId: FIRST }), Code.PermissionDenied, SENDER],
	["", (of) => of.list({}), Code.Unauthenticated, "a key that is not known"],
	[`/${UNKNOWN}`, (of) => of.get({ id: UNKNOWN }), Code.NotFound],
	[`/${SECOND}?sequence=1`, (of) => of.get({ id: SECOND, sequence: 1n }), Code.NotFound],
	["/x", (of) => of.get({ id: "x" }), Code.InvalidArgument],
	["?page_token=x", (of) => of.list({ pageToken: "x" }), Code.InvalidArgument],
	[
		`/${FIRST}/updates?page_token=x`,
		(of) => of.updates({ conversationId: FIRST, pageToken: "x" }),
		Code.InvalidArgument,
	],
];

describe.each(PROTOCOLS)("over %s", (protocol) => {
	test.each(TABLE)("a read answers as GET /api/v1/conversations%s does", async (path, call, code, key = READER) => {
		const given = await call(answers(readClient(service, protocol, key))).catch((reason: unknown): Answer => {
			const error = ConnectError.from(reason);
			expect(error.code).toBe(code);
			return { refused: error.rawMessage };
		});
		const expected = await overJson(path, key);
		expect("refused" in expected).toBe(code !== undefined);
		expect(given).toEqual(expected);
	});
});

test("a request with a number that its enum does not have is refused with the name of its field", async () => {
	const { getConversation, listConversations } = readClient(service, "gRPC", READER);
	for (const [refused, rawMessage] of [
		[listConversations({ view: Number("9") }), "view is not a known view"],
		[getConversation({ id: FIRST, secrets: Number("9") }), "secrets is not a known mode"],
	] as const)
		await expect(refused).rejects.toMatchObject({ code: Code.InvalidArgument, rawMessage });
});
