import { create, toBinary } from "@bufbuild/protobuf";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { toMessage } from "../../src/events/event-format.ts";
import { readExactJson, stringifyExactJson } from "../../src/record/json/exact-json.ts";
import type { ExactJson } from "../../src/record/json/json-value.ts";
import { capturedBatches, capturedSequences } from "./fixtures.ts";

/** Returns the names and texts of all captured batches of events: single ones and those in sequences of posts. */
export function batchTexts(): [name: string, text: string][] {
	const sequences = capturedSequences().flatMap(({ name, posts }) =>
		posts
			.filter(({ webhook }) => webhook === "events")
			.map(({ body }, index): [string, string] => [`${name} ${index}`, body]),
	);
	return [...capturedBatches().map(({ name, text }): [string, string] => [name, text]), ...sequences];
}

/** Returns the events of a batch. */
export function eventsIn(text: string): ExactJson[] {
	const events = readExactJson(text);
	if (!Array.isArray(events)) throw new TypeError("a batch is an array");
	return events;
}

/** Returns events as an encoded IngestConversationEventsRequest. */
export function eventsRequest(conversationId: string, events: readonly ExactJson[]): Uint8Array {
	const messages = events.map((event) => toMessage(stringifyExactJson(event)));
	const request = create(IngestConversationEventsRequestSchema, { conversationId, events: messages });
	return toBinary(IngestConversationEventsRequestSchema, request);
}
