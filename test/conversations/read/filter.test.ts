import { create, type MessageInitShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ConversationExecutionStatus } from "../../../gen/conversations/v1/conversation_pb.js";
import { ConversationFilterSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { matchesFilter, toStoreFilter } from "../../../src/conversations/read/filter.ts";
import { ServiceError } from "../../../src/errors.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import { append, sample } from "../../store/samples.ts";
import { TempFolder } from "../../support/temp.ts";
import { columns, storeFilters } from "./filters.ts";

type Init = MessageInitShape<typeof ConversationFilterSchema>;

function convert(init: Init, prefix?: string) {
	return toStoreFilter(create(ConversationFilterSchema, init), prefix);
}

test("a filter that says nothing has no conditions", () => {
	expect(toStoreFilter(undefined)).toEqual({});
	expect(convert({})).toEqual({});
});

test("every condition reaches the store in its form", () => {
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
	).toEqual({
		status: "waiting_for_confirmation",
		agentKind: "ACPAgent",
		model: "m",
		parentId: "0190d6a0-0000-7000-8000-00000000000f",
		tags: { a: "1", constructor: "2" },
		tagKey: "k",
		createdFrom: 1_000_002n,
		createdTo: 3_000_005n,
		updatedFrom: -4_000_000n,
		updatedTo: 253_402_300_799_000_000n,
		titleContains: "T",
	});
});

const unknownStatus = Number("99");
const manyTags = Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`k${index}`, ""]));

test.each<[Init, string]>([
	[{ executionStatus: unknownStatus }, "filter.execution_status is not a known status"],
	[{ agentKind: "acp" }, "filter.agent_kind must be ACPAgent or Agent"],
	[{ parentConversationId: "1" }, "filter.parent_conversation_id is not a UUID"],
	[{ tags: manyTags }, "filter.tags must be at most 32"],
	[{ titleContains: "x".repeat(1025) }, "filter.title_contains must have at most 1024 characters"],
	[{ createdFrom: { nanos: -1 } }, "filter.created_from is not a valid timestamp"],
	[{ createdTo: { nanos: 1_000_000_000 } }, "filter.created_to is not a valid timestamp"],
	[{ updatedFrom: { seconds: -62_135_596_801n } }, "filter.updated_from is not a valid timestamp"],
	[{ updatedTo: { seconds: 253_402_300_800n } }, "filter.updated_to is not a valid timestamp"],
])("%# a mistake names its field", (init, message) => {
	expect(() => convert(init)).toThrow(new ServiceError("invalid_argument", message));
	expect(() => convert(init, "")).toThrow(new ServiceError("invalid_argument", message.replace("filter.", "")));
});

test("a record meets a filter exactly if the store lists it", async () => {
	using folder = new TempFolder();
	await using store = await openSqliteStore(folder.file("conversations.db"), { error() {}, warn() {}, info() {} });
	const updates = fc.sample(columns, 150).map((own) => sample({ columns: own }));
	await Promise.all(updates.map((update) => append(store, update)));
	await fc.assert(
		fc.asyncProperty(storeFilters, async (filter) => {
			const found = await store.listConversations({ filter, limit: 1000, withRecords: false });
			const met = updates.filter((update) => matchesFilter(filter, update.columns));
			expect(found.map((one) => one.conversationId).sort()).toEqual(met.map((one) => one.conversationId).sort());
		}),
		{ numRuns: 300 },
	);
});
