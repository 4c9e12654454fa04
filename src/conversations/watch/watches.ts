import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
	type ConversationEventFilter,
	WatchConversationEventsResponseSchema,
} from "../../../gen/conversations/v1/conversation_event_service_pb.js";
import {
	type ConversationFilter,
	type ConversationUpdate,
	WatchConversationUpdatesResponseSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange, type UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import type { SecretsForm } from "../../record/secrets/secret-walk.ts";
import { eventMeets, summaryMeets } from "../../store/condition.ts";
import type { StoredEvent, StoredUpdate } from "../../store/entries.ts";
import type { Store } from "../../store/store.ts";
import { eventLog, updateLog } from "../read/entry-log.ts";
import { type EventViews, eventConditionsOf, eventJson } from "../read/events.ts";
import { conditionsOf, originOf } from "../read/filter.ts";
import type { PresentViews, UpdateViewOptions } from "../read/updates.ts";
import type { RecentEntries } from "./recent-entries.ts";
import { SharedResponse, type WatchBatch, Watches, type WatchOptions, type WatchStart } from "./watch.ts";

type UpdateResponse = typeof WatchConversationUpdatesResponseSchema;
type EventResponse = typeof WatchConversationEventsResponseSchema;

/** What watchers of both logs request. */
interface LogWatchRequest {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
}

/** Request of a watcher of updates. */
export interface UpdateWatchRequest extends LogWatchRequest {
	/** Conditions on each update's own record. */
	readonly filter: ConversationFilter | undefined;
	/** Only updates of this origin. UNSPECIFIED means the same as undefined. */
	readonly origin?: UpdateOrigin | undefined;
	readonly view: UpdateViewOptions;
}

/** Lets many watchers follow the updates of a store. */
export class UpdateWatches {
	readonly #watches: Watches<StoredUpdate, UpdateResponse>;
	readonly #views: PresentViews;
	/** One message per view of an update. Watchers share it, so that it is encoded once. */
	readonly #responses = new WeakMap<ConversationUpdate, SharedResponse<UpdateResponse>>();

	constructor(store: Pick<Store, "updates">, views: PresentViews, options: WatchOptions) {
		this.#watches = new Watches(updateLog(store), updateResponse, options);
		this.#views = views;
	}

	/** The newest updates, as far as they are in memory. */
	get recent(): RecentEntries<StoredUpdate> {
		return this.#watches.recent;
	}

	/**
	 * Follows updates as {@link Watches.watch} does.
	 *
	 * @param owner limits the watch to the conversations of an owner
	 * @throws ServiceError `invalid_argument` that names a field of the request, by the call and not by the iteration
	 */
	watch(
		{ start, conversationId, filter, origin: requestedOrigin, view }: UpdateWatchRequest,
		signal: AbortSignal,
		owner?: string,
	): AsyncGenerator<WatchBatch<UpdateResponse>, void, undefined> {
		const conditions = conditionsOf(filter);
		const origin = originOf(requestedOrigin);
		const responder = () => {
			const views = this.#views();
			return async (stored: StoredUpdate) => {
				// An erasure has no origin. It is sent to all, as in lists.
				const isOther = stored.change !== UpdateChange.ERASED && stored.origin !== origin;
				if (origin !== undefined && isOther) return undefined;
				const update = await views.toUpdate(stored, view);
				// An unreadable update is sent, because it may meet the conditions.
				if (update.summary !== undefined && !summaryMeets(conditions, update.summary)) return undefined;
				return this.#responses.getOrInsertComputed(update, () =>
					updateResponse(update.sequence, { case: "update", value: update }, () => views.toJson(update)),
				);
			};
		};
		const variant = [conditions, origin, view];
		return this.#watches.watch({ start, conversationId, owner, variant, responder }, signal);
	}
}

function updateResponse(
	sequence: bigint,
	content: NonNullable<MessageInitShape<UpdateResponse>["content"]>,
	json?: () => string,
): SharedResponse<UpdateResponse> {
	const schema = WatchConversationUpdatesResponseSchema;
	return new SharedResponse(schema, sequence, () => create(schema, { sequence, content }), json);
}

/** Request of a watcher of events. */
export interface EventWatchRequest extends LogWatchRequest {
	readonly filter: ConversationEventFilter | undefined;
	readonly secrets: SecretsForm;
}

/** Lets many watchers follow the events of a store. */
export class EventWatches {
	readonly #watches: Watches<StoredEvent, EventResponse>;
	readonly #views: EventViews;
	/** One message per event and form of its secrets. Watchers share it, so that it is built and encoded once. */
	readonly #responses: Readonly<Record<SecretsForm, WeakMap<StoredEvent, SharedResponse<EventResponse>>>> = {
		redacted: new WeakMap(),
		encrypted: new WeakMap(),
		plaintext: new WeakMap(),
	};

	constructor(store: Pick<Store, "events">, views: EventViews, options: WatchOptions) {
		this.#watches = new Watches(
			eventLog(store),
			(sequence, heartbeat) => eventResponse(sequence, () => heartbeat),
			options,
		);
		this.#views = views;
	}

	/** The newest events, as far as they are in memory. */
	get recent(): RecentEntries<StoredEvent> {
		return this.#watches.recent;
	}

	/** Follows events as {@link UpdateWatches.watch} follows updates. */
	watch(
		{ start, conversationId, filter, secrets }: EventWatchRequest,
		signal: AbortSignal,
		owner?: string,
	): AsyncGenerator<WatchBatch<EventResponse>, void, undefined> {
		const conditions = eventConditionsOf(filter);
		const responder = () => (stored: StoredEvent) =>
			eventMeets(conditions, stored) ? this.#responseTo(stored, secrets) : undefined;
		const variant = [conditions, secrets];
		return this.#watches.watch({ start, conversationId, owner, variant, responder }, signal);
	}

	#responseTo(stored: StoredEvent, secrets: SecretsForm): SharedResponse<EventResponse> {
		const { sequence, conversationId } = stored;
		const content = () => ({ case: "event", value: this.#views.toEntry(stored, secrets) }) as const;
		const json = () => eventJson(this.#views.toText(stored, secrets), conversationId);
		return this.#responses[secrets].getOrInsertComputed(stored, () => eventResponse(sequence, content, json));
	}
}

function eventResponse(
	sequence: bigint,
	content: () => NonNullable<MessageInitShape<EventResponse>["content"]>,
	json?: () => string,
): SharedResponse<EventResponse> {
	const schema = WatchConversationEventsResponseSchema;
	return new SharedResponse(schema, sequence, () => create(schema, { sequence, content: content() }), json);
}
