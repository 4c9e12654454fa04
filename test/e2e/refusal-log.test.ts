import { toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import { getText, postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { callRaw, RAW_FORMS } from "../support/raw-rpc.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const CANARY = "canary-of-refusals";
const { ingestConversation } = ConversationIngestService.method;
const { getConversation, listConversationUpdates } = ConversationService.method;

let service: TestService;
let before = "";

beforeAll(async () => {
	service = await startTestService();
});
afterAll(() => service[Symbol.asyncDispose]());
beforeEach(() => {
	before = service.log();
});

/** Returns the lines that were logged since `before`. */
function logged(): string[] {
	return service.log().slice(before.length).split("\n").slice(0, -1);
}

/** Expects one log line since `before`: a refusal with all of the words. Expects no canary in the whole log. */
function expectLogged(...words: readonly string[]): void {
	const lines = logged();
	expect(lines).toHaveLength(1);
	expect(JSON.parse(lines[0] ?? "")).toMatchObject({ event: "request_refused" });
	expect(words.filter((word) => lines[0]?.includes(word) !== true)).toEqual([]);
	expect(service.log()).not.toContain(CANARY);
}

const valid = Buffer.from(toBinary(IngestConversationRequestSchema, ingestRequest(record())));
const validJson = JSON.stringify({ conversation: {} });

describe("a request without a valid access key", () => {
	test.each([`${CANARY}-key`, undefined])("is refused over every protocol, with one log line: %s", async (key) => {
		for (const form of RAW_FORMS) {
			before = service.log();
			const message = form === "Connect JSON" ? validJson : valid;
			expect(await callRaw(service, form, ingestConversation, message, key)).toMatchObject({
				code: Code.Unauthenticated,
			});
			expectLogged("unauthenticated", "IngestConversation");
			before = service.log();
			await callRaw(service, form, getConversation, form === "Connect JSON" ? "{}" : "", key);
			expectLogged("unauthenticated", "GetConversation");
		}
		before = service.log();
		expect((await postWebhook(service, key ?? "", "{}")).status).toBe(401);
		expectLogged("unauthenticated", WEBHOOK);
		before = service.log();
		const headers = { "X-Access-Token": key ?? "" };
		expect((await fetch(`${service.http}/api/v1/conversations/${record().id}`, { headers })).status).toBe(401);
		expectLogged("unauthenticated", "/api/v1/conversations");
	});

	test("or with a key that lacks the scope is refused over every RPC protocol, with one log line", async () => {
		await using own = await startTestService({ ACCESS_KEYS: "reader:key-of-the-reader:read" });
		for (const form of RAW_FORMS) {
			const from = own.log().length;
			const message = form === "Connect JSON" ? validJson : valid;
			const answer = await callRaw(own, form, ingestConversation, message, "key-of-the-reader");
			expect([form, answer.code]).toEqual([form, Code.PermissionDenied]);
			const lines = own.log().slice(from).trim().split("\n");
			expect(lines).toEqual([
				expect.stringMatching(
					/IngestConversation.*"caller":"reader".*permission_denied.*"detail":"The access key or client certificate lacks the scope/,
				),
			]);
		}
	});
});

describe("a record that breaks rules", () => {
	test.each(RAW_FORMS)("is logged with its conversation, field and violation, over %s", async (form) => {
		const json = record();
		const request = ingestRequest(json);
		if (request.conversation !== undefined) request.conversation.maxIterations = -1n;
		const message =
			form === "Connect JSON"
				? JSON.stringify({
						conversation: {
							id: json.id,
							workspace: { localWorkspace: { workingDir: "/w" } },
							agent: { acpAgent: { acpCommand: ["a"] } },
							maxIterations: "-1",
						},
					})
				: toBinary(IngestConversationRequestSchema, request);
		const { code } = await callRaw(service, form, ingestConversation, message, KEY);
		expect(code).toBe(Code.InvalidArgument);
		expectLogged("invalid_record", "IngestConversation", String(json.id), "max_iterations", "greater_than");
	});

	test("is logged with its conversation and fields, on the webhook", async () => {
		const json = record({ max_iterations: -1, available_models: [{}], tags: { a: CANARY.repeat(20) } });
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(422);
		expectLogged("invalid_record", WEBHOOK, String(json.id), "max_iterations", "model_id", "tags");
	});

	test("is logged without its id when the id is not a UUID", async () => {
		const json = record({ id: `${CANARY}-id` });
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(422);
		expectLogged("invalid_record", WEBHOOK);
	});
});

test.each(RAW_FORMS)("a read of an unknown conversation is logged with its id, over %s", async (form) => {
	const { id } = record();
	const get =
		form === "Connect JSON"
			? JSON.stringify({ id })
			: Buffer.concat([Buffer.from([0x0a, 36]), Buffer.from(String(id))]);
	expect(await callRaw(service, form, getConversation, get, KEY)).toMatchObject({ code: Code.NotFound });
	expectLogged("not_found", "GetConversation", String(id));
});

describe("a request message that cannot be decoded", () => {
	const agent = (llm: string) => `{"conversation":{"agent":{"agent":{"llm":${llm}}}}}`;

	const unreadable = "The request cannot be read as a conversations.v1.IngestConversationRequest";
	const inMessage = (name: string) => `${unreadable}: message conversations.v1.${name} is not valid`;
	const inField = (name: string) => `${unreadable}: field conversations.v1.${name} is not valid`;
	const json = ["Connect JSON"] as const;
	const binary = ["Connect", "gRPC-Web", "gRPC"] as const;

	test.each([
		["a wrong type in a secret field", json, agent(`{"extraHeaders":"${CANARY}"}`), inMessage("StringMap")],
		["a wrong type in a secret string", json, agent(`{"apiKey":{"a":"${CANARY}"}}`), inField("LLM.api_key")],
		["an unknown member", json, `{"${CANARY}":1}`, inMessage("IngestConversationRequest")],
		["JSON that is not an object", json, `"${CANARY}"`, inMessage("IngestConversationRequest")],
		["broken JSON", json, `{"conversation": ${CANARY}`, unreadable],
		["a protobuf message that is cut off", binary, valid.subarray(0, valid.length - 3), unreadable],
		["bytes that are not a protobuf message", binary, Buffer.from([0x0a, 0xff, 0xff, 0xff]), unreadable],
	])("is refused with a text that quotes no value, and one log line: %s", async (_, forms, message, text) => {
		for (const form of forms) {
			before = service.log();
			const answer = await callRaw(service, form, ingestConversation, message, KEY);
			expectLogged("invalid_argument", "IngestConversation");
			expect([form, answer]).toEqual([form, { code: Code.InvalidArgument, message: text }]);
		}
	});

	test("is refused with INVALID_ARGUMENT and one log line on reads too", async () => {
		for (const form of RAW_FORMS) {
			before = service.log();
			const message = form === "Connect JSON" ? `{"afterSequence": "${CANARY}"}` : Buffer.from([0x0a, 0x7f]);
			const answer = await callRaw(service, form, listConversationUpdates, message, KEY);
			expect([form, answer.code]).toEqual([form, Code.InvalidArgument]);
			expect(answer.message).not.toContain(CANARY);
			expectLogged("invalid_argument", "ListConversationUpdates");
		}
	});
});

describe("text that is not Unicode", () => {
	const json = record({ title: "TITLE" });
	/** The request for the record in Connect's JSON form. */
	const connectJson = JSON.stringify({
		conversation: {
			id: json.id,
			title: "TITLE",
			workspace: { localWorkspace: { workingDir: "/w" } },
			agent: { acpAgent: { acpCommand: ["a"] } },
		},
	});
	const notUtf8 = Buffer.from(toBinary(IngestConversationRequestSchema, ingestRequest(json)));
	notUtf8[notUtf8.indexOf("TITLE")] = 0xff;

	test.each(["Connect", "gRPC-Web", "gRPC"] as const)("is refused over %s, and nothing is stored", async (form) => {
		const { code } = await callRaw(service, form, ingestConversation, notUtf8, KEY);
		expect(code).toBe(Code.InvalidArgument);
		expectLogged("IngestConversation");
		await expect(getText(service, KEY, json.id)).rejects.toThrow("404");
	});

	test.each([
		'"title":"\\ud800"',
		'"tags":{"a":"\\udc00x"}',
		'"agentState":{"a":["\\ud800"]}',
		'"agentState":{"\\ud800":1}',
		'"unnamedMembers":{"/news":"\\ud800"}',
		'"unnamedMembers":{"/\\ud800":1}',
	])("is refused over Connect JSON, and nothing is stored: %s", async (member) => {
		const message = connectJson.replace('"title":"TITLE"', () => member);
		const { code } = await callRaw(service, "Connect JSON", ingestConversation, message, KEY);
		expect(code).toBe(Code.InvalidArgument);
		expectLogged("IngestConversation");
		await expect(getText(service, KEY, json.id)).rejects.toThrow("404");
	});

	test.each(['"title":"\\ud800"', '"tags":{"a":"\\udc00x"}', '"news":{"\\ud800":1}', '"a\\udfff":1'])(
		"is refused on the webhook, and nothing is stored: %s",
		async (members) => {
			const { id } = json;
			const text = `${JSON.stringify(record({ id: id ?? "" })).slice(0, -1)},${members}}`;
			expect((await postWebhook(service, KEY, text)).status).toBe(422);
			expectLogged("invalid_record", WEBHOOK);
			await expect(getText(service, KEY, id)).rejects.toThrow("404");
		},
	);
});
