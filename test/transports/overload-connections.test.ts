import { once } from "node:events";
import { connect } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
	ConversationService,
	GetConversationRequestSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { postWebhook, rpcPath, WEBHOOK } from "../support/clients.ts";
import { postBytes } from "../support/raw-http.ts";
import { framed } from "../support/raw-rpc.ts";
import { openSocket } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";
import { ANSWER, BoundedService } from "./bounded-service.ts";

const IDLE = { ingest: { requests: 0, bytes: 0 }, read: { requests: 0, bytes: 0 } };
const GET = rpcPath(ConversationService.method.getConversation);

const post = (body: string) => postBytes(WEBHOOK, { "X-Access-Token": KEY }, Buffer.from(body));
const get = (size: number) => `GET ${ANSWER}/${size} HTTP/1.1\r\nHost: x\r\nX-Access-Token: ${KEY}\r\n\r\n`;

test("all responses that a client leaves unread on one connection count as under way", async () => {
	const size = 20_000_000;
	await using service = await BoundedService.start(4 * size - 1);
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

/** Asks for a response over a connection that reads nothing. Returns a function that closes the connection. */
function askUnread(service: BoundedService, wire: string, size: number): () => void {
	if (wire === "HTTP/1.1") {
		const socket = openSocket(new URL(service.http).host);
		socket.write(get(size));
		return () => socket.destroy();
	}
	const session = connect(wire === "gRPC" ? `http://${service.grpc}` : service.http).on("error", () => undefined);
	const headers = { "x-access-token": KEY, te: "trailers" };
	const request = toBinary(GetConversationRequestSchema, create(GetConversationRequestSchema, { id: String(size) }));
	if (wire === "HTTP/2") session.request({ ...headers, ":path": `${ANSWER}/${size}` }).on("error", () => undefined);
	else {
		const type = { Connect: "application/proto", "gRPC-Web": "application/grpc-web+proto" }[wire];
		session
			.request({ ...headers, ":method": "POST", ":path": GET, "content-type": type ?? "application/grpc" })
			.on("error", () => undefined)
			.end(wire === "Connect" ? request : framed(request));
	}
	return () => session.destroy();
}

test.each(["HTTP/1.1", "HTTP/2", "Connect", "gRPC-Web", "gRPC"])(
	"over %s a response that the client does not read in time no longer counts, nor does one whose client leaves",
	async (wire) => {
		const size = 20_000_000;
		await using service = await BoundedService.start(5 * size, {}, { answerTime: 2_000 });
		await using patient = await BoundedService.start(5 * size);
		const [close, leave] = [askUnread(service, wire, size), askUnread(patient, wire, size)];
		for (const one of [service, patient]) await expect.poll(() => one.underWay.read.bytes).toBeGreaterThanOrEqual(size);
		leave();
		await expect.poll(() => patient.underWay).toEqual(IDLE);
		// The timeout of an idle connection is far longer, so it is `answerTime` that ends the response.
		await expect.poll(() => service.underWay).toEqual(IDLE);
		close();
	},
);
