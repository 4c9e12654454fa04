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
import { conditionsOnUpdates, originOf } from "../read/filter.ts";
import type { PresentViews, UpdateViewOptions } from "../read/updates.ts";
import { SharedResponse } from "./shared-response.ts";
import { type WatchBatch, Watches, type WatchOptions, type WatchStart } from "./watch.ts";

type UpdateResponse = typeof WatchConversationUpdatesResponseSchema;
type EventResponse = typeof WatchConversationEventsResponseSchema;
type EventContent = NonNullable<MessageInitShape<EventResponse>["content"]>;

interface LogWatchRequest {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
}

export interface UpdateWatchRequest extends LogWatchRequest {
	/** Conditions on each update's own record. */
	readonly filter: ConversationFilter | undefined;
	/** Only updates of this origin. UNSPECIFIED means the same as undefined. */
	readonly origin?: UpdateOrigin | undefined;
	readonly view: UpdateViewOptions;
}

export type UpdateWatches = ReturnType<typeof updateWatches>;

/** Lets many watchers follow the updates of a store. */
export function updateWatches(store: Pick<Store, "updates">, presentViews: PresentViews, options: WatchOptions) {
	const watches = new Watches(updateLog(store), updateResponse, options);
	/** One message per view of an update. Watchers share it, so that it is encoded once. */
	const responses = new WeakMap<ConversationUpdate, SharedResponse<UpdateResponse>>();
	return {
		/** What is in memory for watchers. */
		recent: watches,

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
			const conditions = conditionsOnUpdates(filter);
			const origin = originOf(requestedOrigin);
			const responder = () => {
				const views = presentViews();
				return async (stored: StoredUpdate) => {
					// An erasure has no origin. It is sent to all, as in lists.
					const isOther = stored.change !== UpdateChange.ERASED && stored.origin !== origin;
					if (origin !== undefined && isOther) return undefined;
					const update = await views.toUpdate(stored, view);
					// An unreadable update is sent, because it may meet the conditions.
					if (update.summary !== undefined && !summaryMeets(conditions, update.summary)) return undefined;
					return responses.getOrInsertComputed(update, () =>
						updateResponse(update.sequence, { case: "update", value: update }, () => views.toJson(update)),
					);
				};
			};
			const variant = [conditions, origin, view];
			return watches.watch({ start, conversationId, owner, variant, responder }, signal);
		},
	};
}

function updateResponse(
	sequence: bigint,
	content: NonNullable<MessageInitShape<UpdateResponse>["content"]>,
	json?: () => string,
): SharedResponse<UpdateResponse> {
	const schema = WatchConversationUpdatesResponseSchema;
	return new SharedResponse(schema, sequence, () => create(schema, { sequence, content }), json);
}

export interface EventWatchRequest extends LogWatchRequest {
	readonly filter: ConversationEventFilter | undefined;
	readonly secrets: SecretsForm;
}

export type EventWatches = ReturnType<typeof eventWatches>;

export function eventWatches(store: Pick<Store, "events">, views: EventViews, options: WatchOptions) {
	const toHeartbeat = (sequence: bigint, heartbeat: EventContent) => eventResponse(sequence, () => heartbeat);
	const watches = new Watches<StoredEvent, EventResponse>(eventLog(store), toHeartbeat, options);
	/** One message per event and form of its secrets. Watchers share it, so that it is built and encoded once. */
	const responses: Readonly<Record<SecretsForm, WeakMap<StoredEvent, SharedResponse<EventResponse>>>> = {
		redacted: new WeakMap(),
		encrypted: new WeakMap(),
		plaintext: new WeakMap(),
	};
	function responseTo(stored: StoredEvent, secrets: SecretsForm): SharedResponse<EventResponse> {
		const { sequence, conversationId } = stored;
		const content = () => ({ case: "event", value: views.toEntry(stored, secrets) }) as const;
		const json = () => eventJson(views.toText(stored, secrets), conversationId);
		return responses[secrets].getOrInsertComputed(stored, () => eventResponse(sequence, content, json));
	}
	return {
		/** What is in memory for watchers. */
		recent: watches,

		/** Follows events as {@link updateWatches} follows updates. */
		watch(
			{ start, conversationId, filter, secrets }: EventWatchRequest,
			signal: AbortSignal,
			owner?: string,
		): AsyncGenerator<WatchBatch<EventResponse>, void, undefined> {
			const conditions = eventConditionsOf(filter);
			const responder = () => (stored: StoredEvent) =>
				eventMeets(conditions, stored) ? responseTo(stored, secrets) : undefined;
			const variant = [conditions, secrets];
			return watches.watch({ start, conversationId, owner, variant, responder }, signal);
		},
	};
}

function eventResponse(
	sequence: bigint,
	content: () => EventContent,
	json?: () => string,
): SharedResponse<EventResponse> {
	const schema = WatchConversationEventsResponseSchema;
	return new SharedResponse(schema, sequence, () => create(schema, { sequence, content: content() }), json);
}
