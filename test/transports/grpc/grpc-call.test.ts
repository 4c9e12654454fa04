import { promisify } from "node:util";
import { create, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Server, ServerCredentials, type ServerWritableStream } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { HeartbeatSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { Gate } from "../../../src/access/gate.ts";
import { Keyring } from "../../../src/access/keys.ts";
import { Admission } from "../../../src/transports/admission.ts";
import { LIMITS } from "../../../src/transports/connections.ts";
import { GrpcCall, GrpcStreams, MessageBatch } from "../../../src/transports/grpc/grpc-call.ts";
import { lengthPrefixed } from "../../../src/transports/stream-messages.ts";
import { unobservedRequests } from "../../support/requests.ts";

type Heartbeat = MessageShape<typeof HeartbeatSchema>;

/** A method that needs no key. */
const PATH = "/grpc.health.v1.Health/Stream";
const asBuffer = (bytes: Uint8Array) => Buffer.from(bytes);
const encode = (message: Heartbeat) => asBuffer(toBinary(HeartbeatSchema, message));
const decode = (bytes: Buffer) => fromBinary(HeartbeatSchema, bytes);
const heartbeat = (latestSequence: bigint) => encode(create(HeartbeatSchema, { latestSequence }));
const batch = (...sequences: bigint[]) => new MessageBatch(lengthPrefixed(sequences.map(heartbeat)));

/** Returns the sequences that a client receives from a handler that makes the writes one after another. */
async function received(writes: readonly (Uint8Array | MessageBatch)[]) {
	const context = {
		gate: new Gate(new Keyring([]), []),
		admission: new Admission(1024),
		isStream: new Map(),
		requests: unobservedRequests(),
		limits: LIMITS,
		maxBodyBytes: 1024,
	};
	using streams = new GrpcStreams(context);
	const server = new Server({
		interceptors: [({ path }, next) => new GrpcCall(next, path, streams.current(), context)],
	});
	const definition = {
		path: PATH,
		requestStream: false,
		responseStream: true,
		requestSerialize: encode,
		requestDeserialize: decode,
		responseSerialize: asBuffer,
		responseDeserialize: decode,
	} as const;
	server.addService(
		{ stream: definition },
		{
			stream: async (call: ServerWritableStream<Heartbeat, Uint8Array | MessageBatch>) => {
				for (const message of writes) await new Promise<void>((resolve) => call.write(message, () => resolve()));
				call.end();
			},
		},
	);
	const port = await promisify(server.bindAsync.bind(server))("127.0.0.1:0", ServerCredentials.createInsecure());
	streams.follow(port);
	const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
	const sequences: bigint[] = [];
	for await (const message of client.makeServerStreamRequest(PATH, encode, decode, create(HeartbeatSchema)))
		sequences.push(message.latestSequence);
	client.close();
	await promisify(server.tryShutdown.bind(server))();
	return sequences;
}

test("batches and single responses arrive in order", async () => {
	const writes = [batch(1n, 2n, 3n), heartbeat(4n), batch(5n), batch(6n, 2n ** 62n)];
	expect(await received(writes)).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 2n ** 62n]);
});

test("a length-prefixed message consists of a zero, four bytes of length, and the message", () => {
	const messages = [Uint8Array.of(7, 8), Uint8Array.of(), new Uint8Array(258).fill(9)];
	const [bytes = new Uint8Array(), ...others] = lengthPrefixed(messages);
	expect(others).toEqual([]);
	expect([...bytes.subarray(0, 20)]).toEqual([0, 0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9, 9, 9]);
	expect(bytes.length).toBe(3 * 5 + 2 + 258);
});

test("a large message is a chunk of its own and is not copied", () => {
	const large = new Uint8Array(16 * 1024);
	const chunks = lengthPrefixed([Uint8Array.of(7), large, Uint8Array.of(9)]);
	expect(chunks.map((chunk) => (chunk === large ? "large" : [...chunk]))).toEqual([
		[0, 0, 0, 0, 1, 7, 0, 0, 0, 64, 0],
		"large",
		[0, 0, 0, 0, 1, 9],
	]);
});
