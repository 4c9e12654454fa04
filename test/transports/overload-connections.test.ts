import { once } from "node:events";
import { connect } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import {
	ConversationService,
	GetConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { postWebhook, rpcPath, WEBHOOK } from "../support/clients.ts";
import { responseTo } from "../support/http2-lanes.ts";
import { postBytes, RawHttp } from "../support/raw-http.ts";
import { framed } from "../support/raw-rpc.ts";
import { openSocket } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";
import { ANSWER, BoundedService } from "./bounded-service.ts";

const IDLE = { ingest: { requests: 0, bytes: 0 }, read: { requests: 0, bytes: 0 } };
/** Limits that leave room for one ingest request. */
const ONE = { ingest: { requests: 1, bytes: 1_000_000 } };
const INGEST = rpcPath(ConversationIngestService.method.ingestConversation);
const GET = rpcPath(ConversationService.method.getConversation);

const post = (body: string) => postBytes(WEBHOOK, { "X-Access-Token": KEY }, Buffer.from(body));
const get = (size: number) => `GET ${ANSWER}/${size} HTTP/1.1\r\nHost: x\r\nX-Access-Token: ${KEY}\r\n\r\n`;

describe("after a refusal a connection is left unread until there is room", () => {
	/** Makes requests on other connections. A request that was sent before them would be answered when they are done. */
	const requestElsewhere = async (service: BoundedService): Promise<void> => {
		for (let round = 0; round < 20; round++)
			expect((await fetch(`${service.http}${ANSWER}/1`, { headers: { "x-access-token": KEY } })).status).toBe(200);
	};

	test("over HTTP/1.1", async () => {
		await using service = await BoundedService.start(1_000_000, ONE);
		const waiting = postWebhook(service, KEY, "w");
		await expect.poll(() => service.underWay.ingest.requests).toBe(1);
		using client = await new RawHttp(service).connected();
		await client.write(post("x"));
		const { status, headers } = await client.response();
		expect([status, headers.get("retry-after"), headers.get("connection")]).toEqual([503, "5", "keep-alive"]);
		await client.write(post("x"));
		await requestElsewhere(service);
		service.letGo();
		// This request would have been refused if it had been read before there was room.
		expect((await client.response()).status).toBe(200);
		expect((await waiting).status).toBe(200);
	});

	test.each([
		["HTTP/2", WEBHOOK, "application/json", [":status", "503", "200"]],
		["Connect", INGEST, "application/proto", [":status", "503", "200"]],
		["gRPC", INGEST, "application/grpc", ["grpc-status", "14", "0"]],
	] as const)("over %s", async (wire, path, type, [field, refused, success]) => {
		await using service = await BoundedService.start(1_000_000, ONE);
		const waiting = postWebhook(service, KEY, "w");
		await expect.poll(() => service.underWay.ingest.requests).toBe(1);
		const session = connect(wire === "gRPC" ? `http://${service.grpc}` : service.http);
		const headers = { ":method": "POST", ":path": path, "content-type": type, te: "trailers", "x-access-token": KEY };
		const message = Buffer.from("x");
		const send = async (): Promise<string> => {
			const answered = await responseTo(session, headers, wire === "gRPC" ? framed(message) : message);
			return String(answered.get(field));
		};
		expect(await send()).toBe(refused);
		const second = send();
		await requestElsewhere(service);
		service.letGo();
		// This request would have been refused if it had been read before there was room.
		expect(await second).toBe(success);
		expect((await waiting).status).toBe(200);
		session.destroy();
	});
});

test("the refusal of a pipelined request closes the connection after the responses before it", async () => {
	await using service = await BoundedService.start(1_000_000, { ingest: { requests: 1, bytes: 1_000_000 } });
	using client = await new RawHttp(service).connected();
	await client.write(Buffer.concat([post("w"), post("x"), Buffer.from(get(5_000))]));
	await expect.poll(() => service.underWay.ingest).toEqual({ requests: 1, bytes: 1 });
	// The read behind the refused request is not processed.
	expect(service.underWay.read).toEqual(IDLE.read);
	service.letGo();
	expect((await client.response()).status).toBe(200);
	const refused = await client.response();
	expect([refused.status, refused.headers.get("connection")]).toEqual([503, "close"]);
	await client.closed();
	await expect(client.response()).rejects.toThrow('the connection is closed after ""');
	await expect.poll(() => service.underWay).toEqual(IDLE);
	expect(service.ends).toEqual(["there"]);
});

test("all responses that a client leaves unread on one connection count as under way", async () => {
	const size = 20_000_000;
	await using service = await BoundedService.start(5 * size);
	const socket = openSocket(new URL(service.http).host);
	await once(socket, "connect");
	socket.write(get(size).repeat(3));
	await expect.poll(() => service.underWay.read).toEqual({ requests: 3, bytes: 3 * size });
	const other = await fetch(`${service.http}${ANSWER}/${size}`, { headers: { "x-access-token": KEY } });
	expect(other.status).toBe(503);
	socket.destroy();
	await expect.poll(() => service.underWay).toEqual(IDLE);
});

test.each(["HTTP/1.1", "HTTP/2"])("over %s a handler's signal aborts when its sender disconnects", async (version) => {
	await using service = await BoundedService.start(1_000_000);
	let leave: () => void;
	if (version === "HTTP/1.1") {
		const socket = openSocket(new URL(service.http).host);
		socket.write(post("w"));
		leave = () => socket.resetAndDestroy();
	} else {
		const session = connect(service.http).on("error", () => undefined);
		const headers = { ":method": "POST", ":path": WEBHOOK, "x-access-token": KEY };
		session
			.request(headers)
			.on("error", () => undefined)
			.end("w");
		leave = () => session.destroy();
	}
	const waiting = postWebhook(service, KEY, "w");
	await expect.poll(() => service.underWay.ingest).toEqual({ requests: 2, bytes: 2 });
	leave();
	// Only the connection of the other sender is left.
	await expect.poll(() => service.connections).toBe(1);
	service.letGo();
	expect((await waiting).status).toBe(200);
	await expect.poll(() => service.underWay).toEqual(IDLE);
	expect(service.ends.toSorted()).toEqual(["gone", "there"]);
});

test.each(["HTTP/1.1", "HTTP/2", "Connect", "gRPC-Web", "gRPC"])(
	"over %s a response that the client does not read in time no longer counts",
	async (wire) => {
		const size = 20_000_000;
		await using service = await BoundedService.start(5 * size, {}, { answerTime: 2_000 });
		let close: () => void;
		if (wire === "HTTP/1.1") {
			const socket = openSocket(new URL(service.http).host);
			socket.write(get(size));
			close = () => socket.destroy();
		} else {
			const session = connect(wire === "gRPC" ? `http://${service.grpc}` : service.http);
			const headers = { "x-access-token": KEY, te: "trailers" };
			const request = toBinary(
				GetConversationRequestSchema,
				create(GetConversationRequestSchema, { id: String(size) }),
			);
			if (wire === "HTTP/2") session.request({ ...headers, ":path": `${ANSWER}/${size}` }).on("error", () => undefined);
			else {
				const type = { Connect: "application/proto", "gRPC-Web": "application/grpc-web+proto" }[wire];
				session
					.request({ ...headers, ":method": "POST", ":path": GET, "content-type": type ?? "application/grpc" })
					.on("error", () => undefined)
					.end(wire === "Connect" ? request : framed(request));
			}
			close = () => session.destroy();
		}
		await expect.poll(() => service.underWay.read.bytes).toBeGreaterThanOrEqual(size);
		// The timeout of an idle connection is far longer, so it is `answerTime` that ends the response.
		await expect.poll(() => service.underWay).toEqual(IDLE);
		close();
	},
);
