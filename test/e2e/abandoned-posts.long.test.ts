import { randomUUID } from "node:crypto";
import type { JsonObject } from "@bufbuild/protobuf";
import pg from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { STATE_UPDATE } from "../../src/events/state-update.ts";
import { lockConversations } from "../../src/store/postgres/transaction.ts";
import { Databases } from "../store/postgres/databases.ts";
import { type Endpoints, ingestClient, postWebhook } from "../support/clients.ts";
import { eventIngestClient, ingestEventsRequest, postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";

let databases: Databases;
let url: string;
let service: TestService;
let session: pg.Client;
beforeAll(async () => {
	databases = await Databases.start();
	url = await databases.create();
	service = await startTestService({ DATABASE_URL: url });
	session = new pg.Client({ connectionString: url, ssl: false });
	await session.connect();
});
afterAll(async () => {
	await session.end();
	await service[Symbol.asyncDispose]();
	await databases[Symbol.asyncDispose]();
});

/** What a client posts for a conversation. */
interface Posted {
	readonly conversationId: string;
	readonly json: JsonObject;
	/** A batch of one event. */
	readonly events: readonly JsonObject[];
}

/** Posts over a connection of its own, and fails when that breaks. */
type Send = (to: Endpoints, posted: Posted) => Promise<unknown>;

const overWebhook: Send = (to, { conversationId, events }) =>
	postEvents(to, KEY, conversationId, JSON.stringify(events));
const overGrpc: Send = (to, { conversationId, events }) =>
	eventIngestClient(to, KEY).ingestConversationEvents(ingestEventsRequest(conversationId, events));

const SENDERS: readonly { of: string; over: string; kind?: string; send: Send }[] = [
	{ of: "a record", over: "the webhook, HTTP/1.1", send: (to, { json }) => postWebhook(to, KEY, JSON.stringify(json)) },
	{
		...{ of: "a record", over: "gRPC" },
		send: (to, { json }) => ingestClient(to, "gRPC", KEY).ingestConversation(ingestRequest(json)),
	},
	{ of: "an event", over: "the webhook", kind: "PauseEvent", send: overWebhook },
	{ of: "a state update", over: "gRPC", kind: STATE_UPDATE, send: overGrpc },
];

test.each(SENDERS)(
	"$of whose connection breaks before the store writes it is not stored: $over",
	async ({ of, kind = "PauseEvent", send }) => {
		await using toHttp = await TcpProxy.start(() => portOf(service.http));
		await using toGrpc = await TcpProxy.start(() => portOf(`http://${service.grpc}`));
		const conversationId = randomUUID();
		const event = { id: randomUUID(), timestamp: "2026-11-22T00:00:00.000000", source: "environment", kind };
		const posted: Posted = {
			conversationId,
			json: record({ id: conversationId }),
			events: [kind === STATE_UPDATE ? { ...event, key: "execution_status", value: "running" } : event],
		};
		const waiting = await lock(conversationId);
		const endpoints = { http: `http://127.0.0.1:${toHttp.port}`, grpc: `127.0.0.1:${toGrpc.port}` };
		const failed = expect(send(endpoints, posted)).rejects.toThrow();
		await expect.poll(waiting, { timeout: 30_000 }).toBe(1);
		toHttp.cut(false);
		toGrpc.cut(false);
		await failed;
		// The service learns of the broken connection before it takes this request.
		expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
		await session.query("COMMIT");
		// The same again waits for what was sent first, and would be a duplicate if that was stored.
		if (of === "a record") {
			const again = ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(posted.json));
			expect(await again).toMatchObject({ success: true, repetition: false });
		} else {
			const again = eventIngestClient(service, KEY).ingestConversationEvents(
				ingestEventsRequest(conversationId, posted.events),
			);
			expect(await again).toMatchObject({ stored: 1 });
		}
	},
);

test("a record whose connection a stopping service closes is not stored afterwards", async () => {
	await using replica = await startTestService({ DATABASE_URL: url, DRAIN_SECONDS: "1" });
	const json = record({ id: randomUUID() });
	const waiting = await lock(String(json.id));
	const failed = expect(postWebhook(replica, KEY, JSON.stringify(json))).rejects.toThrow();
	await expect.poll(waiting, { timeout: 30_000 }).toBe(1);
	const stopped = replica.stop();
	await failed;
	await session.query("COMMIT");
	await stopped;
	const again = ingestClient(service, "gRPC", KEY).ingestConversation(ingestRequest(json));
	expect(await again).toMatchObject({ success: true, repetition: false });
});

/** Locks a conversation until the end of the session's transaction. Returns a function that counts who waits for it. */
async function lock(conversationId: string): Promise<() => Promise<number>> {
	const { text, values = [] } = lockConversations([conversationId]);
	await session.query("BEGIN");
	onTestFinished(async () => void (await session.query("ROLLBACK")));
	await session.query(text, [...values]);
	return async () => {
		const { rows } = await session.query("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
		return rows.length;
	};
}

function portOf(url: string): number {
	return Number(new URL(url).port);
}
