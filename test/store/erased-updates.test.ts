import { fromBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { forgetInUpdate } from "../../src/store/erase.ts";
import { packRecord, unpackRecord } from "../../src/store/record-column.ts";
import { record } from "./event-samples.ts";
import { sample } from "./samples.ts";

const ERASED = "00000000-0000-4000-8000-000000000000";
const members = { title: "a", parentConversationId: ERASED };

/** Returns the row of an update of a child. */
function rowOf(damaged: { readonly summary?: Uint8Array; readonly checksum?: bigint }) {
	const { summary } = sample({ columns: { parentId: ERASED, title: "a" } });
	const { checksum, ...packed } = packRecord(record(members));
	const row = {
		sequence: 7n,
		base_sequence: null,
		summary,
		...packed,
		unpacked_size: null,
		checksum: BigInt(checksum),
	};
	return { ...row, ...damaged };
}

test("an update whose summary cannot be read forgets a conversation in its record", () => {
	const summary = Buffer.from([0xff]);
	const { forgotten, ...others } = forgetInUpdate(rowOf({ summary }), ERASED);
	expect(others).toEqual({ sequence: 7n, unreadable: { unreadable: expect.any(String) } });
	if (forgotten === undefined) throw new Error("the record names the conversation");
	const left = fromBinary(ConversationInfoSchema, unpackRecord(forgotten.record));
	expect([left.title, left.parentConversationId]).toEqual(["a", undefined]);
	expect(forgotten.summary).toBe(summary);
});

test("an update whose record cannot be read forgets a conversation in its summary", () => {
	const row = rowOf({ checksum: 1n });
	const { forgotten, ...others } = forgetInUpdate(row, ERASED);
	expect(others).toEqual({ sequence: 7n, unreadable: { unreadable: "the checksum of the record is wrong" } });
	if (forgotten === undefined) throw new Error("the summary names the conversation");
	expect(forgotten.record).toEqual({ record: row.record, unpackedSize: null, checksum: 1 });
	const left = fromBinary(ConversationSummarySchema, forgotten.summary);
	expect([left.title, left.parentConversationId]).toEqual(["a", undefined]);
});
