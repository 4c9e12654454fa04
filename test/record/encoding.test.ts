import { create, equals, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { RecordFormat } from "../../src/record/record-format.ts";
import { RecordVault } from "../../src/record/secrets/record-vault.ts";
import { record } from "../support/fixtures.ts";

const vault = new RecordVault(new RecordFormat(), []);

/** A record whose 64-bit integer is written when about `length` bytes are before it, with a few more behind it. */
function recordAt(length: number, integer: bigint) {
	return create(ConversationInfoSchema, {
		persistenceDir: "x".repeat(length),
		maxIterations: integer,
		title: "title",
		createdAt: { seconds: integer, nanos: 0 },
	});
}

test("a 64-bit integer is read back wherever the encoder's buffer grows", () => {
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

test("a record after 2038 is read back at every alignment of its text", () => {
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
