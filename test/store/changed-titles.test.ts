import { create, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ConversationSummarySchema } from "../../gen/conversations/v1/summary_pb.js";
import { foundTitles } from "../../src/store/index-steps.ts";

test("titles are found beside a summary that is damaged", () => {
	const summary = toBinary(ConversationSummarySchema, create(ConversationSummarySchema, { title: "Kept" }));
	const update = { current: true, indexed: undefined };
	const found = foundTitles([
		{ ...update, conversationId: "a", sequence: 1n, summary: Buffer.from([0xff]) },
		{ ...update, conversationId: "b", sequence: 2n, summary },
		{ ...update, conversationId: "b", sequence: 3n, summary: Buffer.from([0xff]) },
	]);
	const title = { conversationId: "b", sequence: 2n, title: "Kept", digest: expect.any(Number) };
	expect(found).toEqual({ titles: [title], last: 3n, hasMore: false });
});
