import { once } from "node:events";
import { type ClientHttp2Session, connect, constants } from "node:http2";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { rpcPath, WEBHOOK } from "../support/clients.ts";
import { postBytes } from "../support/raw-http.ts";
import { framed } from "../support/raw-rpc.ts";
import { openSocket } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";
import { BoundedService, MAX_BODY } from "./bounded-service.ts";

const NOTHING = { requests: 0, bytes: 0 };
const IDLE = { ingest: NOTHING, read: NOTHING };
const INGEST = rpcPath(ConversationIngestService.method.ingestConversation);
/** Wire protocols over HTTP/2, each with the path and the media type of a request. */
const HTTP2 = {
	"HTTP/2": [WEBHOOK, "application/json"],
	Connect: [INGEST, "application/proto"],
	"gRPC-Web": [INGEST, "application/grpc-web+proto"],
	gRPC: [INGEST, "application/grpc"],
} as const;
const WIRES = ["HTTP/1.1", "HTTP/2", "Connect", "gRPC-Web", "gRPC"] as const;
/** What the client aborts: the request alone, the connection with all its requests, or neither. */
const ENDS = ["request", "connection", "neither"] as const;

/** A request that its client aborts at some point. */
const aborted = fc.record({
	wire: fc.constantFrom(...WIRES),
	/** First byte of the body: the handler accepts `x` at once, refuses `r`, and waits with `w`. */
	kind: fc.constantFrom("x", "r", "w"),
	/** Size of the body, which may be too large. */
	size: fc.oneof(fc.integer({ min: 1, max: 60_000 }), fc.constant(MAX_BODY + 1)),
	key: fc.constantFrom(KEY, KEY, KEY, "a-wrong-key-of-some-length"),
	/** Number of times that an HTTP/1.1 connection sends the request. */
	pipelined: fc.constantFrom(1, 3),
	/** Fraction of its bytes that is sent. */
	sent: fc.double({ min: 0, max: 1, noNaN: true }),
	/** Event loop turns after which it is aborted. */
	turns: fc.integer({ min: 0, max: 30 }),
	end: fc.constantFrom(...ENDS),
});
type Aborted = typeof aborted extends fc.Arbitrary<infer Value> ? Value : never;

/** Makes requests and aborts them. Returns a function that closes all connections, also those that were left open. */
async function make(service: BoundedService, requests: readonly Aborted[]): Promise<() => void> {
	const sessions = new Map<string, ClientHttp2Session>();
	const sessionOf = (wire: keyof typeof HTTP2): ClientHttp2Session => {
		const present = sessions.get(wire);
		if (present !== undefined && !present.destroyed) return present;
		const session = connect(wire === "gRPC" ? `http://${service.grpc}` : service.http);
		sessions.set(
			wire,
			session.on("error", () => undefined),
		);
		return session;
	};
	const sockets: { destroy(): unknown }[] = [];
	const one = async ({ wire, kind, size, key, pipelined, sent, turns, end }: Aborted): Promise<void> => {
		const body = Buffer.from(kind.repeat(size));
		if (wire === "HTTP/1.1") {
			const request = postBytes(WEBHOOK, { "X-Access-Token": key }, body);
			const bytes = Buffer.concat(Array.from({ length: pipelined }, () => request));
			const socket = openSocket(new URL(service.http).host);
			sockets.push(socket);
			await once(socket, "connect");
			socket.resume().write(bytes.subarray(0, Math.round(sent * bytes.length)));
			await waitTurns(turns);
			if (end === "connection") socket.resetAndDestroy();
			if (end === "request") socket.end();
			return;
		}
		const [path, type] = HTTP2[wire];
		const bytes = wire.startsWith("gRPC") ? framed(body) : body;
		const session = sessionOf(wire);
		const headers = { ":method": "POST", ":path": path, "content-type": type, te: "trailers", "x-access-token": key };
		const stream = session.request(headers).on("error", () => undefined);
		const part = bytes.subarray(0, Math.round(sent * bytes.length));
		if (part.length === bytes.length) stream.resume().end(part);
		else stream.resume().write(part);
		await waitTurns(turns);
		if (end === "request") stream.close(constants.NGHTTP2_CANCEL);
		if (end === "connection") session.destroy();
	};
	await Promise.all(requests.map(one));
	return () => {
		for (const connection of [...sockets, ...sessions.values()]) connection.destroy();
	};
}

async function waitTurns(turns: number): Promise<void> {
	for (let turn = 0; turn < turns; turn++) await new Promise((next) => setImmediate(next));
}

test("requests that were aborted at any point no longer count as under way", { timeout: 120_000 }, async () => {
	await fc.assert(
		fc.asyncProperty(fc.array(aborted, { minLength: 1, maxLength: 40 }), fc.boolean(), async (requests, isTight) => {
			const bounds = isTight ? { ingest: { requests: 4, bytes: 100_000 } } : {};
			await using service = await BoundedService.start(10_000_000, bounds);
			const close = await make(service, requests);
			close();
			service.letGo();
			await expect.poll(() => service.underWay).toEqual(IDLE);
			await expect.poll(() => service.connections).toBe(0);
		}),
		{ numRuns: 50, endOnFailure: true },
	);
});
