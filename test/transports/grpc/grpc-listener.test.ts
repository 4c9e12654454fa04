import { create, createFileRegistry, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Client, credentials, type ServiceError as GrpcError, Metadata, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import {
	ConversationIngestService,
	IngestConversationRequestSchema,
} from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { UpdateChange } from "../../../gen/conversations/v1/update_pb.js";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { SERVICES } from "../../../src/rpc/services.ts";
import { GrpcClient, GrpcFailure } from "../../support/clients.ts";
import { record } from "../../support/fixtures.ts";
import { KEY, startTestService, type TestService } from "../../support/service.ts";

const format = new RecordFormat();
const method = ConversationIngestService.method.ingestConversation;
const INGEST = "/conversations.v1.ConversationIngestService/IngestConversation";
const LIMIT = 100_000;

let service: TestService;
let client: Client;

beforeAll(async () => {
	service = await startTestService({
		MAX_BODY_BYTES: String(LIMIT),
		ACCESS_KEYS: `test:${KEY},reader:key-of-the-reader:read`,
	});
	client = new Client(service.grpc, credentials.createInsecure());
});

afterAll(async () => {
	client.close();
	await service[Symbol.asyncDispose]();
});

function request() {
	return create(IngestConversationRequestSchema, { conversation: format.fromJson(record()) });
}

/** Makes a call with these bytes as the message. Returns its status. */
function statusFor(path: string, bytes: Uint8Array, ...keys: readonly string[]): Promise<number> {
	const metadata = new Metadata();
	for (const key of keys.length === 0 ? [KEY] : keys) metadata.add("x-access-token", key);
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
	[INGEST, status.INVALID_ARGUMENT],
])("bytes that are not a message are refused, and logged: %s", async (path, code) => {
	const before = service.log().length;
	// Field 1 with the wire type 7, which does not exist.
	expect(await statusFor(path, Buffer.from([0x0f]))).toBe(code);
	const lines = service.log().slice(before).trim().split("\n");
	expect(lines.map((line) => JSON.parse(line))).toMatchObject([
		{ event: "request_refused", operation: path, kind: "invalid_argument" },
	]);
});

describe("a generated grpc-js client", () => {
	test("receives the result of an update and of its repetition", async () => {
		using grpc = new GrpcClient(service, KEY);
		const sent = request();
		const first = await grpc.call(method, sent);
		expect(first).toMatchObject({ success: true, repetition: false, change: UpdateChange.STARTED, current: true });
		expect(await grpc.call(method, sent)).toEqual({ ...first, repetition: true });
	});

	test("receives the field that breaks a rule, and the rule", async () => {
		using grpc = new GrpcClient(service, KEY);
		const sent = request();
		delete sent.conversation?.workspace;
		const failure = await grpc.call(method, sent).catch((error: unknown) => error);
		if (!(failure instanceof GrpcFailure)) throw new Error("the record was accepted");
		expect(failure.code).toBe(status.INVALID_ARGUMENT);
		expect(failure.message).toBe("1 rule is broken (first: workspace: Field required)");
		expect(failure.badRequest?.fieldViolations).toMatchObject([
			{ field: "conversation.workspace", description: "Field required", reason: "missing" },
		]);
	});

	test("receives a violation if the request has no conversation", async () => {
		using grpc = new GrpcClient(service, KEY);
		const failure = await grpc.call(method, create(IngestConversationRequestSchema)).catch((error: unknown) => error);
		if (!(failure instanceof GrpcFailure)) throw new Error("the record was accepted");
		expect(failure.badRequest?.fieldViolations).toMatchObject([{ field: "conversation", reason: "missing" }]);
	});
});

describe("the gate", () => {
	const methods = SERVICES.flatMap((desc) => desc.methods.map((rpc) => `/${desc.typeName}/${rpc.name}`));

	test.each(methods)("refuses %s without a known key, and with two different ones", async (path) => {
		for (const keys of [[""], ["wrong-key"], [KEY, "wrong-key"]])
			expect(await statusFor(path, new Uint8Array(), ...keys), `${keys}`).toBe(status.UNAUTHENTICATED);
	});

	test("takes the same key in two fields for one", async () => {
		const bytes = toBinary(IngestConversationRequestSchema, request());
		expect(await statusFor(INGEST, bytes, KEY, KEY)).toBe(status.OK);
	});

	test("requires the scope of the method", async () => {
		const bytes = toBinary(IngestConversationRequestSchema, request());
		expect(await statusFor(INGEST, bytes, "key-of-the-reader")).toBe(status.PERMISSION_DENIED);
		expect(await statusFor(INGEST, bytes)).toBe(status.OK);
	});

	test("refuses a wrong key before it reads the message, even a malformed or too large one", async () => {
		expect(await statusFor(INGEST, Buffer.from([0xff]), "wrong-key")).toBe(status.UNAUTHENTICATED);
		expect(await statusFor(INGEST, Buffer.alloc(LIMIT * 2), "wrong-key")).toBe(status.UNAUTHENTICATED);
	});

	test("refuses an unknown method as UNIMPLEMENTED", async () => {
		expect(await statusFor("/conversations.v1.Nothing/Get", new Uint8Array())).toBe(status.UNIMPLEMENTED);
	});
});

describe("a message", () => {
	test("that cannot be decoded is refused as INVALID_ARGUMENT", async () => {
		expect(await statusFor(INGEST, Buffer.from([0xff, 0xff]))).toBe(status.INVALID_ARGUMENT);
	});

	test("that is nested deeper than protobuf readers allow is refused as INVALID_ARGUMENT", async () => {
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

	test("that is larger than the limit is refused as RESOURCE_EXHAUSTED", async () => {
		expect(await statusFor(INGEST, Buffer.alloc(LIMIT + 1))).toBe(status.RESOURCE_EXHAUSTED);
	});
});

function varint(value: number): number[] {
	return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >> 7)];
}

describe("health and reflection", () => {
	const health = "/grpc.health.v1.Health/Check";

	test.each(["", ...SERVICES.map(({ typeName }) => typeName)])("%j is serving, and no key is needed", async (name) => {
		const { payload } = await unary(health, [0x0a, name.length, ...Buffer.from(name)], new Metadata());
		expect([...payload]).toEqual([0x08, 1]);
	});

	test("an unknown service is not found", async () => {
		await expect(unary(health, [0x0a, 1, 0x78], new Metadata())).rejects.toMatchObject({ code: status.NOT_FOUND });
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

function unary(path: string, bytes: readonly number[], metadata: Metadata): Promise<{ payload: Buffer }> {
	return new Promise((resolve, reject) => {
		const identity = (buffer: Buffer) => buffer;
		client.makeUnaryRequest(
			path,
			identity,
			identity,
			Buffer.from(bytes),
			metadata,
			(error: GrpcError | null, payload) => {
				if (error !== null) reject(error);
				else resolve({ payload: payload ?? Buffer.alloc(0) });
			},
		);
	});
}

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
