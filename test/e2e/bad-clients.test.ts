import { connect, type Socket } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ServiceProcess } from "../support/child.ts";
import { postWebhook, WEBHOOK } from "../support/clients.ts";
import { record } from "../support/fixtures.ts";
import { RawHttp } from "../support/raw-http.ts";
import { FRAME, frame, headerBlock, RawHttp2 } from "../support/raw-http2.ts";
import { KEY } from "../support/service.ts";
import { TempFolder } from "../support/temp.ts";

const MiB = 1024 * 1024;

let folder: TempFolder;
let service: ServiceProcess;

beforeAll(async () => {
	folder = new TempFolder();
	service = await ServiceProcess.start(folder.file("conversations.db"), { MAX_BODY_BYTES: "100000" });
});

afterAll(async () => {
	await service[Symbol.asyncDispose]();
	folder[Symbol.dispose]();
});

// Whatever a client did, the same process goes on, and nothing of it was the service's fault.
afterEach(async () => {
	expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
	expect(service.output.stdout).not.toMatch(/"event":"(?:request_failed|unexpected_error|store_failed)"/);
	expect(service.output.stderr).toBe("");
});

/** The first bytes that come back for these, until the server closes the connection or is silent for long. */
function answerTo(address: string, bytes: string | Uint8Array): Promise<string> {
	const { hostname, port } = new URL(`http://${address}`);
	return new Promise((resolve) => {
		const socket = connect(Number(port), hostname, () => socket.write(bytes));
		let received = "";
		socket.setEncoding("latin1").on("data", (text: string) => {
			received += text;
		});
		socket.on("error", () => undefined);
		socket.on("close", () => resolve(received));
	});
}

describe("over HTTP/1.1", () => {
	const host = () => service.http.slice("http://".length);

	test.each([
		["no HTTP", "\u0000\u0001garbage\r\n\r\n", 400],
		["a TLS handshake", Buffer.from("16030100050100000100", "hex"), 400],
		["a flood of header fields", `GET / HTTP/1.1\r\nHost: x\r\n${"a: b\r\n".repeat(50_000)}\r\n`, 431],
		["one huge header field", `GET / HTTP/1.1\r\nHost: x\r\na: ${"b".repeat(100_000)}\r\n\r\n`, 431],
		["two lengths", `POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab`, 400],
		[
			"a length and chunks",
			`POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
			400,
		],
		["a method of its own", "PRI / HTTP/1.1\r\nHost: x\r\n\r\n", undefined],
		["the preface of HTTP/2 with something else after it", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", undefined],
	])("%s is refused, and the connection closed", async (_, bytes, status) => {
		const answer = await answerTo(host(), bytes);
		if (status !== undefined) expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
	});

	test("an endless body in chunks is refused when it passes the limit, and its connection closed", async () => {
		using client = await new RawHttp(service).connected();
		await client.head({ "X-Access-Token": KEY, "Transfer-Encoding": "chunked" }, WEBHOOK);
		const chunk = "x".repeat(50_000);
		for (let sent = 0; sent < 5 * MiB && client.open; sent += chunk.length) await client.chunk(chunk);
		await client.closed();
	});

	test("hundreds of uploads that end in the middle leave nothing behind", async () => {
		const uploads = Array.from({ length: 300 }, async () => {
			const client = await new RawHttp(service).connected();
			await client.head({ "X-Access-Token": KEY, "Content-Length": "90000" }, WEBHOOK);
			await client.write("x".repeat(50_000));
			client[Symbol.dispose]();
		});
		await Promise.all(uploads);
	});
});

describe.each(["http", "grpc"] as const)("over HTTP/2, on the %s listener", (listener) => {
	const address = () => (listener === "grpc" ? service.grpc : service.http.slice("http://".length));
	const call = () =>
		headerBlock({
			":method": "POST",
			":scheme": "http",
			":path": "/conversations.v1.ConversationService/GetConversation",
			":authority": "x",
			"content-type": listener === "grpc" ? "application/grpc" : "application/proto",
		});
	const HEADERS_END = 0x4;

	/** Sends until the server has had enough. */
	async function flood(bytes: (round: number) => Buffer, rounds: number): Promise<RawHttp2> {
		const client = await RawHttp2.connect(address());
		for (let round = 0; round < rounds && client.open; round++) await client.write(bytes(round));
		return client;
	}

	test("streams that are reset at once, in thousands, end the connection", async () => {
		const resets = (round: number) =>
			Buffer.concat(
				Array.from({ length: 100 }, (_, index) => {
					const id = 2 * (round * 100 + index) + 1;
					return Buffer.concat([
						frame(FRAME.headers, HEADERS_END, id, call()),
						frame(FRAME.rstStream, 0, id, Buffer.from([0, 0, 0, 8])),
					]);
				}),
			);
		using client = await flood(resets, 1_000);
		await client.closed();
	});

	test("a header that goes on in CONTINUATION frames without end ends the connection", async () => {
		const part = headerBlock({ "x-filler": "y".repeat(100) });
		const next = (round: number) =>
			round === 0 ? frame(FRAME.headers, 0, 1, call()) : frame(FRAME.continuation, 0, 1, part);
		using client = await flood(next, 10_000);
		await client.closed();
	});

	test("a header with thousands of fields is refused", async () => {
		const fields = Buffer.concat(
			Array.from({ length: 140 }, (_, index) => headerBlock({ [`x-${index}`]: "y".repeat(90) })),
		);
		using client = await flood(() => frame(FRAME.headers, HEADERS_END | 0x1, 1, Buffer.concat([call(), fields])), 1);
		await expect.poll(() => client.frames(FRAME.rstStream).length > 0 || !client.open).toBe(true);
	});

	test.each([
		["PING", frame(FRAME.ping, 0, 0, Buffer.alloc(8))],
		["SETTINGS", frame(FRAME.settings, 0, 0)],
	])("%s frames without end, whose answers nobody reads, end the connection", async (_, one) => {
		using client = await RawHttp2.connect(address());
		client.pause();
		const many = Buffer.concat(Array.from({ length: 10_000 }, () => one));
		// The server stops reading, or closes; a write that waits for it is not waited for.
		for (let round = 0; round < 300 && client.open; round++) {
			const written = client.write(many);
			await Promise.race([written, new Promise((resolve) => setTimeout(resolve, 200))]);
		}
		expect(client.open).toBe(false);
	});

	test("garbage is answered by the end of the connection", async () => {
		await answerTo(address(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u0000\u0000\u0000garbage that is no frame at all");
	});
});

describe("on the gRPC listener", () => {
	test.each([
		["a request of HTTP/1.1", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
		["bytes of zero", Buffer.alloc(1_000)],
	])("%s is answered by the end of the connection", async (_, bytes) => {
		await answerTo(service.grpc, bytes);
	});
});

test("a thousand silent connections on each listener hold up nobody, and are closed", async () => {
	const sockets: Socket[] = [];
	for (const address of [service.grpc, service.http.slice("http://".length)]) {
		const { hostname, port } = new URL(`http://${address}`);
		for (let index = 0; index < 1_000; index++)
			sockets.push(
				connect(Number(port), hostname)
					.on("error", () => undefined)
					.resume(),
			);
	}
	expect((await postWebhook(service, KEY, JSON.stringify(record()))).status).toBe(200);
	await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.on("close", resolve))));
});

test("the memory of all this comes back", async () => {
	// A bound far above what the service needs, and far below what was sent to it.
	await expect.poll(() => service.residentBytes, { timeout: 60_000, interval: 1_000 }).toBeLessThan(400 * MiB);
});
