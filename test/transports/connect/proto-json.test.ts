import {
	create,
	type DescMessage,
	fromBinary,
	type JsonValue,
	type MessageInitShape,
	type MessageShape,
	toBinary,
	toJson,
} from "@bufbuild/protobuf";
import { StructSchema, type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { type ConversationInfo, ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { ListConversationsRequestSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceError } from "../../../src/errors.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { jsonToBinary } from "../../../src/transports/connect/connect-adapter.ts";
import { corpus } from "../../support/fixtures.ts";

function decoded<Desc extends DescMessage>(schema: Desc, text: string): MessageShape<Desc> {
	return fromBinary(schema, jsonToBinary(schema, Buffer.from(text)));
}

const record = (text: string): ConversationInfo => decoded(ConversationInfoSchema, text);
const expected = (init: MessageInitShape<typeof ConversationInfoSchema>) => create(ConversationInfoSchema, init);
const numberValue = (value: number): Value => create(ValueSchema, { kind: { case: "numberValue", value } });

describe("a message is read from its JSON form", () => {
	test("for every captured record", () => {
		const format = new RecordFormat();
		for (const { name, bytes } of corpus()) {
			const conversation = format.parse(bytes);
			const request = create(IngestConversationRequestSchema, { conversation });
			const text = JSON.stringify(toJson(IngestConversationRequestSchema, request));
			expect(decoded(IngestConversationRequestSchema, text), name).toEqual(request);
		}
	});

	test("for any JSON in a Value, independent of texts that were read before", () => {
		const name = fc.oneof(fc.string({ unit: "grapheme" }), fc.constantFrom("__proto__", "constructor", '"', "\\", ""));
		const number = fc.double({ noNaN: true, noDefaultInfinity: true });
		const { json } = fc.letrec<{ json: JsonValue }>((tie) => ({
			json: fc.oneof(
				{ maxDepth: 4 },
				fc.oneof(fc.string({ unit: "grapheme" }), number, fc.boolean(), fc.constant(null)),
				fc.array(tie("json")),
				fc.array(fc.tuple(name, tie("json"))).map((members) => Object.fromEntries(members)),
			),
		}));
		fc.assert(
			fc.property(json, (value) => {
				const text = JSON.stringify(value);
				expect(JSON.stringify(toJson(ValueSchema, decoded(ValueSchema, text)))).toBe(text);
			}),
			// What looks like another type is no other type.
			{ numRuns: 1000, examples: [[{ nullValue: "NO_VALUE", kind: { nullValue: "x" } }]] },
		);
	});
});

describe("member names with escapes", () => {
	test("are kept, independent of texts that were read before", () => {
		decoded(StructSchema, '{"a":1,"\\\\":1}');
		const { fields } = decoded(StructSchema, '{"a":1,"\\"":2}');
		expect(fields).toEqual({ a: numberValue(1), '"': numberValue(2) });
	});

	test("select fields, and pairs of surrogates are text", () => {
		expect(record('{"\\u0074itle":"\\ud83d\\ude00 \\\\ud800"}')).toEqual(expected({ title: "😀 \\ud800" }));
	});
});

describe("64-bit integers", () => {
	test.each([
		["9007199254740991", 2n ** 53n - 1n],
		['"9007199254740993"', 2n ** 53n + 1n],
		['"-9223372036854775808"', -(2n ** 63n)],
	])("%s is read exactly", (digits, maxIterations) => {
		expect(record(`{"maxIterations":${digits}}`)).toEqual(expected({ maxIterations }));
	});

	test.each(["9007199254740993", "9223372036854775808", "1e19", "1.5", "true", '"x"'])("%s is refused", (value) => {
		expect(() => record(`{"maxIterations":${value}}`)).toThrow(ServiceError);
	});
});

describe("doubles", () => {
	test.each([
		"1e23",
		"1e+23",
		"12345678901234567000",
		"9007199254740992",
		"1152921504606846976",
		"-1.7976931348623157e308",
	])("%s, which a client may write for a double, is read", (text) => {
		expect(decoded(ValueSchema, text)).toEqual(numberValue(Number(text)));
	});

	test.each(["9007199254740993", "12345678901234567891", "1e400", "-1e400"])("%s is refused", (text) => {
		expect(() => decoded(ValueSchema, text)).toThrow(ServiceError);
	});
});

test.each([
	['{"filter":{"executionStatus":"stuck"}}', ": enum conversations.v1.ConversationExecutionStatus is not valid"],
	['{"filter":{"execution_status":1.5}}', ": enum conversations.v1.ConversationExecutionStatus is not valid"],
	['{"filter":{"createdFrom":"soon"},"pageSize":1}', ": message google.protobuf.Timestamp is not valid"],
	['{"filter":{"later":1}}', ": message conversations.v1.ConversationFilter is not valid"],
	['{"pageSize":"many"}', ": field conversations.v1.ListConversationsRequest.page_size is not valid"],
	['{"filter":[]}', ": message conversations.v1.ConversationFilter is not valid"],
	["[]", ": message conversations.v1.ListConversationsRequest is not valid"],
	["{", ""],
])("the refusal of %s names the invalid field, if there is one", (text, reason) => {
	const { typeName } = ListConversationsRequestSchema;
	expect(() => decoded(ListConversationsRequestSchema, text)).toThrow(
		new ServiceError("invalid_argument", `The request cannot be read as a ${typeName}${reason}`),
	);
});

describe("input that the library would ignore or change is refused", () => {
	test.each([
		["a field by both of its names", '{"maxIterations":"1","max_iterations":"2"}'],
		["an integer for a string", '{"title":12345678901234567890}'],
		["half of a surrogate pair", '{"title":"\\ud83d"}'],
		["half of a surrogate pair in a Value", '{"agentState":{"a":["\\ud83d"]}}'],
		["half of a surrogate pair in a member name of a Value", '{"agentState":{"\\ud83d":1}}'],
		["half of a surrogate pair in a map key", '{"tags":{"\\ud83d":"x"}}'],
		["an unknown name of an enum value", '{"executionStatus":"RUNNING"}'],
		["a text that is no JSON", '{"title":"a",}'],
	])("%s", (_, text) => {
		expect(() => record(text)).toThrow(ServiceError);
	});

	test("bytes that are not UTF-8", () => {
		const bytes = Buffer.concat([Buffer.from('{"title":"'), Buffer.from([0xff]), Buffer.from('"}')]);
		expect(() => jsonToBinary(ConversationInfoSchema, bytes)).toThrow(ServiceError);
	});

	test("an unknown field", () => {
		expect(() => record('{"later":1}')).toThrow(ServiceError);
		expect(() => record('{"workspace":{"later":1}}')).toThrow(ServiceError);
	});
});

test("an empty object is read as the empty message", () => {
	expect(jsonToBinary(ConversationInfoSchema, Buffer.from(" {} "))).toEqual(
		toBinary(ConversationInfoSchema, create(ConversationInfoSchema)),
	);
});
