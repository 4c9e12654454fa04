import { fromBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type ServiceDefinition } from "@grpc/grpc-js";
import { z } from "zod";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { announce } from "../processes/parent.ts";

/**
 * Lower bound of the cost of a grpc-js server. `Decode` decodes the ingest request and returns a few bytes. `Answer`
 * ignores its request and returns the bytes that the parent process has sent.
 */

const FEW_BYTES = Buffer.from([0x08, 0x01]);
const messageFromParent = z.object({ request: z.object({ answer: z.instanceof(Uint8Array) }) });
let answer = FEW_BYTES;

const shared = {
	requestStream: false,
	responseStream: false,
	requestSerialize: (bytes: Buffer) => bytes,
	responseSerialize: (bytes: Buffer) => bytes,
	responseDeserialize: (bytes: Buffer) => bytes,
} as const;
const definition: ServiceDefinition = {
	decode: {
		...shared,
		path: "/yardstick/Decode",
		requestDeserialize: (bytes: Buffer) => fromBinary(IngestConversationRequestSchema, bytes),
	},
	answer: { ...shared, path: "/yardstick/Answer", requestDeserialize: (bytes: Buffer) => bytes },
};

const server = new Server({ "grpc.max_receive_message_length": 16 * 2 ** 20 });
server.addService(definition, {
	decode: (_call: unknown, callback: (error: null, bytes: Buffer) => void) => callback(null, FEW_BYTES),
	answer: (_call: unknown, callback: (error: null, bytes: Buffer) => void) => callback(null, answer),
});
server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
	if (error !== null) throw error;
	announce({ port });
});
process.on("message", (data) => {
	answer = Buffer.from(messageFromParent.parse(data).request.answer);
	announce({});
});
process.on("disconnect", () => process.exit(0));
