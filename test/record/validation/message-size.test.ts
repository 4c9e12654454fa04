import { create, toBinary } from "@bufbuild/protobuf";
import { ListValueSchema, StructSchema, type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../../gen/conversations/v1/conversation_pb.js";
import { hasTooManyFields } from "../../../src/record/validation/message-size.ts";

const MILLION = 1_000_000;
const tooMany = (bytes: Uint8Array) => hasTooManyFields(bytes, ConversationInfoSchema);

/** Returns an encoded record with `count` numbers in a list in an unnamed member. */
function numbers(count: number): Uint8Array {
	const values = Array.from(
		{ length: count },
		(): Value => create(ValueSchema, { kind: { case: "numberValue", value: 7 } }),
	);
	const list = create(ValueSchema, { kind: { case: "listValue", value: create(ListValueSchema, { values }) } });
	return toBinary(ConversationInfoSchema, create(ConversationInfoSchema, { unnamedMembers: { "/a": list } }));
}

test("a message within the limit of fields is accepted, whatever its size", () => {
	expect(
		tooMany(toBinary(ConversationInfoSchema, create(ConversationInfoSchema, { title: "x".repeat(5 * MILLION) }))),
	).toBe(false);
	expect(tooMany(numbers(200_000))).toBe(false);
	expect(tooMany(toBinary(StructSchema, create(StructSchema)))).toBe(false);
});

test("too many fields are detected in an encoded message, at the top level and deep inside", () => {
	expect(tooMany(numbers(MILLION))).toBe(true);
	// Field 29, available_models, empty each time.
	expect(tooMany(Buffer.alloc(3 * (MILLION + 1)).fill(Buffer.from([0xea, 0x01, 0x00])))).toBe(true);
});

test("bytes that are not a protobuf message are an error", () => {
	expect(() => tooMany(Buffer.alloc(3 * MILLION, 0xff))).toThrow();
});
