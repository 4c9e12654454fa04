import { readdirSync, readFileSync } from "node:fs";
import { create, toBinary } from "@bufbuild/protobuf";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { toMessage } from "../../src/events/event-format.ts";
import { type ExactJson, readExactJson, stringifyExactJson } from "../../src/record/json/exact-json.ts";
import { capturedSequences } from "./fixtures.ts";

export const CONVERSATION_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/** A batch of events as a real agent server posted it. */
export interface EventBatch {
	readonly name: string;
	readonly text: string;
}

const folder = new URL("../fixtures/", import.meta.url);

/** All captured batches, by themselves and in captured conversations. */
export function eventBatches(): EventBatch[] {
	return [...batchFiles(), ...batchesOfConversations()];
}

function batchFiles(): EventBatch[] {
	const files = new URL("events/", folder);
	return readdirSync(files).map((file) => ({ name: file, text: readFileSync(new URL(file, files), "utf8") }));
}

function batchesOfConversations(): EventBatch[] {
	return capturedSequences().flatMap(({ name, posts }) =>
		posts
			.filter(({ webhook }) => webhook === "events")
			.map(({ body }, index) => ({ name: `${name} ${index}`, text: body })),
	);
}

/** The events of a batch. */
export function eventsOf(text: string): ExactJson[] {
	const events = readExactJson(text);
	if (!Array.isArray(events)) throw new TypeError("a batch is an array");
	return events;
}

/** A batch as an encoded IngestConversationEventsRequest. */
export function eventsRequest(events: readonly ExactJson[], conversationId = CONVERSATION_ID): Uint8Array {
	const messages = events.map((event) => toMessage(stringifyExactJson(event)));
	const request = create(IngestConversationEventsRequestSchema, { conversationId, events: messages });
	return toBinary(IngestConversationEventsRequestSchema, request);
}
