import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Certificates } from "../support/certificates.ts";
import { WEBHOOK } from "../support/clients.ts";
import { startTestService, type TestService } from "../support/service.ts";

const certificates = new Certificates();
afterAll(() => certificates[Symbol.dispose]());
const TLS = { TLS_CERT_FILE: certificates.path("server.crt"), TLS_KEY_FILE: certificates.path("server.key") };
const CANARY = "canary-of-connections";

/** The lines about failed connections, without what differs from run to run. */
function linesOf(service: TestService): unknown[] {
	const parsed = service.log().split("\n").filter(Boolean);
	return parsed.flatMap((line) => {
		const { time: _, pid: __, hostname: ___, ...rest } = JSON.parse(line);
		return rest.event === "connection_failed" ? rest : [];
	});
}

/** What is common to the lines. */
const LINE = {
	level: "warn",
	event: "connection_failed",
	msg: "A connection was ended because of what its client did",
};

/** Sends bytes to `host:port`, waits until the connection is closed, and gives what came back and its own address. */
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

describe("in clear text", () => {
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
			"two lengths",
			"http",
			`POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab`,
			{ code: "HPE_UNEXPECTED_CONTENT_LENGTH", reason: expect.any(String) },
			400,
		],
		["no Host", "http", `GET /${CANARY} HTTP/1.1\r\n\r\n`, { code: "MISSING_HOST" }, 400],
		[
			"an unknown expectation",
			"http",
			`GET / HTTP/1.1\r\nHost: x\r\nExpect: ${CANARY}\r\n\r\n`,
			{ code: "UNKNOWN_EXPECTATION" },
			417,
		],
		[
			"garbage after the preface of HTTP/2",
			"http",
			`${preface}\u0000\u0000\u0000${CANARY} that is no frame`,
			{ code: "ERR_HTTP2_ERROR", reason: expect.any(String) },
			undefined,
		],
		["a request of HTTP/1.1", "grpc", `GET /${CANARY} HTTP/1.1\r\nHost: x\r\n\r\n`, magic, undefined],
		["bytes of zero", "grpc", "\u0000".repeat(1_000), magic, undefined],
		[
			"garbage after the preface of HTTP/2",
			"grpc",
			`${preface}\u0000\u0000\u0000${CANARY} that is no frame`,
			{ code: "ERR_HTTP2_ERROR", reason: expect.any(String) },
			undefined,
		],
	] as const)(
		"%s on the %s listener is one line with the client's address",
		async (_, listener, bytes, told, status) => {
			const { answer, peer } = await send(host(listener), bytes);
			if (status !== undefined) expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
			await expect.poll(() => linesOf(service).slice(before)).toEqual([{ ...LINE, listener, ...told, peer }]);
		},
	);

	test("a client that leaves is no line", async () => {
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
		// What is sent later is logged later.
		await send(host("http"), "\u0000\r\n\r\n");
		await expect.poll(() => linesOf(service).slice(before)).toMatchObject([{ code: "HPE_INVALID_METHOD" }]);
	});
});

describe("with TLS", () => {
	let service: TestService;
	afterEach(() => service[Symbol.asyncDispose]());

	test.each(["http", "grpc"] as const)("clear text on the %s listener is one line", async (listener) => {
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
	] as const)("%s where one is needed is one line", async (_, given, code) => {
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
			// Node.js has closed the connection when it tells of the certificate.
			.toEqual([{ ...LINE, listener: "http", code, ...(given === undefined && { peer }) }]);
	});

	test("malformed HTTP inside of TLS is one line", async () => {
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
