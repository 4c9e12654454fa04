import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import type { JsonObject } from "@bufbuild/protobuf";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { SECRET_MEMBERS } from "../support/canaries.ts";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, rpcPath } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { record } from "../support/fixtures.ts";
import { callRaw, RAW_FORMS } from "../support/raw-rpc.ts";
import { TempFolder } from "../support/temp.ts";

const KEY = "canary-as-the-access-key";
const SECRET = "canary-as-a-value";
const ENCRYPTION_KEY = Buffer.from("canary-as-the-encryption-key-32b").toString("base64");
const { ingestConversation } = ConversationIngestService.method;

/** Sends bytes to `host:port` until the service closes the connection. */
function sendRaw(address: string, bytes: string): Promise<void> {
	const { hostname, port } = new URL(`http://${address}`);
	return new Promise((resolve) => {
		const socket = connect(Number(port), hostname, () => socket.write(bytes));
		socket.on("error", () => undefined).on("close", () => resolve());
		socket.resume();
	});
}

/** A call over gRPC with secrets in its metadata. */
async function callWithMetadata(address: string, key: string): Promise<number | undefined> {
	const client = new Client(address, credentials.createInsecure());
	const metadata = new Metadata();
	metadata.set("x-access-token", key);
	metadata.set("authorization", SECRET);
	metadata.set("canary-in-a-name-bin", Buffer.from(SECRET));
	const identity = (bytes: Buffer) => bytes;
	try {
		return await new Promise((resolve) =>
			client.makeUnaryRequest(rpcPath(ingestConversation), identity, identity, Buffer.from(SECRET), metadata, (error) =>
				resolve(error?.code),
			),
		);
	} finally {
		client.close();
	}
}

/** Sends a secret in every place where a request can have one, with right and wrong keys, well-formed and not. */
async function sendEverywhere(service: ServiceProcess): Promise<void> {
	const address = service.http.slice("http://".length);
	for (const members of Object.values(SECRET_MEMBERS)) {
		const valid = record({ id: randomUUID(), ...members(SECRET) });
		expect((await postWebhook(service, KEY, JSON.stringify(valid))).status).toBe(200);
		const broken: JsonObject = { ...valid, max_iterations: SECRET, tags: { [SECRET]: SECRET }, title: [SECRET] };
		expect((await postWebhook(service, KEY, JSON.stringify(broken))).status).toBe(422);
	}
	const json = JSON.stringify(record());
	for (const key of [KEY, `${KEY}-that-is-wrong`]) {
		for (const body of [`{"title":"${SECRET}`, SECRET, `["${SECRET}"]`, `{"id":"${SECRET}"}`])
			expect((await postWebhook(service, key, body)).status).toBeGreaterThanOrEqual(400);
		for (const [name, value] of [
			["Content-Type", `text/${SECRET}`],
			["Content-Encoding", SECRET],
			["Cookie", SECRET],
			["X-Session-API-Key", SECRET],
			["Authorization", `Bearer ${SECRET}`],
			["User-Agent", SECRET],
		] as const)
			expect([200, 401, 415]).toContain((await postWebhook(service, key, json, { [name]: value })).status);
		const events = [{ id: SECRET, timestamp: SECRET, source: SECRET, kind: SECRET, [SECRET]: SECRET }];
		expect((await postEvents(service, key, randomUUID(), JSON.stringify(events))).status).toBeGreaterThanOrEqual(400);
		expect((await postEvents(service, key, SECRET, "[]")).status).toBeGreaterThanOrEqual(400);
		const headers = { "X-Access-Token": key };
		for (const path of [`/api/v1/conversations?page_token=${SECRET}`, `/api/v1/conversations/${SECRET}`])
			expect((await fetch(`${service.http}${path}`, { headers })).status).toBeGreaterThanOrEqual(400);
		for (const form of RAW_FORMS)
			for (const message of [SECRET, `{"conversation":{"title":"${SECRET}"}}`, `{"${SECRET}":1}`])
				expect((await callRaw(service, form, ingestConversation, message, key)).code).toBeGreaterThan(0);
		expect(await callWithMetadata(service.grpc, key)).toBeGreaterThan(0);
	}
	for (const bytes of [
		`${SECRET} / HTTP/1.1\r\nHost: x\r\n\r\n`,
		`GET / HTTP/1.1\r\nHost: x\r\n${SECRET} : ${SECRET}\r\n\r\n`,
		`GET / HTTP/1.1\r\nHost: x\r\nExpect: ${SECRET}\r\n\r\n`,
		`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${SECRET}\r\n\r\n`,
		`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u0000\u0000\u0000${SECRET}`,
	])
		for (const to of [address, service.grpc]) await sendRaw(to, bytes);
}

test("at the log level trace, the log has nothing of what clients sent, and no key", async () => {
	using folder = new TempFolder();
	const env = { LOG_LEVEL: "trace", ACCESS_KEYS: `test:${KEY}:ingest+read+secrets`, ENCRYPTION_KEY };
	await using service = await ServiceProcess.start(folder.file("conversations.db"), env);
	await sendEverywhere(service);
	service.signal("SIGTERM");
	expect((await service.exit()).code).toBe(0);
	const { stdout, stderr } = service.output;
	for (const event of ["request_ended", "request_refused", "connection_failed", "stopped"])
		expect(stdout).toContain(`"event":"${event}"`);
	const written = `${stdout}${stderr}`;
	expect(written.split("\n").filter((line) => /canary/i.test(line))).toEqual([]);
	expect(written).not.toContain(ENCRYPTION_KEY);
	expect(written).not.toContain(Buffer.from(SECRET).toString("base64"));
});
