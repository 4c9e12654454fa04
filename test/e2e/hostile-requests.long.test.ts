import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { RawHttp } from "../support/raw-http.ts";
import { httpAddress, responseTo } from "../support/raw-socket.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const body = JSON.stringify(record());

let service: TestService;

beforeAll(async () => {
	service = await startTestService({ CONSOLE: "off" });
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
});

describe("a hostile client does not stop the service", () => {
	test.each([
		["a malformed Host", "POST / HTTP/1.1\r\nHost: [\r\nContent-Length: 0\r\n\r\n"],
		["no Host in HTTP/1.0", "POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n"],
		[
			"a malformed Host on an RPC",
			"POST /conversations.v1.ConversationIngestService/IngestConversation HTTP/1.1\r\nHost: [\r\nContent-Length: 0\r\n\r\n",
		],
		[
			"no Host on an RPC in HTTP/1.0",
			"POST /conversations.v1.ConversationIngestService/IngestConversation HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
		],
		["a malformed absolute URL", "GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n"],
		["an invalid percent-encoding", "GET /api/v1/conversations/%zz HTTP/1.1\r\nHost: x\r\n\r\n"],
		["bytes that are no HTTP", "\u0000\u0001\u0002\r\n\r\n"],
	])("%s gets a response", async (_, request) => {
		using client = await new RawHttp(service).connected();
		await client.write(request);
		const { status } = await client.response();
		expect([400, 401, 404]).toContain(status);
		expect((await postWebhook(service, KEY, body)).status).toBe(200);
	});

	test("a client that disconnects in the middle of its body", async () => {
		const client = await new RawHttp(service).connected();
		await client.head({ "X-Access-Token": KEY, "Content-Length": "1000", Expect: "100-continue" }, WEBHOOK);
		expect((await client.response()).status).toBe(100);
		client[Symbol.dispose]();
		expect((await postWebhook(service, KEY, body)).status).toBe(200);
	});

	// In a process of its own, which can be killed if its event loop hangs.
	test("connections that end before their first bytes show the protocol", async () => {
		using folder = new TempFolder();
		await using child = await ServiceProcess.start(folder.file("conversations.db"));
		for (const bytes of ["", "P", "PR", "PRI", "PRI * HTTP/2.0\r\n"]) {
			await responseTo(httpAddress(child), bytes, true);
			expect((await postWebhook(child, KEY, body)).status).toBe(200);
		}
	});
});
