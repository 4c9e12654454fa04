import { equals, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { deriveBinaryDecoder } from "../../src/record/read-binary.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { jsonOf } from "../support/arbitrary.ts";
import { corpus } from "../support/fixtures.ts";

const format = new RecordFormat();
const decode = deriveBinaryDecoder(ConversationInfoSchema);

/** What a decoder makes of bytes: its message encoded again, or that it refuses them. */
function outcome(read: (bytes: Uint8Array) => ReturnType<typeof decode>, bytes: Uint8Array): string {
	try {
		return Buffer.from(toBinary(ConversationInfoSchema, read(bytes))).toString("hex");
	} catch {
		return "refused";
	}
}

const reference = (bytes: Uint8Array) => fromBinary(ConversationInfoSchema, bytes);

test.each(corpus())("$name is read as fromBinary reads it", ({ json }) => {
	const bytes = toBinary(ConversationInfoSchema, format.fromJson(json));
	expect(equals(ConversationInfoSchema, decode(bytes), reference(bytes))).toBe(true);
});

test("generated records are read as fromBinary reads them", () => {
	fc.assert(
		fc.property(jsonOf(format.plan), (json) => {
			const bytes = toBinary(ConversationInfoSchema, format.fromJson(json));
			expect(equals(ConversationInfoSchema, decode(bytes), reference(bytes))).toBe(true);
		}),
		{ numRuns: 300 },
	);
});

test("damaged records are read or refused as fromBinary does", () => {
	const bodies = corpus().map(({ json }) => toBinary(ConversationInfoSchema, format.fromJson(json)));
	const damage = fc.record({
		body: fc.nat(bodies.length - 1),
		at: fc.nat(),
		byte: fc.integer({ min: 0, max: 255 }),
		cut: fc.option(fc.nat(), { freq: 4 }),
		doubled: fc.boolean(),
	});
	fc.assert(
		fc.property(damage, ({ body, at, byte, cut, doubled }) => {
			const whole = bodies[body] ?? new Uint8Array();
			const damaged = doubled ? Buffer.concat([whole, whole]) : Buffer.from(whole);
			damaged[at % damaged.length] = byte;
			const bytes = cut === null ? damaged : damaged.subarray(0, cut % damaged.length);
			expect(outcome(decode, bytes)).toBe(outcome(reference, bytes));
		}),
		{ numRuns: 2_000 },
	);
});

describe("what encoders seldom write is left to fromBinary", () => {
	test.each([
		["nothing", []],
		["a field in two parts", [0x12, 0x00, 0x12, 0x02, 0x0a, 0x00]],
		["an unknown field", [0xf8, 0x07, 0x01]],
		["a wrong wire type", [0x08, 0x01]],
		["a negative integer", [0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]],
		["an endless varint", [0x20, 0xff, 0xff, 0xff]],
		["text that is not UTF-8", [0x0a, 0x01, 0xff]],
		["a length beyond the end", [0x0a, 0x7f]],
	])("%s", (_, bytes) => {
		expect(outcome(decode, Buffer.from(bytes))).toBe(outcome(reference, Buffer.from(bytes)));
	});
});

test("fields without presence have their zero values", () => {
	const decodeSummary = deriveBinaryDecoder(ConversationSummarySchema);
	expect(
		equals(
			ConversationSummarySchema,
			decodeSummary(new Uint8Array()),
			fromBinary(ConversationSummarySchema, new Uint8Array()),
		),
	).toBe(true);
	expect(decodeSummary(new Uint8Array()).accumulatedCost).toBe(0);
});
