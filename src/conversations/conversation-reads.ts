import type { EventFormat } from "../events/event-format.ts";
import type { StoredEvent, StoredUpdate } from "../store/entries.ts";
import { EraseConversations, type OnErased } from "./erase.ts";
import { CountConversations } from "./read/count.ts";
import { EventViews, ListConversationEvents } from "./read/events.ts";
import { ListConversationGaps } from "./read/gaps.ts";
import { GetConversation } from "./read/get.ts";
import { ListConversations } from "./read/list.ts";
import type { OnUnreadable, RecordOpening } from "./read/records.ts";
import { ReportUsage } from "./read/report-usage.ts";
import { SearchConversations } from "./read/search.ts";
import { ListConversationUpdates, UpdateViews } from "./read/updates.ts";
import { type StoreReads, visibleStore } from "./read/visible-store.ts";
import { ListRefusedPosts } from "./refused/list-and-retry.ts";
import type { RefusedPosts } from "./refused/refused-posts.ts";
import { type ClockSkews, ListSenders } from "./senders.ts";
import type { RecentEntries } from "./watch/recent-entries.ts";
import type { WatchOptions } from "./watch/watch.ts";
import { EventWatches, type EventWatchRequest, UpdateWatches, type UpdateWatchRequest } from "./watch/watches.ts";

/** Everything that a caller can read, watch and erase. It is limited to what the caller may see. */
export type Reads = ReturnType<ConversationReads["of"]>;

/** What {@link ConversationReads} needs. */
interface ReadOptions extends RecordOpening {
	readonly store: StoreReads;
	readonly events: Pick<EventFormat, "open" | "read">;
	readonly watches: WatchOptions;
	/** The clocks of senders. */
	readonly clocks: Pick<ClockSkews, "of">;
	readonly refused: Pick<RefusedPosts, "written" | "bodyOf">;
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
		this.#eventViews = new EventViews(events, onUnreadableEvent);
		this.#watches = new UpdateWatches(store, () => this.#views, watches);
		this.#eventWatches = new EventWatches(store, this.#eventViews, watches);
	}

	/** The newest updates and events, as far as they are in memory for watchers. */
	get recent(): { readonly updates: RecentEntries<StoredUpdate>; readonly events: RecentEntries<StoredEvent> } {
		return { updates: this.#watches.recent, events: this.#eventWatches.recent };
	}

	/** Returns the reads of a caller. */
	of({ owner }: { readonly owner: string | undefined }) {
		const { events, clocks, refused, onErased, onUnreadable, onUnreadableEvent } = this.#options;
		const store = visibleStore(this.#options.store, owner);
		return {
			get: new GetConversation(store, this.#options),
			list: new ListConversations(store, this.#options),
			counts: new CountConversations(store),
			updates: new ListConversationUpdates(store, () => this.#views),
			events: new ListConversationEvents(store, this.#eventViews),
			usage: new ReportUsage(store),
			gaps: new ListConversationGaps(store),
			erasing: new EraseConversations(store, onErased, onUnreadable),
			senders: new ListSenders(store, clocks),
			refused: new ListRefusedPosts(store, refused),
			search: new SearchConversations(store, events, onUnreadableEvent),
			watchUpdates: (request: UpdateWatchRequest, signal: AbortSignal) => this.#watches.watch(request, signal, owner),
			watchEvents: (request: EventWatchRequest, signal: AbortSignal) =>
				this.#eventWatches.watch(request, signal, owner),
		};
	}
}
