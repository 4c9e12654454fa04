import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Client, credentials, Metadata, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { SERVICES } from "../../../src/rpc/services.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const INGEST = "/conversations.v1.ConversationIngestService/IngestConversation";
const LIMIT = 100_000;

let service: TestService;
let client: Client;

beforeAll(async () => {
	service = await startTestService({ MAX_BODY_BYTES: String(LIMIT) });
	client = new Client(service.grpc, credentials.createInsecure());
});

afterAll(async () => {
	client.close();
	await service[Symbol.asyncDispose]();
});

/** Makes a call with these bytes as the message. Returns its status. */
function statusFor(path: string, bytes: Uint8Array, key = KEY): Promise<number> {
	const metadata = new Metadata();
	metadata.set("x-access-token", key);
	return new Promise((resolve) => {
		const identity = (buffer: Buffer) => buffer;
		client.makeUnaryRequest(path, identity, identity, Buffer.from(bytes), metadata, (error) => {
			resolve(error === null ? status.OK : error.code);
		});
	});
}

test.each([
	// grpc-js itself answers INTERNAL.
	["/grpc.health.v1.Health/Check", status.INTERNAL],
	["/grpc.health.v1.Health/Watch", status.INTERNAL],
	["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", status.INTERNAL],
	["/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", status.INTERNAL],
])("bytes that are not a message are refused, and logged: %s", async (path, code) => {
	const before = service.log().length;
	// Field 1 with the wire type 7, which does not exist.
	expect(await statusFor(path, Buffer.from([0x0f]))).toBe(code);
	const lines = service.log().slice(before).trim().split("\n");
	expect(lines.map((line) => JSON.parse(line))).toMatchObject([
		{ event: "request_refused", operation: path, kind: "invalid_argument" },
	]);
});

test("a wrong key is refused before the message is read, even a malformed or too large one", async () => {
	expect(await statusFor(INGEST, Buffer.from([0xff]), "wrong-key")).toBe(status.UNAUTHENTICATED);
	expect(await statusFor(INGEST, Buffer.alloc(LIMIT * 2), "wrong-key")).toBe(status.UNAUTHENTICATED);
});

test("a message that is nested deeper than protobuf readers allow is refused as INVALID_ARGUMENT", async () => {
	let bytes = new Uint8Array();
	// google.protobuf.Value { list_value = 6 } of google.protobuf.ListValue { values = 1 }, over and over.
	for (let level = 0; level < 200; level++) {
		const tag = level % 2 === 0 ? 0x32 : 0x0a;
		bytes = new Uint8Array([tag, ...varint(bytes.length), ...bytes]);
	}
	const entry = [0x0a, 1, 0x2f, 0x12, ...varint(bytes.length), ...bytes];
	const conversation = [0xa2, 0x06, ...varint(entry.length), ...entry];
	expect(await statusFor(INGEST, new Uint8Array([0x0a, ...varint(conversation.length), ...conversation]))).toBe(
		status.INVALID_ARGUMENT,
	);
});

function varint(value: number): number[] {
	return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >> 7)];
}

describe("health and reflection", () => {
	test("an unknown service is not found", async () => {
		const question = Buffer.from([0x0a, 1, 0x78]);
		expect(await statusFor("/grpc.health.v1.Health/Check", question)).toBe(status.NOT_FOUND);
	});

	test.each(["v1", "v1alpha"])(
		"reflection %s lists the services and returns schemas without unresolved types",
		async (version) => {
			const answers = await reflect(version, [
				{ list_services: "" },
				{ file_containing_symbol: "conversations.v1.ConversationInfo" },
				{ file_containing_symbol: "grpc.health.v1.Health" },
			]);
			const names = answers[0]?.list_services_response?.service.map(({ name }) => name);
			expect(names).toEqual(
				expect.arrayContaining(["grpc.health.v1.Health", ...SERVICES.map(({ typeName }) => typeName)]),
			);
			// Clients do the same with a schema. It fails if the name of a type cannot be resolved.
			const file = (answers[2]?.file_descriptor_response?.file_descriptor_proto ?? []).map((bytes) =>
				fromBinary(FileDescriptorProtoSchema, bytes),
			);
			const health = createFileRegistry(create(FileDescriptorSetSchema, { file })).getService("grpc.health.v1.Health");
			expect(health?.methods.map(({ name }) => name)).toEqual(["Check", "Watch", "List"]);
			const files = answers[1]?.file_descriptor_response?.file_descriptor_proto ?? [];
			const messages = files.flatMap((bytes) =>
				fromBinary(FileDescriptorProtoSchema, bytes).messageType.map(({ name }) => name),
			);
			expect(messages).toEqual(expect.arrayContaining(["ConversationInfo", "ACPAgent", "EnsembleSecurityAnalyzer"]));
		},
	);
});

const reflectionAnswer = z.object({
	list_services_response: z.object({ service: z.array(z.object({ name: z.string() })) }).optional(),
	file_descriptor_response: z.object({ file_descriptor_proto: z.array(z.instanceof(Buffer)) }).optional(),
});

/** Asks the reflection service with a client made from its own .proto file. */
async function reflect(version: string, questions: readonly object[]): Promise<z.infer<typeof reflectionAnswer>[]> {
	const proto = import.meta.resolve(`@grpc/reflection/build/proto/grpc/reflection/${version}/reflection.proto`);
	const definition = loadSync(new URL(proto).pathname, { keepCase: true });
	const reflection = definition[`grpc.reflection.${version}.ServerReflection`];
	const info = reflection === undefined || "format" in reflection ? undefined : reflection.ServerReflectionInfo;
	if (info === undefined) throw new Error("no reflection service");
	const call = client.makeBidiStreamRequest(info.path, info.requestSerialize, info.responseDeserialize);
	for (const question of questions) call.write(question);
	call.end();
	const answers = [];
	for await (const answer of call) answers.push(reflectionAnswer.parse(answer));
	return answers;
}
