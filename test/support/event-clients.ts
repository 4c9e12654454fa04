import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import {
	ConversationEventIngestService,
	IngestConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_ingest_service_pb.js";
import {
	type ConversationEventEntry,
	ConversationEventService,
	type ListConversationEventsRequestSchema,
} from "../../gen/conversations/v1/conversation_event_service_pb.js";
import { type ConversationEvent, ConversationEventSchema } from "../../gen/conversations/v1/event_pb.js";
import { clientOf, type Endpoints } from "./clients.ts";
import { object } from "./fixtures.ts";

/** Returns the path of the event webhook of a conversation, without a base path. */
export function eventsPath(conversationId: string): string {
	return `/api/v1/webhooks/events/${conversationId}`;
}

/** Posts a batch to the event webhook. */
export function postEvents(
	service: Endpoints,
	key: string,
	conversationId: string,
	body: string | Uint8Array,
): Promise<Response> {
	const headers = { "Content-Type": "application/json", "X-Access-Token": key };
	return fetch(`${service.http}${eventsPath(conversationId)}`, { method: "POST", headers, body: Buffer.from(body) });
}

/** Returns a gRPC client of the service that ingests events. */
export function eventIngestClient(service: Endpoints, key: string) {
	return clientOf(ConversationEventIngestService, service, "gRPC", key);
}

/** Returns a gRPC client of the service that reads events. */
export function eventReadClient(service: Endpoints, key: string) {
	return clientOf(ConversationEventService, service, "gRPC", key);
}

/** Members of an event that have their own fields in the message. */
const ENVELOPE = ["id", "timestamp", "source", "kind"] as const;

/** Converts an event to its message. */
export function eventMessage(json: JsonObject): ConversationEvent {
	const { id, timestamp, source, kind, parent_id, ...others } = json;
	const parentId = typeof parent_id === "string" ? { parentId: parent_id } : {};
	const members = parent_id === null ? { parent_id, ...others } : others;
	return create(ConversationEventSchema, {
		id: String(id),
		timestamp: String(timestamp),
		source: String(source),
		kind: String(kind),
		...parentId,
		membersJson: JSON.stringify(members),
	});
}

/** Converts a message to its event. */
export function eventJson(message: ConversationEvent | undefined): JsonObject {
	const json: JsonObject = {};
	for (const name of ENVELOPE) json[name] = message?.[name] ?? null;
	if (message?.parentId !== undefined) json.parent_id = message.parentId;
	return { ...json, ...object(JSON.parse(message?.membersJson || "{}")) };
}

/** Returns the request that ingests a batch. */
export function ingestEventsRequest(conversationId: string, batch: readonly JsonObject[]) {
	return create(IngestConversationEventsRequestSchema, { conversationId, events: batch.map(eventMessage) });
}

/** Lists all events of a service that match a request, by default all events. */
export async function allEvents(
	service: Endpoints,
	key: string,
	request: MessageInitShape<typeof ListConversationEventsRequestSchema> = {},
): Promise<ConversationEventEntry[]> {
	const client = eventReadClient(service, key);
	const events: ConversationEventEntry[] = [];
	let pageToken = "";
	do {
		const page = await client.listConversationEvents({ pageSize: 1000, ...request, pageToken });
		events.push(...page.events);
		pageToken = page.nextPageToken;
	} while (pageToken !== "");
	return events;
}

/** Returns a page of a conversation's events, read with `GET /api/v1/conversations/{id}/events`. */
export async function getEvents(service: Endpoints, key: string, id: string, search = ""): Promise<JsonObject> {
	const url = `${service.http}/api/v1/conversations/${id}/events?${search}`;
	const response = await fetch(url, { headers: { "X-Access-Token": key } });
	const text = await response.text();
	if (response.status !== 200) throw new Error(`GET events of ${id} was answered with ${response.status} ${text}`);
	return object(JSON.parse(text));
}
