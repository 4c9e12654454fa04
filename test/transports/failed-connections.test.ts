import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Certificates } from "../support/certificates.ts";
import { WEBHOOK } from "../support/clients.ts";
import { FRAME, frame, headerBlock, RawHttp2 } from "../support/raw-http2.ts";
import { framed } from "../support/raw-rpc.ts";
import { startTestService, type TestService } from "../support/service.ts";

const certificates = new Certificates();
afterAll(() => certificates[Symbol.dispose]());
const TLS = { TLS_CERT_FILE: certificates.path("server.crt"), TLS_KEY_FILE: certificates.path("server.key") };
const CANARY = "canary-of-connections";

/** Returns the logged lines about failed connections, without the fields that differ from run to run. */
function linesOf(service: TestService): unknown[] {
	const parsed = service.log().split("\n").filter(Boolean);
	return parsed.flatMap((line) => {
		const { time: _, pid: __, hostname: ___, ...rest } = JSON.parse(line);
		return rest.event === "connection_failed" ? rest : [];
	});
}

/** Fields that all these lines have in common. */
const LINE = {
	level: "warn",
	event: "connection_failed",
	msg: "A connection was closed because its client broke the protocol or was too slow",
};

/** Sends bytes to `host:port` and waits until the connection is closed. Returns the response and the client's address. */
async function send(address: string, bytes: string | Uint8Array): Promise<{ answer: string; peer: string }> {
	const { hostname, port } = new URL(`http://${address}`);
	const socket = connectTcp({ host: hostname, port: Number(port) });
	socket.on("error", () => undefined);
	await once(socket, "connect");
	const peer = `127.0.0.1:${socket.localPort}`;
	let answer = "";
	socket.setEncoding("latin1").on("data", (text: string) => {
		answer += text;
	});
	socket.write(bytes);
	await new Promise((resolve) => socket.on("close", resolve));
	return { answer, peer };
}

describe("without TLS", () => {
	let service: TestService;
	let before = 0;

	beforeAll(async () => {
		service = await startTestService({ LOG_LEVEL: "trace" });
	});
	afterAll(() => service[Symbol.asyncDispose]());
	afterEach(() => {
		before = linesOf(service).length;
		expect(service.log()).not.toContain(CANARY);
	});

	const host = (listener: "http" | "grpc") =>
		listener === "grpc" ? service.grpc : service.http.slice("http://".length);
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	const magic = { code: "ERR_HTTP2_ERROR", reason: "Received bad client magic byte string" };

	test.each([
		["no HTTP", "http", `\u0000${CANARY}\r\n\r\n`, { code: "HPE_INVALID_METHOD", reason: expect.any(String) }, 400],
		[
			"an unknown method",
			"http",
			`${CANARY} / HTTP/1.1\r\nHost: x\r\n\r\n`,
			{ code: "HPE_INVALID_METHOD", reason: expect.any(String) },
			400,
		],
		[
			"a huge header field",
			"http",
			`GET / HTTP/1.1\r\nHost: x\r\n${CANARY}: ${"b".repeat(100_000)}\r\n\r\n`,
			{ code: "HPE_HEADER_OVERFLOW", reason: expect.any(String) },
			431,
		],
		[
			"two Content-Length fields",
			"http",
			`POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab`,
			{ code: "HPE_UNEXPECTED_CONTENT_LENGTH", reason: expect.any(String) },
			400,
		],
		[
			"garbage after the HTTP/2 preface",
			"http",
			`${preface}\u0000\u0000\u0000${CANARY} that is no frame`,
			{ code: "ERR_HTTP2_ERROR", reason: expect.any(String) },
			undefined,
		],
		["an HTTP/1.1 request", "grpc", `GET /${CANARY} HTTP/1.1\r\nHost: x\r\n\r\n`, magic, undefined],
		["NUL bytes", "grpc", "\u0000".repeat(1_000), magic, undefined],
	] as const)(
		"%s on the %s listener is logged in one line with the client's address",
		async (_, listener, bytes, fields, status) => {
			const { answer, peer } = await send(host(listener), bytes);
			if (status !== undefined) expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
			await expect.poll(() => linesOf(service).slice(before)).toEqual([{ ...LINE, listener, ...fields, peer }]);
		},
	);

	test.each([
		["two Host fields", "/healthz HTTP/1.1\r\nHost: x\r\nhost: y", 400],
		["no Host field", "/healthz HTTP/1.1", 400],
		["an unknown expectation", "/healthz HTTP/1.1\r\nHost: x\r\nExpect: tea", 417],
	])("a request with %s is refused", async (_, request, status) => {
		const { answer } = await send(host("http"), `GET ${request}\r\nConnection: close\r\n\r\n`);
		expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
	});

	test("a gRPC client that ends its connection after a call as grpc-go does is not logged", async () => {
		const client = await RawHttp2.connect(service.grpc);
		const header = headerBlock({
			":method": "POST",
			":scheme": "http",
			":path": "/grpc.health.v1.Health/Check",
			":authority": "x",
			"content-type": "application/grpc",
			te: "trailers",
		});
		const call = [frame(FRAME.headers, 0x4, 1, header), frame(FRAME.data, 0x1, 1, framed(Buffer.alloc(0)))];
		await client.write(Buffer.concat(call));
		// The response, and its trailer.
		await expect.poll(() => client.frames(FRAME.headers).length).toBe(2);
		// The last stream is one that only a client opens, and no error.
		await client.write(frame(FRAME.goaway, 0, 0, Buffer.from([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0])));
		await client.closed();
		// A line about that client would precede the line about this one.
		await send(host("grpc"), "\u0000".repeat(1_000));
		await expect.poll(() => linesOf(service).slice(before)).toMatchObject([{ ...magic }]);
	});

	test("a client that ends its HTTP/2 connection with an error code is not logged", async () => {
		const settings = "\0\0\0\u0004\0\0\0\0\0";
		const goaway = "\0\0\u0008\u0007\0\0\0\0\0\0\0\0\0\0\0\0\u0002";
		for (const listener of ["http", "grpc"] as const) await send(host(listener), preface + settings + goaway);
		await send(host("http"), "\u0000\r\n\r\n");
		await expect.poll(() => linesOf(service).slice(before)).toMatchObject([{ code: "HPE_INVALID_METHOD" }]);
	});

	test("a client that disconnects is not logged", async () => {
		for (const [listener, bytes] of [
			["http", ""],
			["http", "GET / HT"],
			["http", `POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n`],
			["http", preface],
			["grpc", ""],
			["grpc", preface],
		] as const) {
			const { hostname, port } = new URL(`http://${host(listener)}`);
			const socket = connectTcp({ host: hostname, port: Number(port) });
			await once(socket, "connect");
			await new Promise((resolve) => socket.write(bytes, resolve));
			socket.resetAndDestroy();
		}
		// A line about one of those clients would precede the line about this one.
		await send(host("http"), "\u0000\r\n\r\n");
		await expect.poll(() => linesOf(service).slice(before)).toMatchObject([{ code: "HPE_INVALID_METHOD" }]);
	});
});

describe("with TLS", () => {
	let service: TestService;
	afterEach(() => service[Symbol.asyncDispose]());

	test.each(["http", "grpc"] as const)("clear text on the %s listener is logged in one line", async (listener) => {
		service = await startTestService(TLS);
		const address = listener === "grpc" ? service.grpc : service.http.slice("http://".length);
		const { peer } = await send(address, `GET /${CANARY} HTTP/1.1\r\nHost: x\r\n\r\n`);
		await expect
			.poll(() => linesOf(service))
			.toEqual([{ ...LINE, listener, code: expect.stringMatching(/^ERR_SSL_/), peer }]);
		expect(service.log()).not.toContain(CANARY);
	});

	test.each([
		["no certificate", undefined, "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE"],
		["a certificate of an unknown authority", "foreign", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"],
	] as const)("%s where one is required is logged in one line", async (_, given, code) => {
		service = await startTestService({ ...TLS, TLS_CLIENT_CA_FILE: certificates.path("ca.crt") });
		const pem = (name: string) => certificates.pem(name);
		const holder = given !== undefined ? { cert: pem(`${given}.crt`), key: pem(`${given}.key`) } : {};
		const port = Number(new URL(service.http).port);
		const socket = connectTls({ host: "127.0.0.1", port, ca: pem("ca.crt"), ...holder });
		socket.on("error", () => undefined);
		await once(socket, "connect");
		const peer = `127.0.0.1:${socket.localPort}`;
		socket.resume();
		await new Promise((resolve) => socket.on("close", resolve));
		await expect
			.poll(() => linesOf(service))
			// Node.js reports a foreign certificate after it has closed the connection, so the peer's address is unknown.
			.toEqual([{ ...LINE, listener: "http", code, ...(given === undefined && { peer }) }]);
	});

	test("malformed HTTP inside TLS is logged in one line", async () => {
		service = await startTestService(TLS);
		const port = Number(new URL(service.http).port);
		const socket = connectTls({ host: "127.0.0.1", port, rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] });
		socket.on("error", () => undefined);
		await once(socket, "secureConnect");
		const peer = `127.0.0.1:${socket.localPort}`;
		socket.resume().write(`\u0000${CANARY}\r\n\r\n`);
		await new Promise((resolve) => socket.on("close", resolve));
		await expect
			.poll(() => linesOf(service))
			.toEqual([{ ...LINE, listener: "http", code: "HPE_INVALID_METHOD", reason: expect.any(String), peer }]);
	});
});
