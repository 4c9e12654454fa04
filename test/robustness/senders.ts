import { setTimeout as delay } from "node:timers/promises";
import type { DescMethod } from "@bufbuild/protobuf";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type Endpoints, postWebhook } from "../support/clients.ts";
import { Sessions } from "../support/http2-lanes.ts";
import { FRAME, framesOf } from "../support/raw-http2.ts";
import { callOver, callRaw, codeName, type RawForm } from "../support/raw-rpc.ts";
import { openSocket, responseTo } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";

/** Maximum wait for the response on a mutated HTTP/2 connection, in milliseconds. */
const RESPONSE_TIMEOUT = 300;

const ingest = ConversationIngestService.method.ingestConversation;

/** Sends inputs and returns the outcomes that a report counts. */
export interface Sender extends Disposable {
	send(input: Buffer): Promise<string>;
}

/** Posts inputs to the webhook. */
export function byWebhook(service: Endpoints): Sender {
	return http((input) => postWebhook(service, KEY, input));
}

/** Sends each input in its own request. The outcome is the status. */
export function http(request: (input: Buffer) => Promise<Response>): Sender {
	return sender(async (input) => {
		const response = await request(input);
		await response.text();
		return String(response.status);
	});
}

/** Sends inputs as messages of IngestConversation. */
export function rpc(service: Endpoints, form: Exclude<RawForm, "gRPC">): Sender {
	return sender(async (input) => codeName((await callRaw(service, form, ingest, input, KEY)).code));
}

/** Returns a sender that holds nothing. */
function sender(send: Sender["send"]): Sender {
	return { send, [Symbol.dispose]: () => undefined };
}

/** Sends the bytes of a connection and ends the client's side. The outcome is the first status, or "closed". */
export function http1Connection(address: string): Sender {
	return sender(async (input) => /^HTTP\/1\.1 (\d+)/.exec(await responseTo(address, input, true))?.[1] ?? "closed");
}

/**
 * Sends the bytes of a connection. The outcome is "answered" after a HEADERS frame, "reset" after a RST_STREAM or
 * GOAWAY frame, and otherwise "closed". A server without anything to send waits for more bytes, so the client ends its
 * side.
 */
export function http2Connection(address: string): Sender {
	return sender(async (input) => {
		const socket = openSocket(address);
		let received = Buffer.alloc(0);
		const came = (type: number) => framesOf(received, type).length > 0;
		const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
		const framed = new Promise<void>((resolve) => {
			socket.on("data", (bytes: Buffer) => {
				received = Buffer.concat([received, bytes]);
				if (came(FRAME.headers) || came(FRAME.rstStream) || came(FRAME.goaway)) resolve();
			});
		});
		socket.write(input);
		await Promise.race([closed, framed, delay(RESPONSE_TIMEOUT, undefined, { ref: false })]);
		socket.end();
		await closed;
		if (came(FRAME.headers)) return "answered";
		return came(FRAME.rstStream) || came(FRAME.goaway) ? "reset" : "closed";
	});
}

/** Makes a gRPC call for each input. The outcome is the name of the code, or "closed". */
export function grpc({ grpc: address }: Endpoints, method: DescMethod, bodyOf: (input: Buffer) => Uint8Array): Sender {
	const sessions = new Sessions(address);
	return {
		send: async (input) => {
			const answer = await callOver(sessions.next(), method, bodyOf(input), { "x-access-token": KEY });
			return answer === undefined ? "closed" : codeName(answer.code);
		},
		[Symbol.dispose]: () => sessions.close(),
	};
}

/** Requests inputs as paths and queries below the list of conversations. */
export function byQuery(service: Endpoints): Sender {
	return http((input) => fetch(`${service.http}/api/v1/conversations${input}`, { headers: { "X-Access-Token": KEY } }));
}
