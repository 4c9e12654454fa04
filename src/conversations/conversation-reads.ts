import type { Score } from "../../gen/conversations/v1/score_service_pb.js";
import { type CallSignal, ServiceError } from "../errors.ts";
import type { EventFormat } from "../events/event-format.ts";
import { readExactJson } from "../record/json/exact-json.ts";
import type { ExactJson } from "../record/json/json-value.ts";
import { conversationEraser, type OnErased } from "./erase.ts";
import { type CountRequest, countConversations } from "./read/count.ts";
import { type EventsRequest, type EventText, type EventViews, eventViews, listEvents } from "./read/events.ts";
import { type GapsRequest, listGaps } from "./read/gaps.ts";
import { type ListRequest, listConversations } from "./read/list.ts";
import { type GetRequest, getEncoded, getJson, type OnUnreadable, type RecordOpening } from "./read/records.ts";
import { ReportUsage } from "./read/report-usage.ts";
import { type SearchRequest, searchConversations } from "./read/search.ts";
import { listUpdates, type UpdatesRequest, UpdateViews } from "./read/updates.ts";
import { type StoreReads, visibleStore } from "./read/visible-store.ts";
import { getRefusedPost, listRefusedPosts, type RefusedRequest } from "./refused/list-and-retry.ts";
import type { RefusedPosts } from "./refused/refused-posts.ts";
import { scoresOf } from "./scores.ts";
import { type ClockSkews, listSenders } from "./senders.ts";
import type { WatchOptions } from "./watch/watch.ts";
import {
	type EventWatches,
	type EventWatchRequest,
	eventWatches,
	type UpdateWatches,
	type UpdateWatchRequest,
	updateWatches,
} from "./watch/watches.ts";

/** Everything that a caller can read, watch and erase. It is limited to what the caller may see. */
export type Reads = ReturnType<ConversationReads["of"]>;

interface ReadOptions extends RecordOpening {
	readonly store: StoreReads;
	readonly events: Pick<EventFormat, "open" | "read">;
	readonly watches: WatchOptions;
	readonly clocks: Pick<ClockSkews, "of">;
	readonly refused: Pick<RefusedPosts, "bodyOf">;
	readonly onUnreadableEvent: OnUnreadable;
	readonly onErased: OnErased;
}

/** The reads of all callers. Watchers of different owners share what is in memory. */
export class ConversationReads {
	readonly #options: ReadOptions;
	#views: UpdateViews;
	readonly #eventViews: EventViews;
	readonly #watches: UpdateWatches;
	readonly #eventWatches: EventWatches;

	constructor(options: ReadOptions) {
		const { store, events, watches, onUnreadableEvent } = options;
		this.#options = options;
		const newViews = () => new UpdateViews(store, options);
		this.#views = newViews();
		store.updates.subscribe((_, change) => {
			// After a loss, a sequence can be that of another update.
			if (change !== "added") this.#views = newViews();
		});
		this.#eventViews = eventViews(events, onUnreadableEvent);
		this.#watches = updateWatches(store, () => this.#views, watches);
		this.#eventWatches = eventWatches(store, this.#eventViews, watches);
	}

	/** The newest updates and events, as far as they are in memory for watchers. */
	get recent() {
		return { updates: this.#watches.recent, events: this.#eventWatches.recent };
	}

	of({ owner }: { readonly owner: string | undefined }) {
		const { events: format, clocks, refused, onErased, onUnreadableEvent } = this.#options;
		const store = visibleStore(this.#options.store, owner);
		return {
			get: {
				getEncoded: (request: GetRequest) => getEncoded(store, this.#options, request),
				getJson: (request: GetRequest) => getJson(store, this.#options, request),
			},
			list: { list: (request: ListRequest) => listConversations(store, this.#options, request) },
			counts: { count: (request: CountRequest) => countConversations(store, request) },
			updates: { list: (request: UpdatesRequest) => listUpdates(store, this.#views, request) },
			events: {
				list: (request: EventsRequest) => listEvents(store, request, this.#eventViews.toEntry),
				listTexts: (request: EventsRequest) => listEvents(store, request, this.#eventViews.toText),
			},
			usage: new ReportUsage(store),
			gaps: { list: (request: GapsRequest) => listGaps(store, request) },
			scores: scoresOf(store),
			erasing: conversationEraser(store, onErased),
			senders: { list: () => listSenders(store, clocks) },
			refused: {
				list: (request: RefusedRequest) => listRefusedPosts(store, request),
				get: (id: string, withBody: boolean) => getRefusedPost(store, refused, id, withBody),
			},
			search: {
				search: (request: SearchRequest, signal?: CallSignal) =>
					searchConversations({ store, format, onUnreadable: onUnreadableEvent }, request, signal),
			},
			watchUpdates: (request: UpdateWatchRequest, signal: AbortSignal) => this.#watches.watch(request, signal, owner),
			watchEvents: (request: EventWatchRequest, signal: AbortSignal) =>
				this.#eventWatches.watch(request, signal, owner),
		};
	}
}

const PAGE = 1_000;

/** Yields the events of a conversation in the order of the log, with secrets redacted. */
export async function* redactedEvents(
	{ events }: Pick<Reads, "events">,
	conversationId: string,
): AsyncGenerator<EventText> {
	for (let pageToken = ""; ; ) {
		const page = await events.listTexts({
			...{ conversationId, pageToken, pageSize: PAGE, afterSequence: 0n, secrets: "redacted" },
		});
		yield* page.entries;
		pageToken = page.nextPageToken;
		if (pageToken === "") return;
	}
}

/** Yields the scores of a conversation and of its events, in the order in which they are listed. Throws if it is not there. */
export async function* scoresIn({ scores }: Pick<Reads, "scores">, conversationId: string): AsyncGenerator<Score> {
	for (let pageToken = ""; ; ) {
		const page = await scores.list({ conversationId, name: "", pageToken, pageSize: PAGE });
		yield* page.scores;
		pageToken = page.nextPageToken;
		if (pageToken === "") return;
	}
}

/**
 * Returns the record of a conversation, with secrets redacted; undefined if each record that was posted was refused or
 * lost.
 */
export async function redactedRecord({ get }: Pick<Reads, "get">, id: string): Promise<ExactJson | undefined> {
	try {
		return readExactJson((await get.getJson({ id, sequence: undefined, secrets: "redacted" })).conversation);
	} catch (error) {
		if (error instanceof ServiceError && error.kind === "not_found") return undefined;
		throw error;
	}
}
