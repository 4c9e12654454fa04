import { create } from "@bufbuild/protobuf";
import {
	type ConversationEventFilter,
	type WatchConversationEventsResponse,
	WatchConversationEventsResponseSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import { HeartbeatSchema } from "../../../gen/conversations/v1/conversation_service_pb.js";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import { eventMeets } from "../../store/event-condition.ts";
import type { StoredEvent } from "../../store/events.ts";
import type { Store } from "../../store/store.ts";
import { eventLog } from "../read/entry-log.ts";
import { eventConditionsOf } from "../read/event-filter.ts";
import { type EventViews, eventJson } from "../read/event-view.ts";
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
	/** Whether each response has its event as JSON text, for a stream of server-sent events. */
	readonly asJson?: boolean | undefined;
}

/** Lets many watchers follow the events of a store. */
export class EventWatches {
	readonly #watches: Watches<StoredEvent, Response>;
	readonly #views: EventViews;
	/** One message per event and form of its secrets. Watchers share it, so that it is built and encoded once. */
	readonly #responses = { message: bySecretsForm(), json: bySecretsForm() };

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
		{ start, conversationId, filter, secrets, asJson = false }: EventWatchRequest,
		signal: AbortSignal,
		owner?: string,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const conditions = eventConditionsOf(filter);
		const responder = () => (stored: StoredEvent) =>
			eventMeets(conditions, stored) ? this.#responseOf(stored, secrets, asJson) : undefined;
		const variant = [conditions, secrets, asJson];
		return this.#watches.watch({ start, conversationId, owner, variant, responder }, signal);
	}

	#responseOf(stored: StoredEvent, secrets: SecretsForm, asJson: boolean): SharedResponse<Response> {
		const { sequence, conversationId } = stored;
		return this.#responses[asJson ? "json" : "message"][secrets].getOrInsertComputed(stored, () =>
			asJson
				? responseOf(sequence, undefined, eventJson(this.#views.toText(stored, secrets), conversationId))
				: responseOf(sequence, { case: "event", value: this.#views.toEntry(stored, secrets) }),
		);
	}
}

function bySecretsForm(): Readonly<Record<SecretsForm, WeakMap<StoredEvent, SharedResponse<Response>>>> {
	return { redacted: new WeakMap(), encrypted: new WeakMap(), plaintext: new WeakMap() };
}

function heartbeat(sequence: bigint, latestSequence: bigint): SharedResponse<Response> {
	return responseOf(sequence, { case: "heartbeat", value: create(HeartbeatSchema, { latestSequence }) });
}

function responseOf(
	sequence: bigint,
	content: WatchConversationEventsResponse["content"] | undefined,
	json?: string,
): SharedResponse<Response> {
	const message = create(WatchConversationEventsResponseSchema, { sequence, ...(content && { content }) });
	return new SharedResponse(WatchConversationEventsResponseSchema, message, sequence, json);
}
