import type { GroupRequest } from "./duplicates.ts";
import { leafOfRecord } from "./gaps.ts";

/** What an engine reads before it plans a group. */
export interface GroupQuery {
	readonly conversationIds: readonly string[];
	/** Those of the conversations whose {@link import("./known-conversation.ts").KnownConversation.base} is needed. */
	readonly versions: ReadonlySet<string>;
	/** The events of the group. */
	readonly events: readonly EventName[];
	/** Further events, which those and the records of the group name. */
	readonly named: readonly EventName[];
}

export interface EventName {
	readonly conversationId: string;
	readonly eventId: string;
}

/** Returns what an engine reads before it plans a group. */
export function groupQuery(requests: readonly GroupRequest[]): GroupQuery {
	const batches = requests.flatMap((request) => ("update" in request ? [] : [request]));
	return {
		conversationIds: [...new Set(requests.map(conversationOf))],
		versions: new Set(
			batches.flatMap(({ conversationId, effect }) => (effect?.version === undefined ? [] : [conversationId])),
		),
		events: batches.flatMap(({ conversationId, events }) => events.map(({ eventId }) => ({ conversationId, eventId }))),
		named: requests.flatMap(namedEvents),
	};
}

/** Returns the events that a request names and does not bring. */
function namedEvents(request: GroupRequest): EventName[] {
	const conversationId = conversationOf(request);
	if ("update" in request) {
		const leaf = leafOfRecord(request.update.record.bytes);
		return leaf === undefined ? [] : [{ conversationId, eventId: leaf }];
	}
	const own = new Set(request.events.map(({ eventId }) => eventId));
	const named = new Set(request.named?.map(({ missing }) => missing));
	for (const { parentId, reportedLeaf } of request.events)
		for (const id of [parentId, reportedLeaf]) if (id !== undefined && !own.has(id)) named.add(id);
	return [...named].map((eventId) => ({ conversationId, eventId }));
}

export function conversationOf(request: GroupRequest): string {
	return "update" in request ? request.update.conversationId : request.conversationId;
}
