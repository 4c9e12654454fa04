import { create, type DescField, fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { ConversationFilterSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { conditionsOf } from "../../../src/conversations/read/filter.ts";
import { ServiceError } from "../../../src/errors.ts";
import { summaryMeets } from "../../../src/store/condition.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import { append, conditions, sample, summaryOf, withTimes } from "../../store/samples.ts";
import { TempFolder } from "../../support/temp.ts";
import { columns, storeFilters } from "./filters.ts";

type Init = MessageInitShape<typeof ConversationFilterSchema>;

function convert(init: Init, prefix?: string) {
	return conditionsOf(create(ConversationFilterSchema, init), prefix);
}

test("an absent or empty filter has no conditions", () => {
	expect(conditionsOf(undefined)).toEqual([]);
	expect(convert({})).toEqual([]);
});

test("each field becomes a condition of the store", () => {
	expect(
		convert({
			executionStatus: ConversationExecutionStatus.WAITING_FOR_CONFIRMATION,
			agentKind: "ACPAgent",
			model: "m",
			parentConversationId: "urn:uuid:0190D6A0-0000-7000-8000-00000000000F",
			tags: { a: "1", constructor: "2" },
			tagKey: "k",
			createdFrom: { seconds: 1n, nanos: 2_000 },
			createdTo: { seconds: 3n, nanos: 4_001 },
			updatedFrom: { seconds: -5n, nanos: 999_999_999 },
			updatedTo: { seconds: 253_402_300_799n, nanos: 0 },
			titleContains: "T",
		}),
	).toEqual([
		{ kind: "equal", field: "executionStatus", value: ConversationExecutionStatus.WAITING_FOR_CONFIRMATION },
		{ kind: "equal", field: "agentKind", value: "ACPAgent" },
		{ kind: "equal", field: "model", value: "m" },
		{ kind: "equal", field: "parentConversationId", value: "0190d6a0-0000-7000-8000-00000000000f" },
		{ kind: "tag", key: "a", value: "1" },
		{ kind: "tag", key: "constructor", value: "2" },
		{ kind: "tag", key: "k", value: undefined },
		{ kind: "time", field: "createdAt", from: 1_000_002n },
		{ kind: "time", field: "createdAt", to: 3_000_005n },
		{ kind: "time", field: "updatedAt", from: -4_000_000n },
		{ kind: "time", field: "updatedAt", to: 253_402_300_799_000_000n },
		{ kind: "title", contains: "T" },
	]);
});

test("each text of scores becomes a condition on a score, sorted and once", () => {
	const scores = ["none:a", "b:true", "b:1e3", "b:big", "b>=-0.5", "b>1", "b<=2", "b<.5", "none:a", "b:a:c"];
	const named = { kind: "score", name: "b" } as const;
	expect(convert({ scores: scores.slice(0, 5) }).concat(convert({ scores: scores.slice(5) }))).toEqual([
		{ ...named, is: "=", value: ["1e3", "1000"] },
		{ ...named, is: "=", value: ["big"] },
		{ ...named, is: "=", value: ["true"] },
		{ ...named, is: ">=", value: -0.5 },
		{ kind: "score", name: "a", is: "none" },
		{ ...named, is: "=", value: ["a:c"] },
		{ ...named, is: "<", value: 0.5 },
		{ ...named, is: "<=", value: 2 },
		{ ...named, is: ">", value: 1 },
		{ kind: "score", name: "a", is: "none" },
	]);
});

test("the length of title_contains is counted in characters, not in UTF-16 code units", () => {
	const titleContains = "😀".repeat(1024);
	expect(convert({ titleContains })).toEqual([{ kind: "title", contains: titleContains }]);
});

test("a field of a newer release is refused, and each known field alone becomes one condition", () => {
	const newer = fromBinary(ConversationFilterSchema, new Uint8Array([0xfa, 0x3e, 1, 0x61]));
	expect(() => conditionsOf(newer)).toThrow(
		new ServiceError("invalid_argument", "the filter has a field that this release does not know"),
	);
	for (const field of ConversationFilterSchema.fields) expect(conditionsOf(filled(field))).toHaveLength(1);
});

/** Returns a filter in which only this field is set. */
function filled(field: DescField) {
	const filter = create(ConversationFilterSchema);
	const values: Readonly<Record<string, unknown>> = {
		executionStatus: ConversationExecutionStatus.IDLE,
		agentKind: "Agent",
		parentConversationId: "0190d6a0-0000-7000-8000-00000000000f",
		forkedFromConversationId: "0190d6a0-0000-7000-8000-00000000000f",
		tags: { a: "1" },
		executionStatuses: [ConversationExecutionStatus.IDLE],
		executionStatusesNot: [ConversationExecutionStatus.IDLE],
		costFrom: 0,
		costTo: 0,
		hasError: false,
		hasGaps: false,
		ids: ["0190d6a0-0000-7000-8000-00000000000f"],
		scores: ["none:thumbs"],
	};
	const value = values[field.localName] ?? (field.message === undefined ? "text" : create(TimestampSchema));
	Object.assign(filter, { [field.localName]: value });
	return filter;
}

const unknownStatus = Number("99");
const manyTags = Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`k${index}`, ""]));

test.each<[Init, string]>([
	[{ executionStatus: unknownStatus }, "filter.execution_status is not a known status"],
	[{ executionStatuses: [unknownStatus] }, "filter.execution_statuses has an unknown status"],
	[{ executionStatusesNot: [0] }, "filter.execution_statuses_not has an unknown status"],
	[{ costFrom: Number.NaN }, "filter.cost_from is not a number"],
	[{ agentKind: "acp" }, "filter.agent_kind must be ACPAgent or Agent"],
	[{ ids: ["1"] }, "filter.ids is not a UUID"],
	[{ ids: Array.from({ length: 1001 }, () => "") }, "filter.ids must have at most 1000 entries"],
	[{ scores: Array.from({ length: 9 }, () => "none:a") }, "filter.scores must have at most 8 entries"],
	[{ parentConversationId: "1" }, "filter.parent_conversation_id is not a UUID"],
	[{ tags: manyTags }, "filter.tags must have at most 32 entries"],
	[{ titleContains: "😀".repeat(1025) }, "filter.title_contains must have at most 1024 characters"],
	[{ model: "\ud800" }, "filter.model is not valid Unicode"],
	[{ titleContains: "\udc00" }, "filter.title_contains is not valid Unicode"],
	[{ createdFrom: { nanos: -1 } }, "filter.created_from is not a valid timestamp"],
	[{ createdTo: { nanos: 1_000_000_000 } }, "filter.created_to is not a valid timestamp"],
	[{ updatedFrom: { seconds: -62_135_596_801n } }, "filter.updated_from is not a valid timestamp"],
	[{ updatedTo: { seconds: 253_402_300_800n } }, "filter.updated_to is not a valid timestamp"],
])("%# an invalid filter is refused with the name of the field", (init, message) => {
	expect(() => convert(init)).toThrow(new ServiceError("invalid_argument", message));
});

test("a record meets the conditions of a filter exactly if the store lists it", async () => {
	using folder = new TempFolder();
	await using store = await openSqliteStore(folder.file("conversations.db"), { error() {} });
	const updates = fc.sample(columns, 150).map((own) => sample({ columns: own }));
	await Promise.all(updates.map((update) => append(store, update)));
	await fc.assert(
		fc.asyncProperty(storeFilters, async (filter) => {
			const of = conditions(filter);
			const found = await store.listConversations({ conditions: of, limit: 1000, withRecords: false });
			const met = updates.filter((update) => summaryMeets(of, summaryOf(withTimes(update).columns)));
			expect(found.map((one) => one.conversationId).sort()).toEqual(met.map((one) => one.conversationId).sort());
		}),
		{ numRuns: 300 },
	);
});
