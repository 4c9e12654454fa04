import { expect, test } from "vitest";
import {
	ListConversationsRequestSchema,
	ListConversationUpdatesRequestSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { ServiceError } from "../../../src/errors.ts";
import { parametersOf, readQuery, readRequest } from "../../../src/transports/reads/parameters.ts";

const ID = "0190d6a0-0000-7000-8000-00000000000a";

/** Reads the query of a list of updates, or of conversations. */
const updates = (search: string) =>
	readRequest(
		ListConversationUpdatesRequestSchema,
		parametersOf(ListConversationUpdatesRequestSchema, "/x/{id}", false),
		{ params: { id: ID }, search },
	);
const conversations = (search: string) =>
	readRequest(ListConversationsRequestSchema, parametersOf(ListConversationsRequestSchema, "/x", false), {
		params: {},
		search,
	});

function refused(message: string): ServiceError {
	return new ServiceError("invalid_argument", message);
}

test("parameters are read as numbers, times, words, texts and lists", () => {
	expect(updates("after_sequence=12&page_size=3&view=full&page_token=a+b%26%3F?%C3%A9")).toMatchObject({
		...{ afterSequence: 12n, pageSize: 3, view: 2, pageToken: "a b&??é" },
	});
	expect(
		conversations(`created_from=2026-01-31T12:00:00.5%2B02:00&has_error=true&cost_from=1e1&id=${ID}&id=b`).filter,
	).toMatchObject({
		createdFrom: { seconds: 1_769_853_600n, nanos: 500_000_000 },
		hasError: true,
		costFrom: 10,
		ids: [ID, "b"],
	});
});

test("absent parameters leave their fields unset", () => {
	expect(updates("")).toMatchObject({ conversationId: ID, afterSequence: 0n, view: 0, pageToken: "" });
	const { filter } = conversations("");
	expect([filter?.createdFrom, filter?.hasError, filter?.ids]).toEqual([undefined, undefined, []]);
});

test("an unencoded plus sign in a time is read as the sign of its offset", () => {
	const { filter } = conversations("created_from=2026-01-31T12:00:00+02:00");
	expect(filter?.createdFrom).toMatchObject({ seconds: 1_769_853_600n });
});

test.each([
	["other=1", 'query parameter "other" is not known'],
	["__proto__=1", 'query parameter "__proto__" is not known'],
	["=1", 'query parameter "" is not known'],
	["text=%ff", 'query parameter "text" is not percent-encoded UTF-8'],
	["number=1&text=100%", 'query parameter "text" is not percent-encoded UTF-8'],
	["text=\u00c3\u00a9", 'query parameter "text" is not percent-encoded UTF-8'],
	["%ff=1", 'query parameter "%ff" is not percent-encoded UTF-8'],
	[`${"x".repeat(65)}=1`, `query parameter "${"x".repeat(64)}…" is not known`],
	["text=1&text=1", "text may be given only once"],
])("the query %s is refused", (search, message) => {
	expect(() => readQuery(search, ["number", "text", "list"], ["list"])).toThrow(refused(message));
});

test.each(["", "-1", "1.0", "1e3", " 1", "0x1", "9223372036854775808", "99999999999999999999"])(
	"%j is refused as a number",
	(text) => {
		const search = new URLSearchParams({ after_sequence: text }).toString();
		expect(() => updates(search)).toThrow(refused("after_sequence must be a whole number, 0 or more"));
	},
);

test.each(["", "2026-01-31", "2026-01-31 12:00:00Z", "1769853600", "2026-02-30T00:00:00Z"])(
	"%j is refused as a time",
	(text) => {
		const search = new URLSearchParams({ created_from: text }).toString();
		const message = "created_from must be an ISO 8601 date-time such as 2026-01-31T12:00:00Z";
		expect(() => conversations(search)).toThrow(refused(message));
	},
);

test.each(["view=c", "view="])("%s is refused, which is not in the list of words", (search) => {
	expect(() => updates(search)).toThrow(refused("view must be one of summary, full"));
});
