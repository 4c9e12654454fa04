import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	ConversationEventService,
	WatchConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	ConversationService,
	WatchConversationUpdatesRequestSchema,
	WatchPosition,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { GrpcClient, postWebhook, WEBHOOK } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { RawHttp } from "../support/raw-http.ts";
import { RawHttp2 } from "../support/raw-http2.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

/** Starts a service, calls `use`, stops the service with SIGTERM, and expects that it stops cleanly. */
async function stopAfter(use: (service: ServiceProcess) => Promise<void>, whileStopping?: () => Promise<void>) {
	using folder = new TempFolder();
	await using service = await ServiceProcess.start(folder.file("conversations.db"), { DRAIN_SECONDS: "10" });
	await use(service);
	service.signal("SIGTERM");
	await service.logged((line) => line.event === "stopping");
	await whileStopping?.();
	// The exit code is 1 when the process is still running at the end of DRAIN_SECONDS.
	expect(await service.exit()).toEqual({ code: 0, signal: null });
	expect(service.output.stdout).toContain('"event":"stopped"');
}

test("a service with silent connections stops within the drain time", async () => {
	await stopAfter(async ({ grpc, http }) => {
		for (const address of [grpc, http.slice("http://".length)]) {
			const { hostname, port } = new URL(`http://${address}`);
			const socket = connectTcp({ host: hostname, port: Number(port), allowHalfOpen: true });
			socket.on("error", () => undefined);
			await once(socket, "connect");
		}
		// These clients have sent bytes, and never end their side of the connection.
		await RawHttp2.connect(grpc);
		await RawHttp2.connect(http.slice("http://".length));
	});
});

test("a service with an incomplete request and an unread response stops within the drain time", async () => {
	await stopAfter(async (service) => {
		const incomplete = await new RawHttp(service).connected();
		await incomplete.head({ "X-Access-Token": KEY, "Content-Length": "1000", Expect: "100-continue" }, WEBHOOK);
		expect((await incomplete.response()).status).toBe(100);
		const body = JSON.stringify({ ...record(), unnamed: "x".repeat(8_000_000) });
		expect((await postWebhook(service, KEY, body)).status).toBe(200);
		const unread = await new RawHttp(service).connected();
		unread.pause();
		const { id } = JSON.parse(body);
		await unread.write(`GET /api/v1/conversations/${id} HTTP/1.1\r\nHost: x\r\nX-Access-Token: ${KEY}\r\n\r\n`);
	});
});

test("a stopping service reports that it is not ready, in a response with `Connection: close`", async () => {
	let client: RawHttp | undefined;
	let service: ServiceProcess | undefined;
	const get = (path: string) => client?.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
	await stopAfter(
		async (started) => {
			service = started;
			client = await new RawHttp(started).connected();
			await get("/readyz");
			const ready = await client.response();
			expect([ready.status, ready.headers.get("connection")]).toEqual([200, "keep-alive"]);
		},
		async () => {
			if (client === undefined || service === undefined) throw new Error("the service has not started");
			await get("/readyz");
			const answer = await client.response();
			expect([answer.status, answer.headers.get("connection")]).toEqual([503, "close"]);
			const failing = [{ check: "accepting", since: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/) }];
			expect(JSON.parse(answer.body)).toEqual({ ready: false, failing });
		},
	);
});

test("watches of updates and of events end with UNAVAILABLE when the service stops", async () => {
	const ended: Promise<unknown>[] = [];
	await stopAfter(async (service) => {
		const client = new GrpcClient(service, KEY);
		const start = { case: "position", value: WatchPosition.BEGINNING } as const;
		const json = record();
		const events = [{ id: "1", timestamp: "2026-01-01T00:00:00", source: "user", kind: "MessageEvent" }];
		expect((await postWebhook(service, KEY, JSON.stringify(json))).status).toBe(200);
		expect((await postEvents(service, KEY, String(json.id), JSON.stringify(events))).status).toBe(200);
		for (const watch of [
			client.stream(
				ConversationService.method.watchConversationUpdates,
				create(WatchConversationUpdatesRequestSchema, { start }),
			),
			client.stream(
				ConversationEventService.method.watchConversationEvents,
				create(WatchConversationEventsRequestSchema, { start }),
			),
		]) {
			await once(watch, "data");
			ended.push(new Promise((resolve) => watch.on("error", resolve)));
			watch.resume();
		}
	});
	expect(await Promise.all(ended)).toMatchObject([{ code: 14 }, { code: 14 }]);
});

test("a stopping service answers every request on a keep-alive connection until a response with `Connection: close`", async () => {
	const body = JSON.stringify(record());
	const head = { "X-Access-Token": KEY, "Content-Length": String(Buffer.byteLength(body)) };
	let lanes: Promise<void>[] = [];
	await stopAfter(
		async (service) => {
			/** Posts a record again and again until a response closes the connection. Fails when there is no response. */
			const lane = async (): Promise<void> => {
				using client = await new RawHttp(service).connected();
				for (;;) {
					await client.head(head, WEBHOOK);
					await client.write(body);
					const { status, headers } = await client.response();
					if (status !== 200) throw new Error(`answered with ${status}`);
					if (headers.get("connection") === "close") return;
				}
			};
			lanes = Array.from({ length: 20 }, lane);
			await postWebhook(service, KEY, body);
		},
		async () => {
			await Promise.all(lanes);
		},
	);
});
