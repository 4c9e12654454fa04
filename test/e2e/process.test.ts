import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { type JsonObject, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, readClient, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { RawHttp } from "../support/raw-http.ts";
import { ingestRequest } from "../support/record-message.ts";
import { KEY, testEnvironment } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const INGEST = "/conversations.v1.ConversationIngestService/IngestConversation";

/** Starts a service on a database and returns the ids of its conversations. */
async function conversationsIn(database: string): Promise<string[]> {
	await using service = await ServiceProcess.start(database);
	const { conversations } = await readClient(service, "gRPC", KEY).listConversations({ pageSize: 1000 });
	return conversations.map(({ summary }) => summary?.id ?? "").sort();
}

describe("a stopping service", () => {
	test.each(["SIGTERM", "SIGINT"] as const)("answers and stores the requests under way on %s", async (signal) => {
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
		call.end(framed(grpcRecord));
		expect(await grpcStatus).toBe("0");
		session.close();

		expect(await service.exit()).toEqual({ code: 0, signal: null });
		expect(service.output.stdout).toContain('"event":"stopped"');
		expect(await conversationsIn(database)).toEqual([String(webhookRecord.id), String(grpcRecord.id)].sort());
	});

	test("refuses new connections, and still answers the request that is under way", async () => {
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
});

/** Returns the message of a gRPC request with gRPC's prefix: the compressed flag 0 and the length. */
function framed(json: JsonObject): Buffer {
	const message = toBinary(IngestConversationRequestSchema, ingestRequest(json));
	const prefix = Buffer.alloc(5);
	prefix.writeUInt32BE(message.length, 1);
	return Buffer.concat([prefix, message]);
}

describe("a service that is started", () => {
	test("without access keys creates one, shows it at the first start only and stores only its hash", async () => {
		using folder = new TempFolder();
		const database = folder.file("conversations.db");
		let key: string;
		{
			await using service = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
			// Standard error may arrive after the lines of the log.
			await expect.poll(() => service.output.stderr).toContain("curl -sS ");
			const { stdout, stderr } = service.output;
			key = /^ {2}([\w-]{43})$/m.exec(stderr)?.[1] ?? "";
			expect(key).not.toBe("");
			expect(stderr).toContain(`curl -sS `);
			expect(stderr).toContain(`-H 'X-Access-Token: ${key}'`);
			expect(stdout).not.toContain(key);
			expect((await postWebhook(service, key, JSON.stringify(record()))).status).toBe(200);
			expect((await postWebhook(service, `${key}x`, JSON.stringify(record()))).status).toBe(401);
			for (const contents of folder.contents().values()) expect(contents.includes(key)).toBe(false);
			service.signal("SIGTERM");
			await service.exit();
		}
		await using again = await ServiceProcess.start(database, { ACCESS_KEYS: "" });
		expect(again.output.stderr).toBe("");
		expect((await postWebhook(again, key, JSON.stringify(record()))).status).toBe(200);
	});

	test("with errors in the configuration lists all of them, without the values of keys, and exits with code 1", async () => {
		using folder = new TempFolder();
		const env = {
			...testEnvironment(folder.file("c.db")),
			HTTP_ADDRESS: "x",
			LOG_LEVEL: "loud",
			ACCESS_KEYS: "a:canary-of-16-chars:b",
		};
		const { code, stderr } = await ServiceProcess.run(env);
		expect(code).toBe(1);
		expect(stderr.split("\n").filter((line) => /^ {2}[A-Z_]+:/.test(line))).toHaveLength(3);
		expect(stderr).not.toContain("canary");
	});
});
