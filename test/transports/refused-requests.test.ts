import { create, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { GetConversationRequestSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import { postWebhook } from "../support/clients.ts";
import { postEvents } from "../support/event-clients.ts";
import { RawHttp } from "../support/raw-http.ts";
import { framed } from "../support/raw-rpc.ts";
import { KEY, startTestService, type TestService } from "../support/service.ts";

const INGEST = "/conversations.v1.ConversationIngestService/IngestConversation";
const GET = "/conversations.v1.ConversationService/GetConversation";
const WATCH = "/conversations.v1.ConversationService/WatchConversationUpdates";
const ID = "0190d6a0-0000-7000-8000-00000000000a";
const CANARY = "canary-5c89c64";
const LIMIT = 100_000;

let service: TestService;
let client: Client;
let logged = 0;

beforeAll(async () => {
	const keys = `test:${KEY}:ingest+read,reader:key-of-the-reader:read`;
	service = await startTestService({ MAX_BODY_BYTES: String(LIMIT), ACCESS_KEYS: keys });
	client = new Client(service.grpc, credentials.createInsecure());
});

afterAll(async () => {
	client.close();
	await service[Symbol.asyncDispose]();
});

beforeEach(() => {
	logged = service.log().length;
});

/** Returns the lines logged since the test began, without the fields and the ports that differ from run to run. */
function lines(): unknown[] {
	const parsed = service.log().slice(logged).split("\n").filter(Boolean);
	return parsed.map((line) => {
		const { time: _, pid: __, hostname: ___, msg: ____, requestId, peer, ...rest } = JSON.parse(line);
		expect(requestId).toMatch(/^[0-9a-f-]{36}$/);
		return peer === undefined ? rest : { ...rest, peer: String(peer).replace(/:\d+$/, "") };
	});
}

/** An error response: its code, its message and its whole text. */
interface Failure {
	readonly code: string;
	readonly message: string;
	readonly text: string;
}

const GRPC_CODES: Readonly<Record<string, string>> = {
	"3": "invalid_argument",
	"5": "not_found",
	"7": "permission_denied",
	"8": "resource_exhausted",
	"12": "unimplemented",
	"13": "internal",
	"16": "unauthenticated",
};

interface Sending {
	readonly path: string;
	readonly body: Uint8Array;
	readonly key?: string;
	readonly header?: Readonly<Record<string, string>>;
}

async function fetchText({ path, body, key = KEY, header }: Sending, type: string): Promise<string> {
	const headers = { "Content-Type": type, "X-Access-Token": key, ...header };
	const response = await fetch(`${service.http}${path}`, { method: "POST", headers, body: Buffer.from(body) });
	return await response.text();
}

const connect = (type: string) => async (sending: Sending) => {
	const text = await fetchText(sending, type);
	const { code, message } = JSON.parse(text);
	return { code, message, text };
};

const grpcWeb = (type: string) => async (sending: Sending) => {
	const text = await fetchText({ ...sending, body: framed(sending.body) }, type);
	const code = GRPC_CODES[/grpc-status: (\d+)/.exec(text)?.[1] ?? ""] ?? text;
	return { code, message: decodeURIComponent(/grpc-message: (.*)\r\n/.exec(text)?.[1] ?? ""), text };
};

function grpc({ path, body, key = KEY }: Sending): Promise<Failure> {
	const metadata = new Metadata();
	metadata.set("x-access-token", key);
	const identity = (bytes: Buffer) => bytes;
	return new Promise((resolve, reject) => {
		client.makeUnaryRequest(path, identity, identity, Buffer.from(body), metadata, (error) => {
			if (error === null) reject(new Error("the call was answered"));
			else resolve({ code: GRPC_CODES[error.code] ?? "", message: error.details, text: JSON.stringify(error) });
		});
	});
}

const binary: readonly [string, (sending: Sending) => Promise<Failure>][] = [
	["grpc", grpc],
	["connect", connect("application/proto")],
	["grpc-web", grpcWeb("application/grpc-web+proto")],
];
const overJson: readonly [string, (sending: Sending) => Promise<Failure>][] = [
	["connect", connect("application/json")],
	["grpc-web", grpcWeb("application/grpc-web+json")],
];

const UNREADABLE = "The request cannot be read as a conversations.v1.IngestConversationRequest";

describe.each(binary)("over %s", (transport, send) => {
	test("a wrong key is refused and logged", async () => {
		const failure = await send({ path: INGEST, body: new Uint8Array(), key: `wrong-${CANARY}` });
		expect(failure).toMatchObject({ code: "unauthenticated", message: "The access key is not known" });
		expect(lines()).toEqual([
			{
				level: "warn",
				event: "request_refused",
				transport,
				operation: INGEST,
				peer: "127.0.0.1",
				kind: "unauthenticated",
				detail: "The access key is not known",
			},
		]);
	});

	test("a key without the scope is refused and logged", async () => {
		const failure = await send({ path: INGEST, body: new Uint8Array(), key: "key-of-the-reader" });
		expect(failure.code).toBe("permission_denied");
		expect(lines()).toEqual([
			{
				level: "warn",
				event: "request_refused",
				transport,
				operation: INGEST,
				caller: "reader",
				kind: "permission_denied",
				detail: 'The access key or client certificate lacks the scope "ingest"',
			},
		]);
	});

	test.each([
		["bytes that are no message", Buffer.from([0xff, 0xff])],
		["a message that ends too early", Buffer.from([0x0a, 0x7f, 0x0a])],
		["a string that is not UTF-8", Buffer.from([0x0a, 0x05, 0x0a, 0x03, 0xed, 0xa0, 0x80])],
	])("a request of %s is refused as invalid_argument with one message, and logged", async (_, body) => {
		const failure = await send({ path: INGEST, body });
		expect([failure.code, failure.message]).toEqual(["invalid_argument", UNREADABLE]);
		expect(lines()).toEqual([
			{
				level: "warn",
				event: "request_refused",
				transport,
				operation: INGEST,
				caller: "test",
				kind: "invalid_argument",
				detail: UNREADABLE,
			},
		]);
	});

	test("a method that decodes its request refuses bytes that are no message in the same way", async () => {
		const failure = await send({ path: GET, body: Buffer.from([0xff, 0xff]) });
		const message = "The request cannot be read as a conversations.v1.GetConversationRequest";
		expect([failure.code, failure.message]).toEqual(["invalid_argument", message]);
		expect(lines()).toMatchObject([{ transport, operation: GET, kind: "invalid_argument" }]);
	});

	test("a record that breaks rules is logged with the places of the violations, but without values", async () => {
		const conversation = { id: ID, title: CANARY };
		const body = toBinary(IngestConversationRequestSchema, create(IngestConversationRequestSchema, { conversation }));
		expect((await send({ path: INGEST, body })).code).toBe("invalid_argument");
		expect(lines()).toMatchObject([
			{
				transport,
				operation: INGEST,
				caller: "test",
				kind: "invalid_record",
				reasons: { missing: 2 },
				locs: ["body.workspace", "body.agent"],
			},
		]);
		expect(service.log()).not.toContain(CANARY);
	});

	test("a read of an unknown conversation is logged with the conversation id", async () => {
		const body = toBinary(GetConversationRequestSchema, create(GetConversationRequestSchema, { id: ID }));
		expect((await send({ path: GET, body })).code).toBe("not_found");
		expect(lines()).toMatchObject([{ transport, operation: GET, kind: "not_found", conversationId: ID }]);
	});
});

describe.each(overJson)("over %s with JSON", (transport, send) => {
	test.each([
		["broken JSON", `{"conversation":{"title":"${CANARY}`],
		["a wrong type in a secret field", `{"conversation":{"agent":{"agent":{"llm":{"apiKey":{"x":"${CANARY}"}}}}}}`],
		["a body that is not UTF-8", Buffer.from(`{"x":"\u00ff"}`, "latin1")],
	])("%s is refused as invalid_argument with one message, and logged", async (_, body) => {
		const failure = await send({ path: INGEST, body: Buffer.from(body) });
		expect([failure.code, failure.message.replace(/: (?:field|message) [\w.]+ is not valid$/, "")]).toEqual([
			"invalid_argument",
			UNREADABLE,
		]);
		expect(failure.text).not.toContain(CANARY);
		expect(lines()).toMatchObject([{ transport, operation: INGEST, caller: "test", kind: "invalid_argument" }]);
		expect(service.log()).not.toContain(CANARY);
	});
});

describe("the HTTP listener", () => {
	test("refuses and logs a message that is too large, before or after decompression", async () => {
		const zeros = Buffer.alloc(LIMIT + 1);
		const compressed = await new Response(
			new Blob([zeros]).stream().pipeThrough(new CompressionStream("gzip")),
		).bytes();
		const plain = connect("application/proto");
		for (const sending of [
			{ path: INGEST, body: zeros },
			{ path: INGEST, body: compressed, header: { "Content-Encoding": "gzip" } },
		]) {
			const failure = await plain(sending);
			expect([failure.code, failure.message]).toEqual([
				"resource_exhausted",
				`The request is larger than ${LIMIT} bytes`,
			]);
		}
		const failure = await grpcWeb("application/grpc-web+proto")({ path: INGEST, body: zeros });
		expect(failure.code).toBe("resource_exhausted");
		expect(lines()).toMatchObject([{ kind: "too_large" }, { kind: "too_large" }, { kind: "too_large" }]);
	});

	test("reads a compressed message in each framing, and refuses one that is no gzip data", async () => {
		const message = toBinary(GetConversationRequestSchema, create(GetConversationRequestSchema, { id: ID }));
		const compressed = await new Response(
			new Blob([Buffer.from(message)]).stream().pipeThrough(new CompressionStream("gzip")),
		).bytes();
		const gzip = { "Content-Encoding": "gzip" };
		const plain = connect("application/proto");
		expect(await plain({ path: GET, body: compressed, header: gzip })).toMatchObject({ code: "not_found" });
		expect(await plain({ path: GET, body: message, header: gzip })).toMatchObject({ code: "invalid_argument" });
		for (const [body, code] of [
			[framed(compressed, 1), "5"],
			[framed(message, 1), "3"],
		] as const) {
			const header = { "Grpc-Encoding": "gzip" };
			expect(await fetchText({ path: GET, body, header }, "application/grpc-web+proto")).toContain(
				`grpc-status: ${code}`,
			);
		}
	});

	test("refuses and logs a watch request that is not exactly one message", async () => {
		const type = "application/connect+proto";
		const message = framed(new Uint8Array());
		for (const body of [new Uint8Array(), Buffer.concat([message, message]), Buffer.from([2, 0, 0, 0, 0])])
			expect(await fetchText({ path: WATCH, body }, type)).toContain('"code":"invalid_argument"');
		expect(lines()).toMatchObject(Array(3).fill({ transport: "connect", operation: WATCH, kind: "invalid_argument" }));
	});

	test("logs requests that the Connect library refuses because of their header", async () => {
		const body = new Uint8Array();
		await fetchText({ path: INGEST, body }, "text/plain");
		await fetchText({ path: INGEST, body, header: { "Content-Encoding": "br" } }, "application/proto");
		expect(lines()).toMatchObject([
			{ transport: "connect", operation: INGEST, kind: "unsupported_media_type" },
			{ transport: "connect", operation: INGEST, kind: "invalid_argument" },
		]);
	});

	test.each([`https://user:${CANARY}@host.example/x`, `https:%2F%2Fuser:${CANARY}%40host.example%2Fx`])(
		"logs an unknown path without the password of a URL in it: %s",
		async (url) => {
			using client = await new RawHttp(service).connected();
			await client.head({ "X-Access-Token": KEY, "Content-Length": "0" }, `/api/v1/webhooks/others/${url}`);
			expect((await client.response()).status).toBe(404);
			const operation = "POST /api/v1/webhooks/others/https://**********@host.example/x";
			expect(lines()).toMatchObject([{ operation, kind: "not_found" }]);
		},
	);

	test("logs the refusals of routes with the route and the conversation id of the path", async () => {
		const get = (path: string, init?: RequestInit) =>
			fetch(`${service.http}${path}`, { headers: { "X-Access-Token": KEY }, ...init });
		await postWebhook(service, "wrong", "{}");
		await postEvents(service, "wrong", ID.replaceAll("-", ""), "[]");
		await postWebhook(service, KEY, `{"title":7}`);
		await get(`/api/v1/conversations/${ID}`);
		await get(`/api/v1/webhooks/others/${ID}?key=${CANARY}`);
		expect((await get("/api/v1/webhooks/conversations", { method: "DELETE" })).status).toBe(405);
		const webhook = "POST /api/v1/webhooks/conversations";
		const http = { level: "warn", event: "request_refused", transport: "http" };
		const peer = "127.0.0.1";
		expect(lines()).toEqual([
			{ ...http, operation: webhook, peer, kind: "unauthenticated", detail: "The access key is not known" },
			{
				...http,
				operation: "POST /api/v1/webhooks/events/{id}",
				peer,
				conversationId: ID,
				kind: "unauthenticated",
				detail: "The access key is not known",
			},
			{
				...http,
				operation: webhook,
				caller: "test",
				kind: "invalid_record",
				reasons: { missing: 3, string_type: 1 },
				locs: expect.arrayContaining(["body.id", "body.workspace", "body.agent", "body.title"]),
			},
			{
				...http,
				operation: "GET /api/v1/conversations/{id}",
				caller: "test",
				conversationId: ID,
				kind: "not_found",
				detail: "There is no such conversation",
			},
			{ ...http, operation: `GET /api/v1/webhooks/others/${ID}`, peer, kind: "not_found", detail: "Not Found" },
			{
				...http,
				operation: "DELETE /api/v1/webhooks/conversations",
				peer,
				kind: "method_not_allowed",
				detail: "Method Not Allowed",
			},
		]);
	});
});
