import { fromBinary, type JsonValue, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ConversationInfo, ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { jsonOf } from "../support/arbitrary.ts";
import { expectedJson } from "../support/expected-json.ts";
import { canonical, corpus, object } from "../support/fixtures.ts";

const format = new RecordFormat();

/** Encodes a record and decodes it again. */
function stored(record: ConversationInfo): ConversationInfo {
	return fromBinary(ConversationInfoSchema, toBinary(ConversationInfoSchema, record));
}

/** Returns the JSON form that is read back after a record was stored. */
function roundTrip(json: JsonValue): JsonValue {
	return object(format.toJson(stored(format.fromJson(json))));
}

describe("accepted JSON is read back with defaults filled in and nothing else changed", () => {
	test.each(corpus())("$name", ({ json }) => {
		const back = roundTrip(json);
		expect(back).toEqual(expectedJson(format.plan, json));
		expect(roundTrip(back)).toEqual(back);
		// With its defaults written out it is the same record, so a post of it is a duplicate.
		expect(stored(format.fromJson(back))).toEqual(stored(format.fromJson(json)));
	});

	test("any generated record", () => {
		fc.assert(
			fc.property(jsonOf(format.plan), (json) => {
				const back = roundTrip(json);
				expect(canonical(back)).toBe(canonical(expectedJson(format.plan, json)));
				expect(canonical(roundTrip(back))).toBe(canonical(back));
			}),
			{ numRuns: 500 },
		);
	});
});

describe("a record that arrives as a message is accepted like its JSON form", () => {
	test.each(corpus())("$name", ({ json }) => {
		const record = format.fromJson(json);
		expect(stored(format.fromMessage(stored(record)))).toEqual(stored(record));
	});

	test("any generated record", () => {
		fc.assert(
			fc.property(jsonOf(format.plan), (json) => {
				const record = format.fromJson(json);
				const bytes = toBinary(ConversationInfoSchema, record);
				const again = format.fromMessage(fromBinary(ConversationInfoSchema, bytes));
				expect(canonical(format.toJson(again))).toBe(canonical(format.toJson(record)));
			}),
			{ numRuns: 300 },
		);
	});
});
