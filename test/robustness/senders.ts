import { setTimeout as delay } from "node:timers/promises";
import type { DescMethod } from "@bufbuild/protobuf";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type Endpoints, postWebhook } from "../support/clients.ts";
import { Sessions } from "../support/http2-lanes.ts";
import { FRAME, framesOf } from "../support/raw-http2.ts";
import { callOver, callRaw, codeName, type RawForm } from "../support/raw-rpc.ts";
import { answerTo, openSocket } from "../support/raw-socket.ts";
import { KEY } from "../support/service.ts";

/** How long an answer to a changed connection of HTTP/2 is waited for, in milliseconds. */
const LISTENING = 300;

const ingest = ConversationIngestService.method.ingestConversation;

/** Sends inputs, and gives the answers as a report counts them. */
export interface Sender extends Disposable {
	send(input: Buffer): Promise<string>;
}

/** Posts inputs to the webhook. */
export function byWebhook(service: Endpoints): Sender {
	return http((input) => postWebhook(service, KEY, input));
}

/** Sends inputs in requests of their own; the answer is the status. */
export function http(request: (input: Buffer) => Promise<Response>): Sender {
	return {
		send: async (input) => {
			const response = await request(input);
			await response.text();
			return String(response.status);
		},
		[Symbol.dispose]: () => undefined,
	};
}

/** Sends inputs as messages of IngestConversation. */
export function rpc(service: Endpoints, form: Exclude<RawForm, "gRPC">): Sender {
	return {
		send: async (input) => codeName((await callRaw(service, form, ingest, input, KEY)).code),
		[Symbol.dispose]: () => undefined,
	};
}

/** Sends the bytes of a connection and ends this side; the answer is the first status, or "closed". */
export function http1Connection(address: string): Sender {
	return {
		send: async (input) => /^HTTP\/1\.1 (\d+)/.exec(await answerTo(address, input, true))?.[1] ?? "closed",
		[Symbol.dispose]: () => undefined,
	};
}

/**
 * Sends the bytes of a connection. The answer is "answered" when a header came, "reset" when the stream or connection was
 * ended by a frame, and else "closed". A server that has nothing to say waits for more, and is told that no more comes.
 */
export function http2Connection(address: string): Sender {
	return {
		send: async (input) => {
			const socket = openSocket(address);
			let received = Buffer.alloc(0);
			const came = (type: number) => framesOf(received, type).length > 0;
			const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
			const told = new Promise<void>((resolve) => {
				socket.on("data", (bytes: Buffer) => {
					received = Buffer.concat([received, bytes]);
					if (came(FRAME.headers) || came(FRAME.rstStream) || came(FRAME.goaway)) resolve();
				});
			});
			socket.write(input);
			await Promise.race([closed, told, delay(LISTENING, undefined, { ref: false })]);
			socket.end();
			await closed;
			if (came(FRAME.headers)) return "answered";
			return came(FRAME.rstStream) || came(FRAME.goaway) ? "reset" : "closed";
		},
		[Symbol.dispose]: () => undefined,
	};
}

/** Makes a gRPC call for each input; the answer is the name of the code, or "closed". */
export function grpc(
	{ grpc: address }: Endpoints,
	methodOf: (input: Buffer) => DescMethod,
	bodyOf: (input: Buffer) => Uint8Array,
): Sender {
	const sessions = new Sessions(address);
	return {
		send: async (input) => {
			const answer = await callOver(sessions.next(), methodOf(input), bodyOf(input), { "x-access-token": KEY });
			return answer === undefined ? "closed" : codeName(answer.code);
		},
		[Symbol.dispose]: () => sessions.close(),
	};
}

/** Sends inputs as paths and queries below the list of conversations. */
export function byQuery(service: Endpoints): Sender {
	return http((input) => fetch(`${service.http}/api/v1/conversations${input}`, { headers: { "X-Access-Token": KEY } }));
}
