import { create, equals, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { record } from "../support/fixtures.ts";

const vault = new RecordVault(new RecordFormat(), []);

/** Returns a record whose encoded 64-bit integers have about `length` bytes before them and a few after them. */
function recordAt(length: number, integer: bigint) {
	return create(ConversationInfoSchema, {
		persistenceDir: "x".repeat(length),
		maxIterations: integer,
		title: "title",
		createdAt: { seconds: integer, nanos: 0 },
	});
}

test("a 64-bit integer is read back when the encoder's buffer grows next to it", () => {
	const sizes = [2 ** 16, 2 ** 17, 2 ** 18, 2 ** 20];
	const integers = fc.oneof(
		fc.bigInt({ min: 2n ** 31n, max: 2n ** 63n - 1n }),
		fc.bigInt({ min: -(2n ** 63n), max: -1n }),
	);
	for (const size of sizes)
		for (let length = size - 40; length <= size + 8; length++) {
			const [integer = 0n] = fc.sample(integers, { numRuns: 1, seed: length });
			const written = recordAt(length, integer);
			const { bytes } = vault.protect(written);
			const readBack = fromBinary(ConversationInfoSchema, bytes);
			expect({ length, integer, same: equals(ConversationInfoSchema, readBack, written) }).toEqual({
				length,
				integer,
				same: true,
			});
		}
});

test("a record with times after 2038 is read back for each length of a text in it", () => {
	const format = new RecordFormat();
	for (let length = 65_000; length < 65_600; length++) {
		const message = format.fromJson(
			record({
				persistence_dir: "x".repeat(length),
				created_at: "2039-01-01T00:00:00Z",
				updated_at: "2039-01-01T00:00:01Z",
			}),
		);
		const bytes = toBinary(ConversationInfoSchema, message);
		expect([length, equals(ConversationInfoSchema, fromBinary(ConversationInfoSchema, bytes), message)]).toEqual([
			length,
			true,
		]);
	}
});
