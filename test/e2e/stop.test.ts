import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTcp } from "node:net";
import { toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, readClient, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { RawHttp } from "../support/raw-http.ts";
import { RawHttp2 } from "../support/raw-http2.ts";
import { framed } from "../support/raw-rpc.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const INGEST = "/conversations.v1.ConversationIngestService/IngestConversation";

/** Starts a service on a database and returns the ids of its conversations. */
async function conversationsIn(database: string): Promise<string[]> {
	await using service = await ServiceProcess.start(database);
	const { conversations } = await readClient(service, "gRPC", KEY).listConversations({ pageSize: 1000 });
	return conversations.map(({ summary }) => summary?.id ?? "").sort();
}

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

test("a service with silent connections, an incomplete request and an unread response stops in the drain time", async () => {
	await stopAfter(async (service) => {
		const { grpc, http } = service;
		for (const address of [grpc, http.slice("http://".length)]) {
			const { hostname, port } = new URL(`http://${address}`);
			const socket = connectTcp({ host: hostname, port: Number(port), allowHalfOpen: true });
			socket.on("error", () => undefined);
			await once(socket, "connect");
		}
		// These clients have sent bytes, and never end their side of the connection.
		await RawHttp2.connect(grpc);
		await RawHttp2.connect(http.slice("http://".length));
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

test.each(["SIGTERM", "SIGINT"] as const)(
	"a stopping service answers and stores the requests under way on %s",
	async (signal) => {
		using folder = new TempFolder();
		const database = folder.file("conversations.db");
		await using service = await ServiceProcess.start(database);
		const [webhookRecord, grpcRecord] = [record(), record()];

		using client = await new RawHttp(service).connected();
		const body = JSON.stringify(webhookRecord);
		const head = { "X-Access-Token": KEY, "Content-Length": String(Buffer.byteLength(body)), Expect: "100-continue" };
		await client.head(head, WEBHOOK);
		expect((await client.response()).status).toBe(100);
		using idle = await new RawHttp(service).connected();

		const session = connectHttp2(`http://${service.grpc}`);
		await once(session, "connect");
		const headers = { "content-type": "application/grpc", te: "trailers", "x-access-token": KEY };
		const call = session.request({ ":method": "POST", ":path": INGEST, ...headers });
		const grpcStatus = new Promise<unknown>((resolve) =>
			call.on("trailers", (trailers) => resolve(trailers["grpc-status"])),
		);
		call.resume();
		// Frames are handled in order, so the response to a ping proves that the call has begun.
		await new Promise<void>((resolve, reject) => session.ping((error) => (error === null ? resolve() : reject(error))));

		service.signal(signal);
		await service.logged((line) => line.event === "stopping" && line.signal === signal);
		await idle.closed();
		await client.write(body);
		expect(await client.response()).toMatchObject({ status: 200, body: '{"success":true}' });
		call.end(framed(toBinary(IngestConversationRequestSchema, ingestRequest(grpcRecord))));
		expect(await grpcStatus).toBe("0");
		session.close();

		expect(await service.exit()).toEqual({ code: 0, signal: null });
		expect(service.output.stdout).toContain('"event":"stopped"');
		expect(await conversationsIn(database)).toEqual([String(webhookRecord.id), String(grpcRecord.id)].sort());
	},
);

test("a stopping service refuses new connections, and still answers the request that is under way", async () => {
	using folder = new TempFolder();
	await using service = await ServiceProcess.start(folder.file("conversations.db"));
	using client = await new RawHttp(service).connected();
	await client.head({ "X-Access-Token": KEY, "Content-Length": "2", Expect: "100-continue" }, WEBHOOK);
	await client.response();
	service.signal("SIGTERM");
	await service.logged((line) => line.event === "stopping");
	// It still accepts connections during the grace period.
	await expect
		.poll(() => postWebhook(service, KEY, JSON.stringify(record())).then(String, String))
		.toBe("TypeError: fetch failed");
	await client.write("{}");
	expect((await client.response()).status).toBe(422);
	expect((await service.exit()).code).toBe(0);
});
