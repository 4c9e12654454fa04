import { setImmediate } from "node:timers/promises";
import { invalid, ServiceError } from "../../errors.ts";
import type { EventQuery, StoredEvent, StoredUpdate, UpdateQuery } from "../../store/entries.ts";
import type { RangeQuery, SequenceLog } from "../../store/sequence-log.ts";
import type { Store } from "../../store/store.ts";
import { uuid } from "./filter.ts";
import { MAX_PAGE_BYTES, type PageRequest, pageSize, readPageToken, writePageToken } from "./page.ts";
import { recordSize } from "./records.ts";

/** A query that every log supports. The log of events ignores `withRecords`: events are always read whole. */
type EntryQuery = Pick<UpdateQuery, "after" | "conversationId" | "owner" | "limit" | "maxBytes" | "withRecords">;

export type LogEntry = Pick<StoredEvent, "sequence" | "conversationId" | "owner">;

/** A log of the store, as lists and watches read it. `Filter` adds the filter of its queries to {@link EntryQuery}. */
export interface EntryLog<Entry extends LogEntry, Filter extends object = object> {
	/** Plural name of its entries, as it begins a sentence. It is also the name of the list in page tokens. */
	readonly name: "Updates" | "Events";
	readonly log: SequenceLog<Entry, EntryQuery & Filter>;
	/** Returns the bytes of the part of an entry that has no limit of its own: its record or text. */
	readonly sizeOf: (entry: Entry) => number;
}

export function updateLog({ updates }: Pick<Store, "updates">): EntryLog<StoredUpdate, Pick<UpdateQuery, "origin">> {
	return { name: "Updates", log: updates, sizeOf: ({ record }) => recordSize(record) };
}

export function eventLog({ events }: Pick<Store, "events">): EntryLog<StoredEvent, Pick<EventQuery, "conditions">> {
	return { name: "Events", log: events, sizeOf: ({ event }) => ("unreadable" in event ? 0 : event.text.byteLength) };
}

/**
 * Asserts that no entry that a reader of a log has still to receive has been pruned. Call it after reading the entries,
 * so that pruning during the read is noticed. Only the conversation of a pruned entry is known, so the entry counts as
 * missing even if the reader's filter would have excluded it.
 *
 * @param after sequence through which the reader has received everything
 * @param query the only conversation that the reader requests; for a reader from the beginning, the last removal before
 *   it started, because it requests the entries that were stored then
 * @throws ServiceError `out_of_range` that names the oldest sequence to start after, or `unavailable` when the store
 *   cannot be read
 */
export async function assertNotPruned<Entry extends LogEntry>(
	{ name, log }: EntryLog<Entry>,
	after: bigint,
	query: RangeQuery,
): Promise<void> {
	const { prunedThrough } = await log.range(query);
	if (prunedThrough <= after) return;
	throw new ServiceError(
		"out_of_range",
		`${name} after sequence ${after} have been pruned; start after sequence ${prunedThrough} or later, ` +
			`or after 0 to receive all ${name.toLowerCase()} that are kept`,
	);
}

/** Throws `out_of_range` that names the newest sequence of a log if `after` is beyond it. */
export function assertNotBeyondNewest(after: bigint, newest: bigint): void {
	if (after <= newest) return;
	throw new ServiceError(
		"out_of_range",
		`after_sequence ${after} is beyond the newest sequence, which is ${newest}: it comes from another store`,
	);
}

export interface LogPageRequest extends PageRequest {
	/** UUID of the only conversation; empty for all conversations. */
	readonly conversationId: string;
	/** Only entries after this sequence; 0 for all stored entries. */
	readonly afterSequence: bigint;
	/** Only entries before this sequence; 0 or undefined for no limit. Only the log of events has it. */
	readonly beforeSequence?: bigint | undefined;
	/** Whether the newest entry comes first. Only the log of events has it. */
	readonly newestFirst?: boolean | undefined;
}

interface LogPageOptions<Entry, Filter, View> {
	/** Only entries that match it. Equal conditions must be in equal order, because page tokens depend on it. */
	readonly filter: Filter;
	readonly maxReadBytes: number;
	readonly toView: (entry: Entry) => View | Promise<View>;
	/** Returns the bytes of an entry in the response. */
	readonly sizeOf: (view: View, entry: Entry) => number;
}

export interface LogPage<View> {
	readonly entries: readonly View[];
	readonly nextPageToken: string;
}

/** Number of views that are made before the event loop runs other work. */
const VIEWS_AT_ONCE = 8;

/**
 * Reads a page of a log. It ends before its entries exceed {@link MAX_PAGE_BYTES}, but has at least
 * one entry if there is one.
 *
 * @throws ServiceError `invalid_argument` that names the field, `out_of_range` when entries of the page were pruned or
 *   `afterSequence` is beyond the newest sequence, or `unavailable` when the store cannot be read
 */
export async function readLogPage<Entry extends LogEntry, Filter extends object, View>(
	source: EntryLog<Entry, Filter>,
	request: LogPageRequest,
	{ filter, maxReadBytes: maxBytes, toView, sizeOf }: LogPageOptions<Entry, Filter, View>,
): Promise<LogPage<View>> {
	const { name, log } = source;
	const { afterSequence, beforeSequence = 0n, newestFirst = false, pageToken } = request;
	const limit = pageSize(request.pageSize);
	const conversationId = request.conversationId === "" ? undefined : uuid(request.conversationId, "conversation_id");
	if (afterSequence < 0n) throw invalid("after_sequence", "must not be negative");
	if (beforeSequence < 0n) throw invalid("before_sequence", "must not be negative");
	const end = beforeSequence === 0n ? undefined : beforeSequence;
	const scope = { conversationId, afterSequence, ...filter, before: end, newestFirst: newestFirst || undefined };
	const [cursor] = readPageToken(name, scope, pageToken);
	/** Returns the bounds of the entries that follow a position of the list. */
	const following = (position: bigint | undefined) =>
		newestFirst
			? { after: afterSequence, before: position ?? end, newestFirst }
			: { after: position ?? afterSequence, before: end };
	const { after } = following(cursor);
	assertNotBeyondNewest(after, (await log.range()).newest);
	const stored = await log.list({
		...filter,
		...following(cursor),
		conversationId,
		limit,
		maxBytes,
		withRecords: true,
	});
	// A list from 0 consists of the entries that are stored when each page is read, so pruning is no error.
	if (afterSequence > 0n) await assertNotPruned(source, after, { conversationId });
	const entries: View[] = [];
	let through: bigint | undefined;
	let bytes = 0;
	for (const entry of stored) {
		const view = await toView(entry);
		bytes += sizeOf(view, entry);
		if (through !== undefined && bytes > MAX_PAGE_BYTES) break;
		entries.push(view);
		through = entry.sequence;
		if (entries.length % VIEWS_AT_ONCE === 0) await setImmediate();
	}
	if (through === undefined) return { entries, nextPageToken: "" };
	// A page can end because of the number or the size of its entries, so only the store knows whether more follow.
	const [next] = await log.list({ ...filter, ...following(through), conversationId, limit: 1, withRecords: false });
	return { entries, nextPageToken: next === undefined ? "" : writePageToken(name, scope, through) };
}
