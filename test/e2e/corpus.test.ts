import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { GrpcClient, postWebhook } from "../support/clients.ts";
import { corpus } from "../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const format = new RecordFormat();
const vault = new RecordVault(format, []);
let service: TestService;

beforeAll(async () => {
	service = await startTestService();
});
afterAll(() => service[Symbol.asyncDispose]());

test.each(corpus())("$name is the same update by gRPC and by webhook, and is read as it was sent", async ({ json }) => {
	// Each body as a conversation of its own, so that none is older than another.
	const body = { ...json, id: randomUUID() };
	const { bytes } = vault.protect(format.fromJson(body));
	const expected = format.toJson(vault.open(bytes, "redacted"));

	using client = new GrpcClient(service, KEY);
	const ingest = () =>
		client.call(
			ConversationIngestService.method.ingestConversation,
			create(IngestConversationRequestSchema, { conversation: format.fromJson(body) }),
		);
	const first = await ingest();
	expect(first).toMatchObject({ success: true, repetition: false, current: true });
	const posted = await postWebhook(service, KEY, JSON.stringify(body));
	expect([posted.status, await posted.json()]).toEqual([200, { success: true }]);
	// Had the webhook's record been another, it would now be the current one.
	expect(await ingest()).toEqual({ ...first, repetition: true });

	const headers = { "X-Access-Token": KEY };
	const read = await fetch(`${service.http}/api/v1/conversations/${body.id}`, { headers });
	expect(await read.json()).toEqual(expected);
});
