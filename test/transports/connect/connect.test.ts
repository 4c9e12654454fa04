import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { UpdateChange } from "../../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { badRequest, ingestClient, PROTOCOLS, readClient } from "../../support/clients.ts";
import { record } from "../../support/fixtures.ts";
import { RawHttp } from "../../support/raw-http.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const format = new RecordFormat();
const WATCH = "/conversations.v1.ConversationService/WatchConversationUpdates";

let service: TestService;

beforeAll(async () => {
	service = await startTestService();
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

function request() {
	return create(IngestConversationRequestSchema, { conversation: format.fromJson(record()) });
}

async function errorOf(answer: Promise<unknown>): Promise<ConnectError> {
	return ConnectError.from(
		await answer.then(
			() => new Error("the call was answered"),
			(error: unknown) => error,
		),
	);
}

describe.each(PROTOCOLS)("a client that uses %s", (protocol) => {
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
		const empty = await errorOf(ingestClient(service, protocol, KEY).ingestConversation({}));
		expect(badRequest(empty)?.fieldViolations).toMatchObject([{ field: "conversation", reason: "missing" }]);
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

describe("the HTTP listener", () => {
	const ingest = "/conversations.v1.ConversationIngestService/IngestConversation";
	test.each([
		[ingest, ["application/proto", "application/json", "application/grpc-web+proto"]],
		[WATCH, ["application/connect+proto", "application/connect+json", "application/grpc-web+proto"]],
	])("refuses a request of %s without a key before it reads the body", async (path, types) => {
		for (const type of types) {
			using client = await new RawHttp(service).connected();
			await client.head({ "Content-Type": type, "Content-Length": "1000" }, path);
			const { body } = await client.response();
			// Streams and gRPC-Web send their status at the end of the response body.
			expect(body).toMatch(/"code":"unauthenticated"|grpc-status: 16/);
		}
	});

	test("refuses a request of a read that is longer than 64 KiB, over every protocol", async () => {
		const list = { filter: { titleContains: "x".repeat(64 * 1024) } };
		for (const protocol of PROTOCOLS) {
			const error = await errorOf(readClient(service, protocol, KEY).listConversations(list));
			expect([protocol, error.code, error.rawMessage]).toEqual([
				protocol,
				Code.ResourceExhausted,
				"The request is larger than 65536 bytes",
			]);
		}
	});

	test("refuses gRPC, which has a listener of its own", async () => {
		const response = await fetch(`${service.http}${ingest}`, {
			method: "POST",
			headers: { "X-Access-Token": KEY, "Content-Type": "application/grpc" },
			body: Buffer.alloc(5),
		});
		expect(response.status).toBe(415);
	});
});
