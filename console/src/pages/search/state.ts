import { effect, signal } from "@preact/signals";
import { EventOrder } from "../../../../gen/conversations/v1/conversation_event_service_pb.js";
import { type SearchHit, SearchOrder } from "../../../../gen/conversations/v1/conversation_search_service_pb.js";
import { events, KEY_REFUSED, type Problem, problemOf, search } from "../../service/service.ts";
import { accessKey, signOut } from "../../service/session.ts";
import { path } from "../../shell/route.ts";
import { filterOf } from "../conversations/filter.ts";

/** Orders by their names in the address, which are those of the JSON API, with the words for a person. */
export const ORDERS: ReadonlyMap<string, { readonly order: SearchOrder; readonly words: string }> = new Map([
	["newest", { order: SearchOrder.NEWEST, words: "newest match" }],
	["relevance", { order: SearchOrder.RELEVANCE, words: "relevance" }],
]);

/** Number of hits that are loaded at a time. */
const PAGE_SIZE = 20;

/** How far the index reaches, and what the newest event is. */
export interface Reach {
	readonly indexed: bigint;
	readonly newest: bigint;
}

/** The hits of one search. A search of another address has results of its own, so answers that come late are not shown. */
export class SearchResults {
	readonly hits = signal<readonly SearchHit[]>([]);
	readonly loading = signal(false);
	readonly problem = signal<Problem | undefined>(undefined);
	/** Whether there may be more hits than those that are loaded. */
	readonly more = signal(false);
	/** Index of the chosen hit or place; -1 if none is. */
	readonly chosen = signal(-1);
	/** Pixels by which the page was scrolled when it was left. */
	scrolled = 0;
	/** Undefined until it is known. */
	readonly reach = signal<Reach | undefined>(undefined);
	readonly #query: URLSearchParams;
	readonly #abort = new AbortController();
	#nextPage = "";

	/** @param query parameters of the address; without `query` nothing is searched */
	constructor(query: URLSearchParams) {
		this.#query = query;
		if (query.has("query")) void this.load();
	}

	/** Loads the first or the next hits. */
	async load(): Promise<void> {
		if (this.loading.value) return;
		this.loading.value = true;
		this.problem.value = undefined;
		try {
			const [page, newest] = await Promise.all([this.#page(this.#nextPage), this.#newestEvent()]);
			const known = new Set(this.hits.value.map(({ summary }) => summary?.id));
			this.hits.value = [...this.hits.value, ...page.hits.filter(({ summary }) => !known.has(summary?.id))];
			this.#nextPage = page.nextPageToken;
			this.more.value = page.nextPageToken !== "";
			this.reach.value = { indexed: page.indexedThroughSequence, newest };
		} catch (error) {
			if (this.#abort.signal.aborted) return;
			const problem = problemOf(error);
			if (problem.kind === "key") signOut(KEY_REFUSED);
			this.problem.value = problem;
		} finally {
			this.loading.value = false;
		}
	}

	close(): void {
		this.#abort.abort();
	}

	async #page(pageToken: string) {
		return await search.searchConversations(
			{
				query: this.#query.get("query") ?? "",
				filter: filterOf(this.#query, Date.now()),
				orderBy: ORDERS.get(this.#query.get("order_by") ?? "")?.order ?? SearchOrder.NEWEST,
				pageSize: PAGE_SIZE,
				pageToken,
			},
			{ signal: this.#abort.signal },
		);
	}

	/** Returns the sequence of the newest event. */
	async #newestEvent(): Promise<bigint> {
		const request = { order: EventOrder.NEWEST_FIRST, pageSize: 1 };
		const newest = await events.listConversationEvents(request, { signal: this.#abort.signal });
		return newest.events[0]?.sequence ?? 0n;
	}
}

/** The results that were shown last, so that a person who comes back from a conversation finds them as they were. */
let last: { readonly key: string; readonly results: SearchResults } | undefined;

function forget(): void {
	last?.results.close();
	last = undefined;
}

// Another key may see other conversations.
accessKey.subscribe(forget);
effect(() => {
	const [page, id] = path.value;
	if (page !== "search" && (page !== "conversations" || id === undefined)) forget();
});

/**
 * Returns the results of a search: those that were shown last if it is the same one, or new ones.
 *
 * @param parameters parameters of the address
 * @param again number of times that a person asked for the search anew
 */
export function resultsOf(parameters: string, again: number): SearchResults {
	const key = `${again} ${parameters}`;
	if (last?.key !== key || last.results.problem.value !== undefined) {
		forget();
		last = { key, results: new SearchResults(new URLSearchParams(parameters)) };
	}
	return last.results;
}
