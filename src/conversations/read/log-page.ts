import { setImmediate } from "node:timers/promises";
import { assertNotPruned, assertReached } from "../watch/pruned.ts";
import type { EntryLog, LogEntry } from "./entry-log.ts";
import { invalid, uuid } from "./filter.ts";
import { MAX_PAGE_BYTES, pageSize } from "./page.ts";
import type { PageTokens } from "./page-token.ts";

/** Which page of a log is asked for. */
export interface LogPageRequest {
	/** UUID of the only conversation; empty for all. */
	readonly conversationId: string;
	/** Only entries after this sequence; 0 for all that are kept. */
	readonly afterSequence: bigint;
	/** 0 is the default size. */
	readonly pageSize: number;
	/** Empty for the first page. */
	readonly pageToken: string;
}

/** How the entries of a page are read and shown. */
export interface LogPageOptions<Entry, Filter, View> {
	/** Only entries that it selects. Equal filters must have equal members in equal order, for the page token. */
	readonly filter: Filter;
	/** Most bytes to read for the page. */
	readonly maxReadBytes: number;
	readonly toView: (entry: Entry) => View | Promise<View>;
	/** Bytes that an entry takes in the answer. */
	readonly sizeOf: (view: View, entry: Entry) => number;
}

/** A page of a log. */
export interface LogPage<View> {
	readonly entries: readonly View[];
	/** Empty on the last page. */
	readonly nextPageToken: string;
}

/** Entries that are viewed before other requests have their turn. */
const VIEWED_AT_ONCE = 8;

/**
 * A page of a log, oldest entry first. It ends before what it gives exceeds {@link MAX_PAGE_BYTES}, but has at least one
 * entry if there is one.
 *
 * @throws ServiceError `invalid_argument` that names the field, `out_of_range` when entries that the page should have
 *   have been pruned or `afterSequence` is beyond the newest one, or `unavailable` when the store cannot be read
 */
export async function readLogPage<Entry extends LogEntry, Filter extends object, View>(
	source: EntryLog<Entry, Filter>,
	tokens: PageTokens,
	request: LogPageRequest,
	{ filter, maxReadBytes: maxBytes, toView, sizeOf }: LogPageOptions<Entry, Filter, View>,
): Promise<LogPage<View>> {
	const { name, log } = source;
	const { afterSequence, pageToken } = request;
	const limit = pageSize(request.pageSize);
	const conversationId = request.conversationId === "" ? undefined : uuid(request.conversationId, "conversation_id");
	if (afterSequence < 0n) throw invalid("after_sequence", "must not be negative");
	const scope = { conversationId, afterSequence, ...filter };
	const after = pageToken === "" ? afterSequence : tokens.read(name, scope, pageToken);
	assertReached(after, (await log.range()).newest);
	const stored = await log.list({ ...filter, after, conversationId, limit, maxBytes, withRecords: true });
	// A list from 0 gives what is kept when each of its pages is read.
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
		if (entries.length % VIEWED_AT_ONCE === 0) await setImmediate();
	}
	if (through === undefined) return { entries, nextPageToken: "" };
	// A page can end for its number of entries or for their size, so only the store can tell.
	const [next] = await log.list({ ...filter, after: through, conversationId, limit: 1, withRecords: false });
	return { entries, nextPageToken: next === undefined ? "" : tokens.write(name, scope, through) };
}
