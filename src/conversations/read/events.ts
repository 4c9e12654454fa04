import { create } from "@bufbuild/protobuf";
import {
	type ConversationEventEntry,
	ConversationEventEntrySchema,
	type ConversationEventFilter,
	ConversationEventFilterSchema,
	EventOrder,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { invalid, ServiceError } from "../../errors.ts";
import { type EventFormat, toMessage } from "../../events/event-format.ts";
import { formatDateTime, fromMicroseconds } from "../../record/json/scalars.ts";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import { type EventCondition, MAX_ID_LENGTH } from "../../store/condition.ts";
import type { StoredEvent } from "../../store/entries.ts";
import type { Store } from "../../store/store.ts";
import { eventLog, type LogPage, type LogPageRequest, readLogPage } from "./entry-log.ts";
import { conditionsOfFields, type FilterFields, timeBound, wellFormed } from "./filter.ts";
import { MAX_PAGE_BYTES } from "./page.ts";
import { type OnUnreadable, tryRead } from "./records.ts";

export interface EventsRequest extends LogPageRequest {
	readonly filter?: ConversationEventFilter | undefined;
	/** UNSPECIFIED means the same as undefined: oldest first. */
	readonly order?: EventOrder | undefined;
	readonly secrets: SecretsForm;
}

/**
 * Lists the events of one conversation or of all, as {@link readLogPage} reads them. An unknown conversation has no events.
 *
 * @param toView shows an event: as {@link EventViews} does
 * @throws ServiceError as {@link readLogPage} does, and `invalid_argument` that names a field of the filter
 */
export async function listEvents<View>(
	store: Pick<Store, "events">,
	request: EventsRequest,
	toView: (stored: StoredEvent, secrets: SecretsForm) => View,
): Promise<LogPage<View>> {
	const log = eventLog(store);
	return await readLogPage(
		log,
		{ ...request, newestFirst: isNewestFirst(request.order) },
		{
			filter: { conditions: eventConditionsOf(request.filter) },
			maxReadBytes: MAX_PAGE_BYTES,
			toView: (stored) => toView(stored, request.secrets),
			sizeOf: (_, stored) => log.sizeOf(stored),
		},
	);
}

function isNewestFirst(order: EventOrder = EventOrder.UNSPECIFIED): boolean {
	if (order === EventOrder.NEWEST_FIRST) return true;
	if (order === EventOrder.UNSPECIFIED || order === EventOrder.OLDEST_FIRST) return false;
	throw invalid("order", "is not a known order");
}

export const MAX_VALUES = 32;

const FIELDS: FilterFields<ConversationEventFilter, EventCondition> = {
	kinds: (values, name) => [{ kind: "one_of", field: "kind", values: distinct(values, name) }],
	sources: (values, name) => [{ kind: "one_of", field: "source", values: distinct(values, name) }],
	happenedFrom: (value, name) => [{ kind: "happened", from: timeBound(value, name) }],
	happenedTo: (value, name) => [{ kind: "happened", to: timeBound(value, name) }],
	kindsNot: (values, name) => [{ kind: "none_of", field: "kind", values: distinct(values, name) }],
	eventId(value, name) {
		if ([...value].length > MAX_ID_LENGTH) throw invalid(name, `must have at most ${MAX_ID_LENGTH} characters`);
		return [{ kind: "id", value: wellFormed(value, name) }];
	},
};

/** Returns the conditions of a filter of events, as {@link conditionsOf} does. */
export function eventConditionsOf(filter: ConversationEventFilter | undefined, prefix = "filter."): EventCondition[] {
	return conditionsOfFields(ConversationEventFilterSchema, FIELDS, filter, prefix);
}

/** Sorts the values and removes repetitions, so that equal filters have equal page tokens and share messages. */
function distinct(values: readonly string[], name: string): string[] {
	if (values.length > MAX_VALUES) throw invalid(name, `must have at most ${MAX_VALUES} values`);
	return [...new Set(values)].map((value) => wellFormed(value, name)).sort();
}

export interface EventText extends Pick<StoredEvent, "sequence" | "receivedAt" | "happenedAt" | "sender" | "origin"> {
	/** Undefined when the stored event cannot be read. */
	readonly text: string | undefined;
}

export type EventViews = ReturnType<typeof eventViews>;

/** Builds the views of stored events that readers receive. The view of an unreadable event lacks the event itself. */
export function eventViews(format: Pick<EventFormat, "open">, onUnreadable: OnUnreadable) {
	function open({ conversationId, event }: StoredEvent, secrets: SecretsForm): string {
		if (!("unreadable" in event)) return format.open(conversationId, event, secrets);
		const cause = new Error(event.unreadable);
		throw new ServiceError("data_loss", "The stored event cannot be read", { conversationId, cause });
	}
	return {
		toText(stored: StoredEvent, secrets: SecretsForm): EventText {
			const { sequence, receivedAt, happenedAt, sender, origin } = stored;
			const text = tryRead(stored, onUnreadable, () => open(stored, secrets));
			return { sequence, receivedAt, happenedAt, sender, origin, text };
		},

		toEntry(stored: StoredEvent, secrets: SecretsForm): ConversationEventEntry {
			const { sequence, conversationId, receivedAt, happenedAt, sender, origin } = stored;
			const event = tryRead(stored, onUnreadable, () => toMessage(open(stored, secrets)));
			return create(ConversationEventEntrySchema, {
				sequence,
				conversationId,
				receivedAt: fromMicroseconds(receivedAt),
				happenedAt: fromMicroseconds(happenedAt),
				sender: sender ?? "",
				origin,
				event,
				unreadable: event === undefined,
			});
		},
	};
}

/**
 * Returns the JSON text of an event in a list: the event as it was sent, its sequence number and its times. An event that
 * was fetched from the agent server is marked as such.
 *
 * @param conversationId set when the text must name the conversation
 */
export function eventJson(
	{ sequence, receivedAt, happenedAt, sender = "", origin, text }: EventText,
	conversationId?: string,
): string {
	const [received, happened] = [receivedAt, happenedAt].map((time) => formatDateTime(fromMicroseconds(time)));
	const conversation = conversationId === undefined ? "" : `"conversation_id":"${conversationId}",`;
	const event = text === undefined ? '"unreadable":true' : `"event":${text}`;
	const mark = origin === UpdateOrigin.RECONCILED ? `"origin":"reconciled",` : "";
	return `{"sequence":${sequence},${conversation}"received_at":"${received}","happened_at":"${happened}","sender":${JSON.stringify(sender)},${mark}${event}}`;
}
