import { create, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationEventFilterSchema } from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { eventConditionsOf } from "../../../src/conversations/read/events.ts";
import { ServiceError } from "../../../src/errors.ts";

function convert(init: MessageInitShape<typeof ConversationEventFilterSchema>, prefix?: string) {
	return eventConditionsOf(create(ConversationEventFilterSchema, init), prefix);
}

test("an absent or empty filter has no conditions", () => {
	expect(eventConditionsOf(undefined)).toEqual([]);
	expect(convert({})).toEqual([]);
});

test("each field becomes a condition of the store; lists are sorted without duplicates", () => {
	expect(
		convert({
			kinds: ["b", "a", "b"],
			sources: ["user", ""],
			happenedFrom: { seconds: 1n, nanos: 2_000 },
			happenedTo: { seconds: 3n, nanos: 4_001 },
			eventId: "x",
		}),
	).toEqual([
		{ kind: "one_of", field: "kind", values: ["a", "b"] },
		{ kind: "one_of", field: "source", values: ["", "user"] },
		{ kind: "happened", from: 1_000_002n },
		{ kind: "happened", to: 3_000_005n },
		{ kind: "id", value: "x" },
	]);
});

const many = Array.from({ length: 33 }, (_, index) => `kind ${index}`);

test("lists of 32 values are accepted", () => {
	expect(convert({ kinds: many.slice(1), sources: many.slice(1) })).toHaveLength(2);
});

test.each<[MessageInitShape<typeof ConversationEventFilterSchema>, string]>([
	[{ kinds: many }, "kinds must have at most 32 values"],
	[{ sources: many }, "sources must have at most 32 values"],
	[{ eventId: "x".repeat(257) }, "event_id must have at most 256 characters"],
	[{ eventId: "\ud800" }, "event_id is not valid Unicode"],
	[{ kindsNot: many }, "kinds_not must have at most 32 values"],
	[{ kinds: ["a", "\ud800"] }, "kinds is not valid Unicode"],
	[{ sources: ["\udc00"] }, "sources is not valid Unicode"],
	[{ happenedFrom: { seconds: 0n, nanos: -1 } }, "happened_from is not a valid timestamp"],
	[{ happenedTo: { seconds: 253_402_300_800n, nanos: 0 } }, "happened_to is not a valid timestamp"],
])("%o is refused", (filter, message) => {
	expect(() => convert(filter)).toThrow(new ServiceError("invalid_argument", `filter.${message}`));
	expect(() => convert(filter, "")).toThrow(new ServiceError("invalid_argument", message));
});

test("a filter with a field of a newer release is refused", () => {
	// Field 99 with the value 1.
	const newer = fromBinary(ConversationEventFilterSchema, Buffer.from([0x98, 0x06, 1]));
	expect(() => eventConditionsOf(newer)).toThrow(
		new ServiceError("invalid_argument", "the filter has a field that this release does not know"),
	);
});
