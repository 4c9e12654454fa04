import {
	type ConversationEventEntry,
	type ConversationEventFilter,
	EventOrder,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import type { StoredEvent } from "../../store/events.ts";
import type { Store } from "../../store/store.ts";
import { type EntryLog, type EventFilter, eventLog } from "./entry-log.ts";
import { eventConditionsOf } from "./event-filter.ts";
import type { EventText, EventViews } from "./event-view.ts";
import { invalid } from "./filter.ts";
import { type LogPage, type LogPageRequest, readLogPage } from "./log-page.ts";
import { MAX_PAGE_BYTES } from "./page.ts";

/** Which events are requested, and how they are shown. */
export interface EventsRequest extends LogPageRequest {
	readonly filter?: ConversationEventFilter | undefined;
	/** UNSPECIFIED means the same as undefined: oldest first. */
	readonly order?: EventOrder | undefined;
	readonly secrets: SecretsForm;
}

/** Lists the events of one conversation or of all. */
export class ListConversationEvents {
	readonly #log: EntryLog<StoredEvent, EventFilter>;
	readonly #views: EventViews;

	constructor(store: Pick<Store, "events">, views: EventViews) {
		this.#log = eventLog(store);
		this.#views = views;
	}

	/**
	 * Returns a page of messages, as {@link readLogPage} reads it. An unknown conversation has no events.
	 *
	 * @throws ServiceError as {@link readLogPage} does, and `invalid_argument` that names a field of the filter
	 */
	async list(request: EventsRequest): Promise<LogPage<ConversationEventEntry>> {
		return await this.#read(request, (stored) => this.#views.toEntry(stored, request.secrets));
	}

	/**
	 * Returns a page of JSON texts.
	 *
	 * @throws ServiceError as {@link list} does
	 */
	async listTexts(request: EventsRequest): Promise<LogPage<EventText>> {
		return await this.#read(request, (stored) => this.#views.toText(stored, request.secrets));
	}

	async #read<View>(request: EventsRequest, toView: (stored: StoredEvent) => View): Promise<LogPage<View>> {
		return await readLogPage(
			this.#log,
			{ ...request, newestFirst: isNewestFirst(request.order) },
			{
				filter: { conditions: eventConditionsOf(request.filter) },
				maxReadBytes: MAX_PAGE_BYTES,
				toView,
				sizeOf: (_, stored) => this.#log.sizeOf(stored),
			},
		);
	}
}

/** @throws ServiceError `invalid_argument` for an unknown order */
function isNewestFirst(order: EventOrder = EventOrder.UNSPECIFIED): boolean {
	if (order === EventOrder.NEWEST_FIRST) return true;
	if (order === EventOrder.UNSPECIFIED || order === EventOrder.OLDEST_FIRST) return false;
	throw invalid("order", "is not a known order");
}
