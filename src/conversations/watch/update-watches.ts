import { create } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	type ConversationUpdate,
	HeartbeatSchema,
	type WatchConversationUpdatesResponse,
	WatchConversationUpdatesResponseSchema,
} from "../../../gen/conversations/v1/conversation_service_pb.js";
import { UpdateChange, type UpdateOrigin } from "../../../gen/conversations/v1/update_pb.js";
import { summaryMeets } from "../../store/condition.ts";
import type { Store } from "../../store/store.ts";
import type { StoredUpdate } from "../../store/updates.ts";
import { updateLog } from "../read/entry-log.ts";
import { conditionsOf, originOf } from "../read/filter.ts";
import type { PresentViews, UpdateViewOptions } from "../read/update-view.ts";
import type { RecentEntries } from "./recent-entries.ts";
import { SharedResponse } from "./shared-response.ts";
import { type WatchBatch, Watches, type WatchOptions, type WatchStart } from "./watch.ts";

type Response = typeof WatchConversationUpdatesResponseSchema;

/** Request of a watcher of updates. */
export interface UpdateWatchRequest {
	readonly start: WatchStart;
	/** Lower-case UUID with dashes; undefined for all conversations. */
	readonly conversationId: string | undefined;
	/** Conditions on each update's own record. */
	readonly filter: ConversationFilter | undefined;
	/** Only updates of this origin. UNSPECIFIED means the same as undefined. */
	readonly origin?: UpdateOrigin | undefined;
	readonly view: UpdateViewOptions;
	/** Whether each response has its update as JSON text, for a stream of server-sent events. */
	readonly asJson?: boolean | undefined;
}

/** Lets many watchers follow the updates of a store. */
export class UpdateWatches {
	readonly #watches: Watches<StoredUpdate, Response>;
	readonly #views: PresentViews;
	/** One message per view of an update. Watchers share it, so that it is encoded once. */
	readonly #responses = new WeakMap<ConversationUpdate, SharedResponse<Response>>();

	constructor(store: Pick<Store, "updates">, views: PresentViews, options: WatchOptions) {
		this.#watches = new Watches(updateLog(store), heartbeat, options);
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
		{ start, conversationId, filter, origin: requestedOrigin, view, asJson = false }: UpdateWatchRequest,
		signal: AbortSignal,
		owner?: string,
	): AsyncGenerator<WatchBatch<Response>, void, undefined> {
		const conditions = conditionsOf(filter);
		const origin = originOf(requestedOrigin);
		const responder = () => {
			const views = this.#views();
			return async (stored: StoredUpdate) => {
				// An erasure has no origin. It is sent to all, as in lists.
				const isOther = stored.change !== UpdateChange.ERASED && stored.origin !== origin;
				if (origin !== undefined && isOther) return undefined;
				const update = await views.toUpdate(stored, asJson ? { ...view, full: false } : view);
				// An unreadable update is sent, because it may meet the conditions.
				if (update.summary !== undefined && !summaryMeets(conditions, update.summary)) return undefined;
				if (!asJson) return this.#responseOf(update);
				return responseOf(stored.sequence, undefined, await views.toJson(stored, view));
			};
		};
		const variant = [conditions, origin, view, asJson];
		return this.#watches.watch({ start, conversationId, owner, variant, responder }, signal);
	}

	#responseOf(update: ConversationUpdate): SharedResponse<Response> {
		return this.#responses.getOrInsertComputed(update, () =>
			responseOf(update.sequence, { case: "update", value: update }),
		);
	}
}

function heartbeat(sequence: bigint, latestSequence: bigint): SharedResponse<Response> {
	return responseOf(sequence, { case: "heartbeat", value: create(HeartbeatSchema, { latestSequence }) });
}

function responseOf(
	sequence: bigint,
	content: WatchConversationUpdatesResponse["content"] | undefined,
	json?: string,
): SharedResponse<Response> {
	const message = create(WatchConversationUpdatesResponseSchema, { sequence, ...(content && { content }) });
	return new SharedResponse(WatchConversationUpdatesResponseSchema, message, sequence, json);
}
