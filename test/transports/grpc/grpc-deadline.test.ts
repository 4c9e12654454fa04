import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata, status } from "@grpc/grpc-js";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ConversationEventIngestService } from "../../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { rpcPath } from "../../support/clients.ts";
import { eventsRequest } from "../../support/event-batches.ts";
import { eventReadClient } from "../../support/event-clients.ts";
import { record } from "../../support/fixtures.ts";
import { LOCK_TIMEOUT } from "../../support/lock-timeout.ts";
import { ingestRequest } from "../../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const INGEST = rpcPath(ConversationIngestService.method.ingestConversation);
const INGEST_EVENTS = rpcPath(ConversationEventIngestService.method.ingestConversationEvents);
/** Milliseconds: enough for a call to reach the store's writer, and less than the writer waits for another process. */
const DEADLINE = 500;

let service: TestService;
let client: Client;

beforeEach(async () => {
	service = await startTestService();
	client = new Client(service.grpc, credentials.createInsecure());
});
afterEach(async () => {
	client.close();
	await service[Symbol.asyncDispose]();
});

/** Makes a call. Returns its status. */
function call(path: string, request: Uint8Array, milliseconds?: number): Promise<number> {
	const metadata = new Metadata();
	metadata.set("x-access-token", KEY);
	const identity = (bytes: Buffer) => bytes;
	const options = milliseconds === undefined ? {} : { deadline: Date.now() + milliseconds };
	return new Promise((resolve) => {
		client.makeUnaryRequest(path, identity, identity, Buffer.from(request), metadata, options, (error) =>
			resolve(error?.code ?? status.OK),
		);
	});
}

const recordOf = (id: string) => toBinary(IngestConversationRequestSchema, ingestRequest(record({ id })));

/** Returns the HTTP status of a read of a conversation. */
async function readStatus(id: string): Promise<number> {
	const headers = { "X-Access-Token": KEY };
	return (await fetch(`${service.http}/api/v1/conversations/${id}`, { headers })).status;
}

test.each(["a record", "events"])("nothing is stored of %s whose deadline ends behind another ingest", async (what) => {
	const [first, late, last] = [randomUUID(), randomUUID(), randomUUID()];
	const events = [{ id: "1", timestamp: "2026-01-01T00:00:00", source: "user", kind: "MessageEvent" }];
	const [path, request] = what === "events" ? [INGEST_EVENTS, eventsRequest(late, events)] : [INGEST, recordOf(late)];
	let stored: number;
	{
		using other = new DatabaseSync(service.database, LOCK_TIMEOUT);
		other.exec("BEGIN IMMEDIATE");
		const before = call(INGEST, recordOf(first));
		expect(await call(path, request, DEADLINE)).toBe(status.DEADLINE_EXCEEDED);
		other.exec("ROLLBACK");
		stored = await before;
	}
	// The writer keeps the order, so a late request that was written would be stored when this one is.
	expect(await call(INGEST, recordOf(last))).toBe(status.OK);
	expect(await readStatus(last)).toBe(200);
	expect(await readStatus(late)).toBe(404);
	const listed = await eventReadClient(service, KEY).listConversationEvents({ conversationId: late });
	expect(listed.events).toEqual([]);
	// On a very slow machine the writer stops waiting for the other process, which is logged as a failure of the store.
	const failures = service
		.log()
		.split("\n")
		.filter((line) => line.includes('"level":"error"'));
	expect(failures).toHaveLength(stored === status.OK ? 0 : 1);

	// The same request with a longer deadline is stored.
	expect(await call(path, request, 60_000)).toBe(status.OK);
});
