import { randomUUID } from "node:crypto";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { UpdateChange } from "../../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { SERVICES } from "../../../src/rpc/services.ts";
import { badRequest, ingestClient, type Protocol, readClient } from "../../support/clients.ts";
import { object, record } from "../../support/fixtures.ts";
import { RawHttp } from "../../support/raw-http.ts";
import { framed } from "../../support/raw-rpc.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const format = new RecordFormat();
const LIMIT = 100_000;
const protocols: readonly Protocol[] = ["connect", "connect over JSON", "gRPC-Web", "gRPC"];

let service: TestService;

beforeAll(async () => {
	service = await startTestService({
		MAX_BODY_BYTES: String(LIMIT),
		ACCESS_KEYS: `test:${KEY},reader:key-of-the-reader:read`,
	});
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

function request(title = "") {
	return create(IngestConversationRequestSchema, { conversation: format.fromJson(record({ title })) });
}

async function errorOf(answer: Promise<unknown>): Promise<ConnectError> {
	return ConnectError.from(
		await answer.then(
			() => new Error("the call was answered"),
			(error: unknown) => error,
		),
	);
}

describe.each(protocols)("a client that uses %s", (protocol) => {
	test("receives the result of an update and of its repetition", async () => {
		const client = ingestClient(service, protocol, KEY);
		const sent = request();
		const first = await client.ingestConversation(sent);
		expect(first).toMatchObject({ success: true, repetition: false, change: UpdateChange.STARTED, current: true });
		expect(await client.ingestConversation(sent)).toEqual({ ...first, repetition: true });
	});

	test("receives the fields that break rules, and these rules", async () => {
		const sent = request();
		delete sent.conversation?.workspace;
		if (sent.conversation !== undefined) sent.conversation.maxIterations = 0n;
		const error = await errorOf(ingestClient(service, protocol, KEY).ingestConversation(sent));
		expect(error.code).toBe(Code.InvalidArgument);
		expect(error.rawMessage).toBe("2 rules are broken (first: workspace: Field required)");
		expect(badRequest(error)?.fieldViolations).toMatchObject([
			{ field: "conversation.workspace", description: "Field required", reason: "missing" },
			{ field: "conversation.max_iterations", description: "Input should be greater than 0", reason: "greater_than" },
		]);
	});

	test("needs a known key with the scope of the method", async () => {
		for (const key of [undefined, "wrong-key"]) {
			const error = await errorOf(ingestClient(service, protocol, key).ingestConversation(request()));
			expect(error.code).toBe(Code.Unauthenticated);
		}
		const error = await errorOf(ingestClient(service, protocol, "key-of-the-reader").ingestConversation(request()));
		expect([error.code, error.rawMessage]).toEqual([
			Code.PermissionDenied,
			'The access key or client certificate lacks the scope "ingest"',
		]);
	});
});

test.each([
	["connect", "Connect-Timeout-Ms", "2147484000"],
	["gRPC-Web", "Grpc-Timeout", "2147484S"],
] as const)("a deadline over %s that no timer can hold is refused", async (protocol, name, timeout) => {
	const call = readClient(service, protocol, KEY).listConversations({}, { headers: { [name]: timeout } });
	const error = await errorOf(call);
	expect([error.code, error.rawMessage]).toEqual([Code.InvalidArgument, "timeout 2147484000ms must be <= 2147483647"]);
});

test.each(protocols.filter((protocol) => protocol !== "gRPC"))(
	"a client that uses %s may not send a message larger than the limit",
	async (protocol) => {
		const error = await errorOf(ingestClient(service, protocol, KEY).ingestConversation(request("x".repeat(LIMIT))));
		expect(error.code).toBe(Code.ResourceExhausted);
	},
);

describe("the HTTP listener", () => {
	const ingest = "/conversations.v1.ConversationIngestService/IngestConversation";
	const methods = SERVICES.flatMap((desc) => desc.methods).map((method) => ({
		path: `/${method.parent.typeName}/${method.name}`,
		types:
			method.methodKind === "unary"
				? ["application/proto", "application/json", "application/grpc-web+proto"]
				: ["application/connect+proto", "application/connect+json", "application/grpc-web+proto"],
	}));

	test.each(methods)("$path refuses a request without a key before it reads the body", async ({ path, types }) => {
		for (const type of types) {
			using client = await new RawHttp(service).connected();
			await client.head({ "Content-Type": type, "Content-Length": "1000" }, path);
			const { body } = await client.response();
			// Streams and gRPC-Web send their status at the end of the response body.
			expect(body).toMatch(/"code":"unauthenticated"|grpc-status: 16/);
		}
	});

	test("refuses bytes that are no message, and then accepts a valid message", async () => {
		const response = await fetch(`${service.http}${ingest}`, {
			method: "POST",
			headers: { "X-Access-Token": KEY, "Content-Type": "application/proto" },
			body: Buffer.from([0xff, 0xff]),
		});
		expect(response.ok).toBe(false);
		expect((await ingestClient(service, "connect", KEY).ingestConversation(request())).success).toBe(true);
	});

	test.each([
		["a status", { conversation: { executionStatus: "deleting" } }],
		["a status in a field named as in the .proto", { conversation: { execution_status: "deleting" } }],
		["an enum value in a union", { conversation: { confirmationPolicy: { confirmRisky: { threshold: "HIGH" } } } }],
	])("refuses an unknown name of %s in JSON, and does not treat it as unset", async (_, json) => {
		expect(await postJson(ingest, withRequired(json))).toEqual([400, "invalid_argument"]);
	});

	test("accepts free-form JSON that looks like another type, and refuses an unknown field", async () => {
		const agentState = { nullValue: "NO_VALUE", kind: { nullValue: "x" } };
		const json = { agentState, unnamedMembers: { "/a": { nullValue: "x" } } };
		expect(await postJson(ingest, withRequired({ conversation: json }))).toEqual([200, undefined]);
		const unknown = withRequired({ conversation: { later: "x" } });
		expect(await postJson(ingest, unknown)).toEqual([400, "invalid_argument"]);
	});

	test.each(["application/json", "application/proto", "application/grpc-web+proto", "application/grpc-web+json"])(
		"does not quote a request of type %s that it cannot read",
		async (type) => {
			const canary = "sk-canary-of-the-request";
			const text = JSON.stringify({ conversation: { title: { [canary]: canary }, [canary]: canary } });
			for (const body of [text, `{"conversation":{"title":["${canary}"]}}`, `\xff${canary}`]) {
				const prefixed = type.includes("grpc-web") ? framed(Buffer.from(body)) : Buffer.from(body);
				const headers = { "X-Access-Token": KEY, "Content-Type": type };
				const response = await fetch(`${service.http}${ingest}`, { method: "POST", headers, body: prefixed });
				const answer = JSON.stringify([...response.headers]) + (await response.text());
				expect(answer).toMatch(/invalid_argument|grpc-status: ?3|"grpc-status","3"/);
				expect(answer).not.toContain(canary);
			}
		},
	);

	test("refuses a request of a read that is longer than 64 KiB, over every protocol", async () => {
		const list = { filter: { titleContains: "x".repeat(64 * 1024) } };
		for (const protocol of protocols) {
			const error = await errorOf(readClient(service, protocol, "key-of-the-reader").listConversations(list));
			expect([protocol, error.code, error.rawMessage]).toEqual([
				protocol,
				Code.ResourceExhausted,
				"The request is larger than 65536 bytes",
			]);
		}
	});

	test.each([
		{ filter: { executionStatus: "stuck" } },
		{ filter: { executionstatus: "CONVERSATION_EXECUTION_STATUS_STUCK" } },
		{ secrets: "plaintext" },
	])("refuses the invalid list request %j, and does not list everything", async (json) => {
		const list = "/conversations.v1.ConversationService/ListConversations";
		expect(await postJson(list, json)).toEqual([400, "invalid_argument"]);
	});

	/** Calls a method over Connect with JSON. Returns the status, and the code of a refusal. */
	async function postJson(path: string, json: unknown): Promise<[status: number, code: unknown]> {
		const headers = { "X-Access-Token": KEY, "Content-Type": "application/json" };
		const response = await fetch(`${service.http}${path}`, { method: "POST", headers, body: JSON.stringify(json) });
		const { code } = object(await response.json());
		return [response.status, code];
	}

	function withRequired({ conversation }: { readonly conversation: JsonObject }): JsonObject {
		const id = randomUUID();
		const workspace = { localWorkspace: { workingDir: "/" } };
		return { conversation: { id, workspace, agent: { acpAgent: { acpCommand: ["acp"] } }, ...conversation } };
	}

	test("refuses gRPC, which has a listener of its own", async () => {
		const response = await fetch(`${service.http}${ingest}`, {
			method: "POST",
			headers: { "X-Access-Token": KEY, "Content-Type": "application/grpc" },
			body: Buffer.alloc(5),
		});
		expect(response.status).toBe(415);
	});
});
