import { create } from "@bufbuild/protobuf";
import { SearchOrder } from "../../../gen/conversations/v1/conversation_search_service_pb.js";
import type { ConversationFilter } from "../../../gen/conversations/v1/conversation_service_pb.js";
import { type ConversationSummary, ConversationSummarySchema } from "../../../gen/conversations/v1/summary_pb.js";
import { type CallSignal, invalid, isSenderGone, SENDER_GONE } from "../../errors.ts";
import type { EventFormat } from "../../events/event-format.ts";
import { eventTexts } from "../../search/event-texts.ts";
import { matchDocument, type Snippet } from "../../search/match.ts";
import { indexQuery, isExact, parseQuery, type TextQuery } from "../../search/query.ts";
import type { Condition } from "../../store/condition.ts";
import type { StoredConversation } from "../../store/conversation-lists.ts";
import type { StoredEvent } from "../../store/entries.ts";
import { type DocumentPosition, type DocumentQuery, type FoundDocument, newestFirst } from "../../store/text-index.ts";
import { conditionsOf } from "./filter.ts";
import { type ListScope, type PageRequest, pageSize, readPageToken, writePageToken } from "./page.ts";
import { decodeSummary, type OnUnreadable, tryRead } from "./records.ts";
import type { StoreReads } from "./visible-store.ts";

export interface SearchRequest extends PageRequest {
	readonly query: string;
	readonly filter?: ConversationFilter | undefined;
	/** UNSPECIFIED means the same as undefined: the newest match first. */
	readonly orderBy?: SearchOrder | undefined;
}

export interface SearchPlace extends Snippet {
	/** Sequence of the event; 0 for the title. */
	readonly sequence: bigint;
}

export interface SearchHit {
	readonly summary: ConversationSummary;
	/** At least one and at most {@link MAX_PLACES}: the title, then the newest events. */
	readonly places: readonly SearchPlace[];
}

export interface SearchPage {
	readonly hits: readonly SearchHit[];
	/** Empty on the last page. */
	readonly nextPageToken: string;
	/** Sequence of the event up to which everything can be found. */
	readonly indexedThrough: bigint;
}

const LIST = "search";
const MAX_PLACES = 3;
/** Number of events of a conversation that are examined for its places when the index does not decide alone. */
const EXAMINED_FOR_PLACES = 10;
const MAX_READ = 1_000;
/** Maximum number of documents that are examined for a page, besides its hits: it then ends early. */
const MAX_EXAMINED = 1_000;
const READ_TOGETHER = 50;
/** Number of the newest documents that are compared for relevance: when the index decides alone, and when not. */
const WINDOW = 5_000;
const EXAMINED_WINDOW = 500;
/** Number of matching events that a matching title counts as. */
const TITLE_WEIGHT = 10;

export interface Searched {
	readonly store: Pick<StoreReads, "listConversations" | "readEvents" | "readIndexProgress" | "findDocuments">;
	readonly format: Pick<EventFormat, "read">;
	readonly onUnreadable: OnUnreadable;
}

/**
 * Finds conversations by their texts.
 *
 * @param signal ends the search before its next read of the store
 * @throws ServiceError `invalid_argument` that names the field, or `unavailable` when the store cannot be read or the
 *   signal fired
 */
export async function searchConversations(
	searched: Searched,
	request: SearchRequest,
	signal?: CallSignal,
): Promise<SearchPage> {
	const { pageToken } = request;
	const size = pageSize(request.pageSize);
	const query = parseQuery(request.query);
	const conditions = conditionsOf(request.filter);
	const order = orderOf(request.orderBy);
	const scope = { query, conditions, order };
	// Before the search, so that nothing up to there is missing.
	const { events: indexedThrough } = await searched.store.readIndexProgress();
	const search = searchOf(searched, query, conditions, signal);
	const page = await (order === "newest" ? newestPage : relevantPage)(search, scope, pageToken, size);
	return { ...page, indexedThrough };
}

function orderOf(order: SearchOrder | undefined): "newest" | "relevance" {
	if (order === undefined || order === SearchOrder.UNSPECIFIED || order === SearchOrder.NEWEST) return "newest";
	if (order === SearchOrder.RELEVANCE) return "relevance";
	throw invalid("order_by", "is not a known order");
}

type Search = ReturnType<typeof searchOf>;
type Hits = Omit<SearchPage, "indexedThrough">;

/** Follows the documents from the newest to the oldest. The token has the position where the last page ended. */
async function newestPage(search: Search, scope: ListScope, token: string, size: number): Promise<Hits> {
	const start = token === "" ? undefined : positionOf(readPageToken(LIST, scope, token));
	const hits: FoundDocument[] = [];
	const known = new Map<string, FoundDocument[]>();
	/** Conversations that are hits, or were hits of earlier pages. */
	const done = new Set<string>();
	let before = start;
	let isEnd = false;
	// When the index decides alone, few documents cost as much as many.
	for (
		let limit = search.isExact ? MAX_READ : 2 * size + 10;
		!isEnd && hits.length <= size && search.examined.size < MAX_EXAMINED + size;
	) {
		limit = Math.min(limit, MAX_READ);
		const documents = await search.find({ before, except: [...done], limit });
		for (const document of documents) known.getOrInsertComputed(document.conversationId, () => []).push(document);
		const ids = [...new Set(documents.map(({ conversationId }) => conversationId))];
		const earlier = start === undefined ? new Set<string>() : await search.conversationsWithin(ids, { from: start });
		for (const id of earlier) done.add(id);
		const found = await search.newestMatches(documents.filter(({ conversationId }) => !earlier.has(conversationId)));
		hits.push(...found);
		for (const { conversationId } of found) done.add(conversationId);
		isEnd = documents.length < limit;
		before = documents.at(-1) ?? before;
		limit *= 4;
	}
	const page = hits.slice(0, size);
	const next = hits.length > size ? page.at(-1) : isEnd ? undefined : before;
	return {
		hits: await search.hitsOf(page, known),
		nextPageToken: next === undefined ? "" : writePageToken(LIST, scope, next.event, next.title),
	};
}

/**
 * Compares the documents of a window with each other. The token has the position where the first window begins, which new
 * documents do not change, that of the present window, and the number of hits of the window that earlier pages had.
 */
async function relevantPage(search: Search, scope: ListScope, token: string, size: number): Promise<Hits> {
	const [anchorEvent, anchorTitle, event, title, skipped = 0n] = readPageToken(LIST, scope, token);
	let anchor = anchorEvent === undefined ? undefined : positionOf([anchorEvent, anchorTitle]);
	let before = anchor && positionOf([event, title]);
	const limit = search.isExact ? WINDOW : EXAMINED_WINDOW;
	const all = await search.find({ before, limit });
	const isEnd = all.length < limit;
	const documents = search.isExact ? all : await search.matching(all);
	const groups = Map.groupBy(documents, ({ conversationId }) => conversationId);
	if (anchor !== undefined && before !== undefined && newestFirst(anchor, before) !== 0)
		for (const id of await search.conversationsWithin([...groups.keys()], { from: before, before: anchor }))
			groups.delete(id);
	const ranked = [...groups.values()]
		.flatMap(([newest, ...others]) =>
			newest === undefined
				? []
				: [{ newest, weight: weightOf(newest) + others.reduce((sum, one) => sum + weightOf(one), 0) }],
		)
		.sort((a, b) => b.weight - a.weight || newestFirst(a.newest, b.newest));
	const end = Number(skipped) + size;
	const hits = await search.hitsOf(
		ranked.slice(Number(skipped), end).map(({ newest }) => newest),
		// Later windows, and later pages, do not begin with the newest documents.
		anchor === undefined ? groups : new Map(),
	);
	const first = all[0];
	const last = all.at(-1);
	if (first === undefined || last === undefined) return { hits, nextPageToken: "" };
	// The first window ends just after its newest document.
	anchor ??= { event: first.event, title: first.title + 1n };
	before ??= anchor;
	const hasMore = end < ranked.length;
	if (!hasMore && isEnd) return { hits, nextPageToken: "" };
	const [next, count] = hasMore ? [before, BigInt(end)] : [last, 0n];
	const numbers = [anchor.event, anchor.title, next.event, next.title, count];
	return { hits, nextPageToken: writePageToken(LIST, scope, ...numbers) };
}

function weightOf({ title }: DocumentPosition): number {
	return title > 0n ? TITLE_WEIGHT : 1;
}

function positionOf([event = 0n, title = 0n]: readonly (bigint | undefined)[]): DocumentPosition {
	return { event, title };
}

/** The documents of one search. Those that the index finds are examined: their texts decide. */
function searchOf(
	{ store, format, onUnreadable }: Searched,
	query: TextQuery,
	conditions: readonly Condition[],
	signal: CallSignal | undefined,
) {
	const ofIndex = { ...indexQuery(query), conditions };
	/** Whether the index decides alone. */
	const exact = isExact(query);
	/** Examined documents; undefined for those that do not meet the query. */
	const examined = new Map<string, Snippet | undefined>();
	const summaries = new Map<string, ConversationSummary | undefined>();
	return { isExact: exact, examined, find, conversationsWithin, newestMatches, matching, hitsOf };

	async function find(
		which: Pick<DocumentQuery, "before" | "from" | "of" | "except" | "limit">,
	): Promise<readonly FoundDocument[]> {
		requireCaller();
		return await store.findDocuments({ ...ofIndex, ...which }, signal);
	}

	function requireCaller(): void {
		if (isSenderGone(signal)) throw SENDER_GONE;
	}

	/** Returns those of the conversations that have a document in a range of positions which meets the query. */
	async function conversationsWithin(
		of: readonly string[],
		range: Pick<DocumentQuery, "from" | "before">,
	): Promise<ReadonlySet<string>> {
		if (of.length === 0) return new Set();
		const found = await find({ ...range, of, limit: exact ? 1 : EXAMINED_FOR_PLACES });
		const met = exact ? found : await matching(found);
		return new Set(met.map(({ conversationId }) => conversationId));
	}

	/** Returns the newest document of each conversation that meets the query, the newest first. */
	async function newestMatches(documents: readonly FoundDocument[]): Promise<FoundDocument[]> {
		const newest = Map.groupBy(await matching(documents), ({ conversationId }) => conversationId);
		return [...newest.values()].flatMap(([first]) => first ?? []);
	}

	async function matching(documents: readonly FoundDocument[]): Promise<FoundDocument[]> {
		await examine(documents);
		return documents.filter((document) => examined.get(keyOf(document)) !== undefined);
	}

	/**
	 * Returns hits with their summaries and places. One that was removed meanwhile is left out. `known` has, of some
	 * conversations, the newest documents that the index finds, the newest first.
	 */
	async function hitsOf(
		documents: readonly FoundDocument[],
		known: ReadonlyMap<string, readonly FoundDocument[]>,
	): Promise<SearchHit[]> {
		if (documents.length === 0) return [];
		const ids = documents.map(({ conversationId }) => conversationId);
		const newest = new Map(ids.map((id) => [id, (known.get(id) ?? []).filter(isEvent).slice(0, MAX_PLACES)]));
		const isKnown = (id: string) => exact && newest.get(id)?.length === MAX_PLACES;
		const unknown = ids.filter((id) => !isKnown(id));
		const limit = exact ? MAX_PLACES : EXAMINED_FOR_PLACES;
		const found = unknown.length === 0 ? [] : await find({ of: unknown, limit });
		const candidates = [...documents, ...ids.filter(isKnown).flatMap((id) => newest.get(id) ?? []), ...found];
		const events = new Map(candidates.filter(isEvent).map((document) => [keyOf(document), document]));
		const places = Map.groupBy(await matching([...events.values()]), ({ conversationId }) => conversationId);
		await readSummaries(ids);
		return ids.flatMap((id) => {
			const summary = summaries.get(id);
			const title = matchTitle(id);
			const own = [
				...(title === undefined ? [] : [{ sequence: 0n, ...title }]),
				...(places.get(id) ?? []).sort(newestFirst).flatMap((place) => placeOf(place)),
			];
			return summary === undefined || own.length === 0 ? [] : [{ summary, places: own.slice(0, MAX_PLACES) }];
		});
	}

	function placeOf(document: FoundDocument): SearchPlace[] {
		const snippet = examined.get(keyOf(document));
		return snippet === undefined ? [] : [{ sequence: document.event, ...snippet }];
	}

	async function examine(documents: readonly FoundDocument[]): Promise<void> {
		const unknown = documents.filter((document) => !examined.has(keyOf(document)));
		await readSummaries(unknown.flatMap(({ title, conversationId }) => (title > 0n ? [conversationId] : [])));
		for (const document of unknown)
			examined.set(keyOf(document), isEvent(document) ? undefined : matchTitle(document.conversationId));
		const events = unknown.filter(isEvent);
		for (let at = 0; at < events.length; at += READ_TOGETHER) {
			requireCaller();
			const sequences = events.slice(at, at + READ_TOGETHER).map(({ event }) => event);
			for (const event of await store.readEvents(sequences))
				examined.set(keyOf({ event: event.sequence, title: 0n }), matchEvent(event));
		}
	}

	/** Compares the present title, because the index may have a former one. */
	function matchTitle(conversationId: string): Snippet | undefined {
		const present = summaries.get(conversationId)?.title;
		return present === undefined ? undefined : matchDocument(query, [{ field: "title", text: present }]);
	}

	function matchEvent({ conversationId, sequence, event }: StoredEvent): Snippet | undefined {
		if ("unreadable" in event) return undefined;
		return tryRead({ conversationId, sequence }, onUnreadable, () =>
			matchDocument(query, eventTexts(format.read(conversationId, event))),
		);
	}

	async function readSummaries(ids: readonly string[]): Promise<void> {
		const unknown = [...new Set(ids)].filter((id) => !summaries.has(id));
		for (let at = 0; at < unknown.length; at += MAX_READ) {
			const some = unknown.slice(at, at + MAX_READ);
			for (const id of some) summaries.set(id, undefined);
			const named: Condition[] = [{ kind: "ids", ids: some }, ...conditions];
			const found = await store.listConversations({ conditions: named, limit: some.length, withRecords: false });
			for (const stored of found) summaries.set(stored.conversationId, summaryOf(stored));
		}
	}
}

/** Returns the summary; only with the id if it cannot be read, as in lists. */
function summaryOf({ conversationId, summary }: StoredConversation): ConversationSummary {
	return (
		tryRead(
			{ conversationId, sequence: 0n },
			() => undefined,
			() => decodeSummary(summary),
		) ?? create(ConversationSummarySchema, { id: conversationId })
	);
}

function isEvent({ title }: DocumentPosition): boolean {
	return title === 0n;
}

/** A document's position identifies it. */
function keyOf({ event, title }: DocumentPosition): string {
	return `${event} ${title}`;
}
