import { once } from "node:events";
import { type ClientHttp2Session, connect } from "node:http2";
import { createConnection } from "node:net";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import {
	ConversationService,
	GetConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { postWebhook, rpcPath, WEBHOOK } from "../support/clients.ts";
import { callRaw, framed, RAW_FORMS } from "../support/raw-rpc.ts";
import { KEY } from "../support/service.ts";
import { ANSWER, BoundedService } from "./bounded-service.ts";

const { ingestConversation } = ConversationIngestService.method;
const { getConversation } = ConversationService.method;
const IDLE = { ingest: { requests: 0, bytes: 0 }, read: { requests: 0, bytes: 0 } };
const REQUESTS = "Too many requests are under way; try again later";
const BYTES = "Requests and responses under way use too much memory; try again later";
const FORMS = ["webhook", ...RAW_FORMS] as const;
type Form = (typeof FORMS)[number];

/** A body that makes its handler wait. */
const WAITING = "w".repeat(1_000);

/** Sends a body. Returns the status or code of the response, and its text. */
async function send(service: BoundedService, form: Form, body: string): Promise<readonly unknown[]> {
	if (form === "webhook") {
		const response = await postWebhook(service, KEY, body);
		return [response.status, response.headers.get("retry-after"), await response.text()];
	}
	// The handler does not decode its request, so any bytes will do. JSON is decoded, so the message is empty there.
	const { code, message } = await callRaw(
		service,
		form,
		ingestConversation,
		form === "Connect JSON" ? "{}" : body,
		KEY,
	);
	return [code, message];
}

function refused(form: Form, message: string): readonly unknown[] {
	return form === "webhook" ? [503, "5", JSON.stringify({ detail: message })] : [Code.Unavailable, message];
}

/** Begins a call over HTTP/2. */
function begin(session: ClientHttp2Session, path: string, fields: Readonly<Record<string, string>>) {
	const headers = { ":method": "POST", ":path": path, te: "trailers", "x-access-token": KEY, ...fields };
	return session.request(headers).on("error", () => undefined);
}

describe.each(FORMS)("%s", (form) => {
	test("a request beyond the maximum number is refused at once, and accepted after others have ended", async () => {
		await using service = await BoundedService.start(1_000_000, { ingest: { requests: 2, bytes: 1_000_000 } });
		const waiting = [send(service, "webhook", WAITING), send(service, "gRPC", WAITING)];
		await expect.poll(() => service.underWay.ingest).toEqual({ requests: 2, bytes: 2_000 });
		expect(await send(service, form, "x")).toEqual(refused(form, REQUESTS));
		expect(service.underWay.ingest).toEqual({ requests: 2, bytes: 2_000 });
		service.letGo();
		expect(await Promise.all(waiting)).toEqual([
			[200, null, "{}"],
			[undefined, "OK"],
		]);
		await expect.poll(() => service.underWay).toEqual(IDLE);
		expect((await send(service, form, "x"))[0]).toBe(form === "webhook" ? 200 : undefined);
	});

	test("a body that would exceed the limit in bytes is refused, while reads and probes are answered", async () => {
		await using service = await BoundedService.start(1_000);
		const waiting = send(service, "webhook", WAITING);
		await expect.poll(() => service.underWay.ingest).toEqual({ requests: 1, bytes: 1_000 });
		expect(await send(service, form, "xxxxx")).toEqual(refused(form, BYTES));
		const read = await fetch(`${service.http}${ANSWER}/10`, { headers: { "x-access-token": KEY } });
		expect([read.status, await read.text()]).toEqual([200, "x".repeat(10)]);
		expect((await fetch(`${service.http}/healthz`)).status).toBe(200);
		service.letGo();
		await waiting;
		await expect.poll(() => service.underWay).toEqual(IDLE);
	});

	test("a response that would exceed the limit in bytes is refused", async () => {
		await using service = await BoundedService.start(1_000);
		const ask = async (size: number): Promise<readonly unknown[]> => {
			if (form === "webhook") {
				const response = await fetch(`${service.http}${ANSWER}/${size}`, { headers: { "x-access-token": KEY } });
				return [response.status, response.headers.get("retry-after"), await response.text()];
			}
			const request = toBinary(
				GetConversationRequestSchema,
				create(GetConversationRequestSchema, { id: String(size) }),
			);
			const message = form === "Connect JSON" ? JSON.stringify({ id: String(size) }) : request;
			const answer = await callRaw(service, form, getConversation, message, KEY);
			return [answer.code, answer.message];
		};
		// A response that nobody reads; it does not fit into the buffers of the kernel.
		const unread = createConnection({ host: "127.0.0.1", port: Number(new URL(service.http).port) });
		unread.write(`GET ${ANSWER}/20000000 HTTP/1.1\r\nHost: x\r\nX-Access-Token: ${KEY}\r\n\r\n`);
		await expect.poll(() => service.underWay.read).toEqual({ requests: 1, bytes: 20_000_000 });
		expect(await ask(10_000)).toEqual(refused(form, BYTES));
		unread.destroy();
		await expect.poll(() => service.underWay).toEqual(IDLE);
		expect((await ask(10_000))[0]).toBe(form === "webhook" ? 200 : undefined);
	});
});

test.each([
	[
		"the webhook",
		WEBHOOK,
		{ "content-type": "application/json", "content-encoding": "gzip" },
		(bytes: Buffer) => bytes,
	],
	[
		"Connect",
		rpcPath(ingestConversation),
		{ "content-type": "application/proto", "content-encoding": "gzip" },
		(bytes: Buffer) => bytes,
	],
	[
		"gRPC-Web",
		rpcPath(ingestConversation),
		{ "content-type": "application/grpc-web+proto", "grpc-encoding": "gzip" },
		(bytes: Buffer) => framed(bytes, 1),
	],
	[
		"gRPC",
		rpcPath(ingestConversation),
		{ "content-type": "application/grpc", "grpc-encoding": "gzip" },
		(bytes: Buffer) => framed(bytes, 1),
	],
])("over %s a compressed body counts with its decompressed size", async (name, path, fields, form) => {
	await using service = await BoundedService.start(50_000);
	const waiting = send(service, "webhook", "w");
	await expect.poll(() => service.underWay.ingest.requests).toBe(1);
	const session = connect(name === "gRPC" ? `http://${service.grpc}` : service.http);
	const stream = begin(session, path, fields);
	let status: unknown;
	const keep = (given: Readonly<Record<string, unknown>>) => {
		status = given["grpc-status"] ?? given[":status"] ?? status;
	};
	let text = "";
	stream.setEncoding("latin1").on("data", (chunk: string) => {
		text += chunk;
	});
	stream.on("response", keep).on("trailers", keep);
	stream.end(form(gzipSync(Buffer.alloc(60_000))));
	await once(stream, "close");
	// gRPC-Web sends its trailers at the end of the body.
	const inBody = /grpc-status: ?(\d+)/.exec(text)?.[1];
	expect(String(inBody ?? status)).toBe(name.startsWith("gRPC") ? String(Code.Unavailable) : "503");
	session.destroy();
	service.letGo();
	await waiting;
	await expect.poll(() => service.underWay).toEqual(IDLE);
});
