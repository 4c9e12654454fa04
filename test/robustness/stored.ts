import { fromBinary } from "@bufbuild/protobuf";
import { IngestConversationEventsRequestSchema } from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import { IngestConversationRequestSchema } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { object } from "../support/fixtures.ts";

/** An accepted conversation, identified by the digits of its id, or an accepted event. */
export interface Stored {
	readonly what: "conversation" | "event";
	readonly id: string;
}

// JSON may begin with a byte order mark.
const parsed = (input: Buffer) => JSON.parse(new TextDecoder().decode(input));

/** Returns the conversation of an accepted record in JSON. */
export function jsonRecord(input: Buffer): Stored[] {
	return [{ what: "conversation", id: digits(String(parsed(input).id)) }];
}

/** Returns the conversation of an accepted IngestConversation request. */
export function messageRecord(input: Buffer): Stored[] {
	const { conversation } = fromBinary(IngestConversationRequestSchema, input);
	return [{ what: "conversation", id: digits(conversation?.id ?? "") }];
}

/** Returns the events of an accepted batch in JSON. */
export function jsonEvents(input: Buffer): Stored[] {
	const events: unknown[] = parsed(input);
	return events.map((event) => ({ what: "event", id: String(object(event).id) }));
}

/** Returns the events of an accepted IngestConversationEvents request. */
export function messageEvents(input: Buffer): Stored[] {
	return fromBinary(IngestConversationEventsRequestSchema, input).events.map(({ id }) => ({
		what: "event",
		id: id ?? "",
	}));
}

/** Returns the hexadecimal digits of a UUID in any form. */
export function digits(id: string): string {
	return id
		.toLowerCase()
		.replace("urn:uuid:", "")
		.replaceAll(/[^0-9a-f]/g, "");
}
