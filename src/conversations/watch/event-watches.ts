import { create } from "@bufbuild/protobuf";
import {
	type ConversationEventFilter,
	type WatchConversationEventsResponse,
	WatchConversationEventsResponseSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { HeartbeatSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import { eventMeets } from "../../store/event-condition.ts";
import type { Store, StoredEvent } from "../../store/store.ts";
import { eventLog } from "../read/entry-log.ts";
import { eventConditionsOf } from "../read/event-filter.ts";
import type { EventViews } from "../read/event-view.ts";
import type { RecentEntries } from "./recent-entries.ts";
import { SharedResponse } from "./shared-response.ts";
import { type WatchBatch, Watches, type WatchOptions, type WatchStart } from "./watch.ts";

type Response = typeof WatchConversationEventsResponseSchema;

/** Request of a watcher of events. */
export interface EventWatchRequest {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
	readonly filter: ConversationEventFilter | undefined;
	readonly secrets: SecretsForm;
}

/** Lets many watchers follow the events of a store. */
export class EventWatches {
	readonly #watches: Watches<StoredEvent, Response>;
	readonly #views: EventViews;
	/** One message per event and form of its secrets. Watchers share it, so that it is built and encoded once. */
	readonly #responses: Readonly<Record<SecretsForm, WeakMap<StoredEvent, SharedResponse<Response>>>> = {
		redacted: new WeakMap(),
		encrypted: new WeakMap(),
		plaintext: new WeakMap(),
	};

	constructor(store: Pick<Store, "events">, views: EventViews, options: WatchOptions) {
		this.#watches = new Watches(eventLog(store), heartbeat, options);
		this.#views = views;
	}

	/** The newest events, as far as they are in memory. */
	get recent(): RecentEntries<StoredEvent> {
		return this.#watches.recent;
	}

	/**
	 * Follows events as {@link Watches.watch} does.
	 *
	 * @param owner limits the watch to the conversations of an owner
	 * @throws ServiceError `invalid_argument` that names a field of the filter, by the call and not by the iteration
	 */
	watch(
		{ start, conversationId, filter, secrets }: EventWatchRequest,
		signal: AbortSignal,
		owner?: string,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const conditions = eventConditionsOf(filter);
		const respond = (stored: StoredEvent) =>
			eventMeets(conditions, stored) ? this.#responseOf(stored, secrets) : undefined;
		return this.#watches.watch({ start, conversationId, owner, variant: [conditions, secrets], respond }, signal);
	}

	#responseOf(stored: StoredEvent, secrets: SecretsForm): SharedResponse<Response> {
		return this.#responses[secrets].getOrInsertComputed(stored, () =>
			responseOf(stored.sequence, { case: "event", value: this.#views.toEntry(stored, secrets) }),
		);
	}
}

function heartbeat(sequence: bigint, latestSequence: bigint): SharedResponse<Response> {
	return responseOf(sequence, { case: "heartbeat", value: create(HeartbeatSchema, { latestSequence }) });
}

function responseOf(sequence: bigint, content: WatchConversationEventsResponse["content"]): SharedResponse<Response> {
	const message = create(WatchConversationEventsResponseSchema, { sequence, content });
	return new SharedResponse(WatchConversationEventsResponseSchema, message);
}
