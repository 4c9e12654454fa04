import { fromBinary } from "@bufbuild/protobuf";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { object } from "../support/fixtures.ts";

/** Something that was accepted: a conversation, by the digits of its id, or an event. */
export interface Stored {
	readonly what: "conversation" | "event";
	readonly id: string;
}

// The byte order mark may stand before JSON.
const parsed = (input: Buffer) => JSON.parse(new TextDecoder().decode(input));

/** The conversation of an accepted record in JSON. */
export function jsonRecord(input: Buffer): Stored[] {
	return [{ what: "conversation", id: digits(String(parsed(input).id)) }];
}

/** The conversation of an accepted request of IngestConversation. */
export function messageRecord(input: Buffer): Stored[] {
	const { conversation } = fromBinary(IngestConversationRequestSchema, input);
	return [{ what: "conversation", id: digits(conversation?.id ?? "") }];
}

/** The events of an accepted batch in JSON. */
export function jsonEvents(input: Buffer): Stored[] {
	const events: unknown[] = parsed(input);
	return events.map((event) => ({ what: "event", id: String(object(event).id) }));
}

/** The events of an accepted request of IngestConversationEvents. */
export function messageEvents(input: Buffer): Stored[] {
	return fromBinary(IngestConversationEventsRequestSchema, input).events.map(({ id }) => ({
		what: "event",
		id: id ?? "",
	}));
}

/** The digits of a UUID in any form. */
export function digits(id: string): string {
	return id
		.toLowerCase()
		.replace("urn:uuid:", "")
		.replaceAll(/[^0-9a-f]/g, "");
}
