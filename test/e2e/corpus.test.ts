import { randomBytes, randomUUID } from "node:crypto";
import { create, type JsonObject } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { GrpcClient, getText, postWebhook } from "../support/clients.ts";
import { expectedJson } from "../support/expected-json.ts";
import { corpus } from "../support/fixtures.ts";
import { recordMessage } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const { plan } = new RecordFormat();
let service: TestService;
beforeAll(async () => {
	// With an encryption key, secrets can be read in plain text.
	service = await startTestService({ ENCRYPTION_KEY: randomBytes(32).toString("base64") });
});
afterAll(() => service[Symbol.asyncDispose]());

async function ingest(body: JsonObject) {
	using client = new GrpcClient(service, KEY);
	const request = create(IngestConversationRequestSchema, { conversation: recordMessage(body) });
	return await client.call(ConversationIngestService.method.ingestConversation, request);
}

async function read({ id }: JsonObject): Promise<unknown> {
	return JSON.parse(await getText(service, KEY, id, "secrets=plaintext"));
}

test.each(corpus())(
	"$name is read back whole after a post to the webhook or over gRPC, and a second post is a duplicate over both",
	async ({ json }) => {
		// Each has its own conversation, so that neither is older than the other.
		const [byWebhook, byGrpc] = [
			{ ...json, id: randomUUID() },
			{ ...json, id: randomUUID() },
		];
		const posted = await postWebhook(service, KEY, JSON.stringify(byWebhook));
		expect([posted.status, await posted.json()]).toEqual([200, { success: true }]);
		const first = await ingest(byGrpc);
		expect(first).toMatchObject({ success: true, repetition: false, current: true });
		expect(await read(byWebhook)).toEqual(expectedJson(plan, byWebhook));
		expect(await read(byGrpc)).toEqual(expectedJson(plan, byGrpc));
		expect((await postWebhook(service, KEY, JSON.stringify(byGrpc))).status).toBe(200);
		// If the webhook's record were a different one, it would be the current one now.
		expect(await ingest(byGrpc)).toEqual({ ...first, repetition: true });
	},
);
