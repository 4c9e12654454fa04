import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationInfoSchema } from "../../gen/conversations/v1/conversation_pb.js";
import { decodeDelta, encodeDelta, forgetInDelta, forgetInRecord } from "../../src/record/record-delta.ts";

const [ERASED, OTHER] = ["00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"];

const encoded = (members: MessageInitShape<typeof ConversationInfoSchema>) =>
	toBinary(ConversationInfoSchema, create(ConversationInfoSchema, members));

test("a record forgets a conversation as its parent, its source and one of its children", () => {
	const others = { title: "kept", subConversationIds: [OTHER] };
	const record = encoded({
		...others,
		parentConversationId: ERASED.toUpperCase(),
		forkedFromConversationId: ERASED,
		forkedFromEventId: "event of it",
		subConversationIds: [ERASED, OTHER, ERASED],
	});
	const forgotten = forgetInRecord(record, ERASED);
	expect(forgotten && fromBinary(ConversationInfoSchema, forgotten)).toEqual(create(ConversationInfoSchema, others));
});

test("a record keeps what it says of other conversations", () => {
	const others = { parentConversationId: OTHER, forkedFromConversationId: OTHER, forkedFromEventId: "e" };
	expect(forgetInRecord(encoded({ ...others, subConversationIds: [OTHER] }), ERASED)).toBeUndefined();
	const forgotten = forgetInRecord(encoded({ ...others, subConversationIds: [ERASED] }), ERASED);
	expect(forgotten && fromBinary(ConversationInfoSchema, forgotten)).toEqual(create(ConversationInfoSchema, others));
});

test("a delta goes on to set the members that it forgets", () => {
	const members = [ConversationInfoSchema.field.parentConversationId.number, ConversationInfoSchema.field.title.number];
	const delta = encodeDelta(members, encoded({ parentConversationId: ERASED, title: "new" }));
	const forgotten = forgetInDelta(delta, ERASED);
	expect(forgotten && decodeDelta(forgotten)).toEqual({ members: new Set(members), values: encoded({ title: "new" }) });
	expect(forgetInDelta(delta, OTHER)).toBeUndefined();
});
