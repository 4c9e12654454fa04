import { fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { deriveBinaryEncoder } from "../../src/record/binary.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { jsonOf } from "../support/arbitrary.ts";
import { corpus } from "../support/fixtures.ts";

const format = new RecordFormat();
const encode = deriveBinaryEncoder(ConversationInfoSchema);

describe("the derived encoder", () => {
	test.each(corpus())("writes what toBinary writes: $name", ({ json }) => {
		const record = format.fromJson(json);
		expect(Buffer.from(encode(record)).equals(toBinary(ConversationInfoSchema, record))).toBe(true);
	});

	test("writes what reads back as the same record", () => {
		fc.assert(
			fc.property(jsonOf(format.plan), (json) => {
				const record = format.fromJson(json);
				const bytes = toBinary(ConversationInfoSchema, record);
				expect(fromBinary(ConversationInfoSchema, encode(record))).toEqual(fromBinary(ConversationInfoSchema, bytes));
			}),
			{ numRuns: 200 },
		);
	});
});
