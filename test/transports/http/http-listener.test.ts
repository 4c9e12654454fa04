import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ConversationService } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { createLogger } from "../../../src/telemetry/log.ts";
import { LIMITS } from "../../../src/transports/connections.ts";
import { readBody } from "../../../src/transports/http/body.ts";
import { sendContent } from "../../../src/transports/http/exchange.ts";
import { listenHttp } from "../../../src/transports/http/http-listener.ts";
import { postWebhook, WEBHOOK } from "../../support/clients.ts";
import { postEvents } from "../../support/event-clients.ts";
import { record } from "../../support/fixtures.ts";
import { RawHttp } from "../../support/raw-http.ts";
import { callRaw } from "../../support/raw-rpc.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const ORIGIN = "https://dashboard.example";
const RPC = "/conversations.v1.ConversationService/ListConversations";
const EVENT_RPC = "/conversations.v1.ConversationEventService/ListConversationEvents";
const EVENTS = "/api/v1/conversations/7c9e6679-7425-40de-944b-e07fc1f90ae7/events";

describe("a service", () => {
	let service: TestService;

	beforeAll(async () => {
		service = await startTestService({ CORS_ORIGINS: ORIGIN });
	});

	afterAll(async () => {
		await service[Symbol.asyncDispose]();
	});

	test("serves HTTP/2 without TLS on the port of HTTP/1.1: the webhook, reads, HEAD and a large body", async () => {
		const session = connectHttp2(service.http);
		const ask = async (method: string, path: string, body = "") => {
			const headers = { "x-access-token": KEY, "content-type": "application/json" };
			const stream = session.request({ ":method": method, ":path": path, ...headers });
			if (method === "POST") stream.end(body);
			const [answer] = await once(stream, "response");
			let text = "";
			for await (const chunk of stream.setEncoding("utf8")) text += chunk;
			return [answer[":status"], text];
		};
		const [sent, title] = [record(), "x".repeat(250)];
		const large = JSON.stringify({ ...sent, title, unnamed: "y".repeat(1_000_000) });
		expect(await ask("POST", WEBHOOK, large)).toEqual([200, '{"success":true}']);
		const path = `/api/v1/conversations/${sent.id}`;
		const [status, text] = await ask("GET", path);
		expect([status, JSON.parse(String(text)).title]).toEqual([200, title]);
		expect(await ask("HEAD", path)).toEqual([200, ""]);
		expect(await ask("GET", "/nothing")).toEqual([404, '{"detail":"Not Found"}']);
		session.destroy();
	});

	test("closes the stream of a large refused upload over HTTP/2 without an error, after its response", async () => {
		const session = connectHttp2(service.http);
		const refused = session.request({ ":method": "POST", ":path": WEBHOOK, "x-access-token": "wrong-key" });
		refused.end(Buffer.alloc(5 * 2 ** 20)).resume();
		const [[headers]] = await Promise.all([once(refused, "response"), once(refused, "close")]);
		expect([headers[":status"], refused.rstCode]).toEqual([401, constants.NGHTTP2_NO_ERROR]);
		const next = session.request({ ":path": "/healthz" });
		const [found] = await once(next.resume(), "response");
		expect(found[":status"]).toBe(200);
		session.destroy();
	});

	test("serves Connect over HTTP/2", async () => {
		const transport = createConnectTransport({
			baseUrl: service.http,
			httpVersion: "2",
			interceptors: [
				(next) => (request) => {
					request.header.set("x-access-token", KEY);
					return next(request);
				},
			],
		});
		const { conversations } = await createClient(ConversationService, transport).listConversations({ pageSize: 1 });
		expect(conversations.length).toBeLessThan(2);
	});

	test("answers a request whose bytes arrive one by one, and a client that ends its side early", async () => {
		using client = await new RawHttp(service).connected();
		for (const byte of "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n") await client.write(byte);
		expect((await client.response()).status).toBe(404);
		using early = await new RawHttp(service).connected();
		await early.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
		early.end();
		expect(await early.response()).toMatchObject({ status: 200, body: '{"alive":true}' });
	});

	test.each([
		["the webhook", WEBHOOK, "application/json", 200],
		["Connect", RPC, "application/json", 200],
		["an unknown path", "/nothing", "application/json", 404],
	])("over HTTP/1.1, %s asks for the body of a client that waits only after the key was checked", async (...given) => {
		const [, path, type, status] = given;
		const body = Buffer.from(path === WEBHOOK ? JSON.stringify(record()) : "{}");
		const fields = { "Content-Type": type, "Content-Length": String(body.length), Expect: "100-continue" };
		using refused = await new RawHttp(service).connected();
		await refused.head({ ...fields, "X-Access-Token": "wrong-key" }, path);
		const { status: refusal, headers } = await refused.response();
		expect([refusal, headers.get("connection")]).toEqual([path === "/nothing" ? 404 : 401, "close"]);
		await refused.closed();
		if (status !== 200) return;
		using admitted = await new RawHttp(service).connected();
		for (let round = 0; round < 2; round++) {
			await admitted.head({ ...fields, "X-Access-Token": KEY }, path);
			expect((await admitted.response()).status).toBe(100);
			await admitted.write(body);
			expect((await admitted.response()).status).toBe(status);
		}
	});

	test.each([
		[KEY, [100, 200]],
		["wrong-key", [401]],
	])("over HTTP/2, with the key %s a client that waits with its body gets the statuses %j", async (key, statuses) => {
		const session = connectHttp2(service.http);
		const body = JSON.stringify(record());
		const stream = session.request({
			":method": "POST",
			":path": WEBHOOK,
			"content-type": "application/json",
			"content-length": String(body.length),
			"x-access-token": key,
			expect: "100-continue",
		});
		const received: unknown[] = [];
		stream.on("headers", (headers) => received.push(headers[":status"]));
		stream.on("continue", () => stream.end(body));
		const [headers] = await once(stream.resume(), "response");
		expect([...received, headers[":status"]]).toEqual(statuses);
		session.destroy();
	});

	test("allows calls from pages of the configured origins only", async () => {
		const preflight = (origin: string, path: string) =>
			fetch(`${service.http}${path}`, {
				method: "OPTIONS",
				headers: { Origin: origin, "Access-Control-Request-Method": "POST" },
			});
		for (const path of [RPC, EVENT_RPC, "/api/v1/conversations", EVENTS]) {
			const allowed = await preflight(ORIGIN, path);
			expect([allowed.status, allowed.headers.get("access-control-allow-origin")]).toEqual([204, ORIGIN]);
			expect(allowed.headers.get("access-control-allow-methods")).toBe("POST, GET, HEAD, DELETE");
			const fields = allowed.headers.get("access-control-allow-headers")?.toLowerCase();
			for (const field of ["x-access-token", "content-type", "connect-protocol-version", "x-grpc-web", "grpc-timeout"])
				expect(fields).toContain(field);
		}
		const refused = await preflight("https://evil.example", "/api/v1/conversations");
		expect([refused.status, refused.headers.get("access-control-allow-origin")]).toEqual([405, null]);

		const headers = { Origin: ORIGIN, "X-Access-Token": KEY, "Content-Type": "application/json" };
		for (const [path, init] of [
			["/api/v1/conversations", { headers }],
			[EVENTS, { headers }],
			[RPC, { method: "POST", headers, body: "{}" }],
			[EVENT_RPC, { method: "POST", headers, body: "{}" }],
			["/api/v1/conversations", { headers: { Origin: ORIGIN } }],
		] as const) {
			const answer = await fetch(`${service.http}${path}`, init);
			expect(answer.headers.get("access-control-allow-origin")).toBe(ORIGIN);
			expect(answer.headers.get("access-control-expose-headers")?.toLowerCase()).toContain("grpc-status");
			expect(answer.headers.get("vary")).toBe("Origin");
		}
	});

	test.each([
		[`http://any.example${WEBHOOK}`, "POST", 422],
		[`HTTPS://any.example:1${WEBHOOK}?a=http://b/`, "POST", 422],
		[`http://any.example${RPC}`, "POST", 200],
		["http://any.example/healthz", "GET", 200],
		["http://any.example?a=/healthz", "GET", 200],
		["http://any.example", "GET", 200],
		["ftp://any.example/healthz", "GET", 404],
	])("answers the absolute target %s of a %s request", async (target, method, status) => {
		using client = await new RawHttp(service).connected();
		const fields = `Host: x\r\nX-Access-Token: ${KEY}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n`;
		await client.write(`${method} ${target} HTTP/1.1\r\n${fields}\r\n{}`);
		expect((await client.response()).status).toBe(status);
	});

	test("reports without a key that it is alive and ready", async () => {
		const get = async (path: string) => {
			const answer = await fetch(service.http + path);
			return [answer.status, await answer.json()];
		};
		expect(await get("/healthz")).toEqual([200, { alive: true }]);
		expect(await get("/readyz")).toEqual([200, { ready: true, failing: [] }]);
	});

	test("logs a malformed Host header of an RPC", async () => {
		using client = await new RawHttp(service).connected();
		await client.write(`POST ${RPC} HTTP/1.1\r\nHost: [\r\nContent-Length: 0\r\n\r\n`);
		expect((await client.response()).status).toBe(400);
		await expect
			.poll(() => service.log())
			.toMatch(
				/"event":"request_refused","transport":"connect","operation":"\/conversations.v1.ConversationService\/ListConversations","peer":"127.0.0.1:\d+","requestId":"[0-9a-f-]{36}","kind":"invalid_argument"/,
			);
	});
});

test("each key has its own rate limit, on the webhooks and over every RPC protocol", async () => {
	await using service = await startTestService({ RATE_LIMIT_PER_KEY: "2", ACCESS_KEYS: `a:${KEY},b:another-key-of-b` });
	const body = JSON.stringify(record());
	for (const post of [() => postWebhook(service, KEY, body), () => postEvents(service, KEY, randomUUID(), "[]")]) {
		const answers = await Promise.all(Array.from({ length: 10 }, post));
		const limited = answers.filter(({ status }) => status === 429);
		expect(limited.length).toBeGreaterThan(0);
		expect(limited[0]?.headers.get("retry-after")).toBe("1");
		expect(await limited[0]?.json()).toEqual({
			detail: "The access key or client certificate exceeds its limit of 2 requests per second",
		});
	}
	const connect = () =>
		fetch(service.http + RPC, {
			method: "POST",
			headers: { "X-Access-Token": KEY, "Content-Type": "application/json" },
			body: "{}",
		});
	const rpcs = (await Promise.all(Array.from({ length: 10 }, connect))).filter(({ status }) => status === 429);
	expect(rpcs[0]?.headers.get("retry-after")).toBe("1");
	expect(await rpcs[0]?.json()).toMatchObject({ code: "resource_exhausted" });
	for (const form of ["gRPC", "gRPC-Web"] as const) {
		const call = () => callRaw(service, form, ConversationService.method.listConversations, new Uint8Array(), KEY);
		const codes = (await Promise.all(Array.from({ length: 10 }, call))).map(({ code }) => code);
		expect(codes).toContain(Code.ResourceExhausted);
	}
	expect((await postWebhook(service, "another-key-of-b", body)).status).toBe(200);
});

describe("a listener", () => {
	/** Starts a listener that responds with the length of the request body, or to the path `/much` with 50 MB. */
	async function listening(limits: Partial<typeof LIMITS>) {
		const events: string[] = [];
		const log = createLogger("warn", { write: (line) => events.push(JSON.parse(line).event) });
		const address = { host: "127.0.0.1", port: 0 };
		const listener = await listenHttp(
			{ address, tls: undefined, log, limits: { ...LIMITS, ...limits } },
			(request, response) => {
				const send = (content: string) => sendContent(response, { status: 200, content, type: "application/json" });
				if (request.url === "/much") return send("x".repeat(50_000_000));
				readBody(request, 1_000_000, () => undefined).then(
					(body) => send(String(body.length)),
					() => response.destroy(),
				);
			},
		);
		const http = `http://127.0.0.1:${listener.address.port}`;
		return { http, events, listener, [Symbol.dispose]: () => listener.kill() };
	}

	test("closes connections that send nothing or half a header", async () => {
		using listener = await listening({ headerTime: 200 });
		using silent = await new RawHttp(listener).connected();
		using half = await new RawHttp(listener).connected();
		await half.write("GET / HTTP/1.1\r\nHost: x\r\nX: ");
		await Promise.all([silent.closed(), half.closed()]);
	});

	test("closes connections whose body takes too long, over HTTP/1.1 and HTTP/2", async () => {
		using listener = await listening({ headerTime: 200, requestTime: 300 });
		using slow = await new RawHttp(listener).connected();
		await slow.write("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx");
		const session = connectHttp2(listener.http);
		const stream = session.request({ ":method": "POST" });
		stream.on("error", () => undefined).write("x");
		await Promise.all([slow.closed(), once(stream, "close")]);
		session.destroy();
	});

	test("closes connections whose response nobody reads, over HTTP/1.1 and HTTP/2", async () => {
		using listener = await listening({ idleTime: 300 });
		using deaf = await new RawHttp(listener).connected();
		deaf.pause();
		await deaf.write("GET /much HTTP/1.1\r\nHost: x\r\n\r\n");
		const session = connectHttp2(listener.http);
		session.request({ ":path": "/much" }).on("error", () => undefined);
		await expect.poll(() => listener.listener.connections()).toBe(2);
		await expect.poll(() => listener.listener.connections()).toBe(0);
		session.destroy();
	});

	test("closes connections beyond the maximum number, and logs that", async () => {
		using listener = await listening({ connections: 2 });
		const clients = [];
		for (let index = 0; index < 5; index++) clients.push(await new RawHttp(listener).connected());
		await Promise.all(clients.slice(2).map((client) => client.closed()));
		expect(clients.map(({ open }) => open)).toEqual([true, true, false, false, false]);
		await expect.poll(() => listener.events).toEqual(Array.from({ length: 3 }, () => "connections_full"));
		for (const client of clients) client[Symbol.dispose]();
		await expect.poll(() => listener.listener.connections()).toBe(0);
		using again = await new RawHttp(listener).connected();
		await again.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
		expect((await again.response()).body).toBe("0");
	});
});
