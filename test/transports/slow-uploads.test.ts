import { once } from "node:events";
import { connect, constants } from "node:http2";
import { createConnection } from "node:net";
import { describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { postWebhook, rpcPath, WEBHOOK } from "../support/clients.ts";
import { KEY } from "../support/service.ts";
import { BoundedService } from "./bounded-service.ts";

const RPC = rpcPath(ConversationIngestService.method.ingestConversation);
const MESSAGE = Buffer.from([0, 0, 0, 0, 10, 1, 2]);

/** A request whose body has begun to arrive. */
interface Upload {
	/** Resolves when the request has ended, with what the client received and how the stream was closed. */
	readonly ended: Promise<unknown>;
	/** Sends the rest of the body. */
	finish(): void;
	destroy(): void;
}

function overHttp1(service: BoundedService): Upload {
	const socket = createConnection({ host: "127.0.0.1", port: Number(new URL(service.http).port) });
	socket.write(
		`POST ${WEBHOOK} HTTP/1.1\r\nHost: x\r\nX-Access-Token: ${KEY}\r\nConnection: close\r\nContent-Length: 10\r\n\r\nx`,
	);
	let received = "";
	socket.setEncoding("latin1").on("data", (text) => {
		received += text;
	});
	const ended = new Promise((resolve) =>
		socket.on("error", () => undefined).on("close", () => resolve(received.slice(0, 15))),
	);
	return { ended, finish: () => socket.write("x".repeat(9)), destroy: () => socket.destroy() };
}

function overHttp2(address: string, path: string, type: string, begin: Buffer, rest: Buffer): Upload {
	const session = connect(address);
	const headers = { ":method": "POST", ":path": path, te: "trailers", "x-access-token": KEY, "content-type": type };
	const stream = session.request(headers).on("error", () => undefined);
	stream.write(begin);
	const answer: { status?: unknown; grpc?: unknown; message?: unknown } = {};
	stream.on("response", (fields) => {
		answer.status = fields[":status"];
		if (fields["grpc-status"] !== undefined)
			Object.assign(answer, { grpc: fields["grpc-status"], message: fields["grpc-message"] });
	});
	const ended = once(stream.resume(), "close").then(() => ({ ...answer, code: stream.rstCode }));
	return { ended, finish: () => stream.end(rest), destroy: () => session.destroy() };
}

const REST = Buffer.alloc(8, 1);
const CUT = { code: constants.NGHTTP2_CANCEL };
const DONE = { status: 200, code: constants.NGHTTP2_NO_ERROR };

const FORMS: readonly (readonly [
	name: string,
	open: (service: BoundedService) => Upload,
	cut: unknown,
	done: unknown,
])[] = [
	["the webhook over HTTP/1.1", overHttp1, "", "HTTP/1.1 200 OK"],
	["the webhook over HTTP/2", ({ http }) => overHttp2(http, WEBHOOK, "application/json", MESSAGE, REST), CUT, DONE],
	["Connect", ({ http }) => overHttp2(http, RPC, "application/proto", MESSAGE, REST), CUT, DONE],
	["gRPC-Web", ({ http }) => overHttp2(http, RPC, "application/grpc-web+proto", MESSAGE, REST), CUT, DONE],
	[
		"gRPC",
		({ grpc }) => overHttp2(`http://${grpc}`, RPC, "application/grpc", MESSAGE, REST),
		{
			status: 200,
			grpc: "14",
			message: "The%20body%20takes%20too%20long%20to%20arrive;%20try%20again%20later",
			code: 0,
		},
		DONE,
	],
];

describe.each(FORMS)("%s", (_, open, cut, done) => {
	test("slow uploads give way to other requests until they take up half of the limit", async () => {
		let now = 0;
		const bounds = { ingest: { requests: 4, bytes: 1_000_000 } };
		await using service = await BoundedService.start(1_000_000, bounds, {}, () => now);
		const uploads: Upload[] = [];
		while (uploads.length < 4) {
			uploads.push(open(service));
			await expect.poll(() => service.underWay.ingest.requests).toBe(uploads.length);
		}
		now = 5_001;
		const waiting = [];
		for (const upload of uploads.slice(2).reverse()) {
			waiting.push(postWebhook(service, KEY, "w"));
			expect(await upload.ended).toEqual(cut);
		}
		await expect.poll(() => service.underWay.ingest.requests).toBe(4);
		expect((await postWebhook(service, KEY, "x")).status).toBe(503);
		for (const { finish } of uploads.slice(0, 2)) finish();
		expect(await Promise.all(uploads.slice(0, 2).map(({ ended }) => ended))).toEqual([done, done]);
		service.letGo();
		expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([200, 200]);
		await expect.poll(() => service.underWay.ingest).toEqual({ requests: 0, bytes: 0 });
		for (const { destroy } of uploads) destroy();
	});
});
