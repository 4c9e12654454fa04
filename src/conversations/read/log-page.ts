import { setImmediate } from "node:timers/promises";
import { assertNotBeyondNewest, assertNotPruned } from "../watch/pruned.ts";
import type { EntryLog, LogEntry } from "./entry-log.ts";
import { invalid, uuid } from "./filter.ts";
import { MAX_PAGE_BYTES, pageSize } from "./page.ts";
import { readPageToken, writePageToken } from "./page-token.ts";

/** Which page of a log is requested. */
export interface LogPageRequest {
	/** UUID of the only conversation; empty for all conversations. */
	readonly conversationId: string;
	/** Only entries after this sequence; 0 for all stored entries. */
	readonly afterSequence: bigint;
	/** Only entries before this sequence; 0 or undefined for no limit. Only the log of events has it. */
	readonly beforeSequence?: bigint | undefined;
	/** Whether the newest entry comes first. Only the log of events has it. */
	readonly newestFirst?: boolean | undefined;
	/** 0 means the default size. */
	readonly pageSize: number;
	/** Empty for the first page. */
	readonly pageToken: string;
}

/** How the entries of a page are read and shown. */
export interface LogPageOptions<Entry, Filter, View> {
	/** Only entries that match it. Equal conditions must be in equal order, because page tokens depend on it. */
	readonly filter: Filter;
	/** Maximum bytes to read for the page. */
	readonly maxReadBytes: number;
	readonly toView: (entry: Entry) => View | Promise<View>;
	/** Returns the bytes of an entry in the response. */
	readonly sizeOf: (view: View, entry: Entry) => number;
}

/** A page of a log. */
export interface LogPage<View> {
	readonly entries: readonly View[];
	/** Empty on the last page. */
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
	const cursor = pageToken === "" ? undefined : readPageToken(name, scope, pageToken);
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
