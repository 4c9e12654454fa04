import { create, fromBinary, type JsonValue, toBinary } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import {
	ConversationEntrySchema,
	WatchConversationUpdatesResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { MetricsSchema } from "../../gen/conversations/v1/stats_pb.js";
import { ConversationSummarySchema, TokenTotalsSchema } from "../../gen/conversations/v1/summary_pb.js";
import { deriveBinaryEncoder } from "../../src/record/binary-encoder.ts";
import { RecordFormat } from "../../src/record/record-format.ts";
import { corpus } from "../support/fixtures.ts";

const encode = deriveBinaryEncoder(ConversationInfoSchema);

/** Integers whose encodings differ in length, including the last of one length and the first of the next. */
const INTEGERS = [
	0n,
	1n,
	127n,
	128n,
	2n ** 31n - 1n,
	2n ** 31n,
	2n ** 35n,
	2n ** 53n + 1n,
	2n ** 63n - 1n,
	-1n,
	-(2n ** 63n),
];
/** Sizes in bytes at which the encoder's buffer grows. */
const GROWTH = [64 * 1024, 128 * 1024, 256 * 1024];

function arbitraryJson(): fc.Arbitrary<JsonValue> {
	const scalar = fc.oneof(fc.string({ unit: "grapheme" }), fc.double({ noNaN: true }), fc.boolean(), fc.constant(null));
	const { json } = fc.letrec<{ json: JsonValue }>((tie) => ({
		json: fc.oneof({ maxDepth: 4 }, scalar, fc.array(tie("json")), fc.dictionary(fc.string(), tie("json"))),
	}));
	return json;
}

describe("the encoder writes the same bytes as protobuf-es", () => {
	test("for every captured record", () => {
		const format = new RecordFormat();
		for (const { name, bytes } of corpus()) {
			const record = format.parse(bytes);
			expect(Buffer.compare(encode(record), toBinary(ConversationInfoSchema, record)), name).toBe(0);
		}
	});

	test("for an integer, a double and a string at every offset near the end of the buffer", () => {
		for (const size of GROWTH)
			for (let before = size - 40; before <= size + 4; before++)
				for (const integer of INTEGERS) {
					const record = create(ConversationInfoSchema, {
						maxIterations: integer,
						stats: { usageToMetrics: { default: create(MetricsSchema, { accumulatedCost: 0.1, modelName: "é" }) } },
						title: "x".repeat(before),
					});
					const bytes = encode(record);
					if (Buffer.compare(bytes, toBinary(ConversationInfoSchema, record)) !== 0)
						expect.fail(`they differ with ${integer} before ${before} bytes`);
				}
	}, 120_000);

	test("for random records, which decode to the same records", () => {
		const json = arbitraryJson();
		const text = fc.string({ unit: "grapheme", maxLength: 300 });
		fc.assert(
			fc.property(
				fc.dictionary(text, json, { maxKeys: 5 }),
				fc.dictionary(text, text, { maxKeys: 5 }),
				fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
				fc.double(),
				fc.array(text, { maxLength: 5 }),
				(agentState, tags, integer, double, skills) => {
					const record = create(ConversationInfoSchema, {
						agentState,
						tags,
						maxIterations: integer,
						invokedSkills: skills,
						stats: { usageToMetrics: { [skills[0] ?? "a"]: create(MetricsSchema, { accumulatedCost: double }) } },
						createdAt: create(TimestampSchema, { seconds: integer, nanos: 1 }),
						executionStatus: 3,
						stuckDetection: skills.length > 2,
					});
					const bytes = encode(record);
					expect(Buffer.compare(bytes, toBinary(ConversationInfoSchema, record))).toBe(0);
					expect(fromBinary(ConversationInfoSchema, bytes)).toEqual(record);
				},
			),
		);
	});

	test("for fields with implicit presence, whose zero values are not written, and for oneofs", () => {
		const encodeSummary = deriveBinaryEncoder(ConversationSummarySchema);
		const text = fc.oneof(fc.constantFrom("", "0", " ", "false", "null"), fc.string());
		const double = fc.oneof(fc.constantFrom(0, -0, Number.NaN), fc.double());
		fc.assert(
			fc.property(text, text, double, fc.constantFrom(...INTEGERS), fc.nat(8), (id, model, cost, tokens, status) => {
				const summary = create(ConversationSummarySchema, {
					id,
					model,
					accumulatedCost: cost,
					executionStatus: status,
					tokens: create(TokenTotalsSchema, { promptTokens: tokens }),
				});
				expect([...encodeSummary(summary)]).toEqual([...toBinary(ConversationSummarySchema, summary)]);
			}),
		);
		const encodeEntry = deriveBinaryEncoder(ConversationEntrySchema);
		for (const unreadable of [false, true]) {
			const entry = create(ConversationEntrySchema, { sequence: 0n, unreadable });
			expect([...encodeEntry(entry)]).toEqual([...toBinary(ConversationEntrySchema, entry)]);
		}
		const encodeResponse = deriveBinaryEncoder(WatchConversationUpdatesResponseSchema);
		for (const sequence of INTEGERS) {
			const heartbeat = create(WatchConversationUpdatesResponseSchema, {
				sequence,
				content: { case: "heartbeat", value: { latestSequence: sequence } },
			});
			expect([...encodeResponse(heartbeat)]).toEqual([...toBinary(WatchConversationUpdatesResponseSchema, heartbeat)]);
		}
	});
});
